"""Rows of Parquet files of any size, block by block: one file, or a folder of them as Spark and Arrow write it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bnnp._core.optional import optional_module

ROWS_IN_BLOCK = 65_536
"""Rows that a block has at least, so that folders of many small files are not read file by file."""


@dataclass(frozen=True, eq=False)
class Blocks:
    """Whole row groups of files one after the other, a few small ones or one large one per block.

    Files are taken in the order of their paths. In a folder, parts of paths like `who=7` are columns too.

    Attributes:
        path: The file or folder.
        schema: The columns and their types, as pyarrow has them.
        parts: The row groups of every block.
        bounds: The first row of every block, and the number of rows.
    """

    path: Path
    schema: Any
    parts: list[list[Any]]
    bounds: np.ndarray

    @staticmethod
    def of(path: Path) -> Blocks:
        """Look at the sizes of all row groups.

        Raises:
            FileNotFoundError: If there is no such file or folder.
            ValueError: If it is not Parquet.
        """
        dataset = optional_module("pyarrow.dataset", "reading Parquet", "data")
        if not path.exists():
            raise FileNotFoundError(f"{path}: there is no such file or folder")
        try:
            whole = dataset.dataset(path, format="parquet", partitioning="hive")
            files = sorted(whole.get_fragments(), key=lambda file: file.path)
            groups = [group for file in files for group in file.split_by_row_group()]
            sizes = [sum(one.num_rows for one in group.row_groups) for group in groups]
        except (ValueError, OSError) as error:  # pyarrow's own errors are kinds of these
            raise ValueError(f"{path}: not a Parquet file or a folder of them ({error})") from None
        parts, rows = [], []
        for group, size in zip(groups, sizes, strict=True):
            if not rows or rows[-1] + size > max(size, ROWS_IN_BLOCK):
                parts.append([])
                rows.append(0)
            parts[-1].append(group)
            rows[-1] += size
        return Blocks(path, whole.schema, parts, np.cumsum([0, *rows]))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return int(self.bounds[-1])

    def read(self, index: int, columns: Sequence[str]) -> Any:
        """Some columns of a block, as a table of pyarrow."""
        import pyarrow as pa

        return pa.concat_tables(
            [part.to_table(schema=self.schema, columns=list(columns)) for part in self.parts[index]]
        )

    def pieces(self, columns: Sequence[str], size: int) -> Iterator[Any]:
        """Some columns of all rows, at most so many rows at a time. One block is in memory."""
        for index in range(len(self.parts)):
            block = self.read(index, columns)
            for start in range(0, block.num_rows, size):
                yield block.slice(start, size)
