"""Tasks in Parquet files that are larger than memory: read by blocks, with sums over all of it made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import torch

from bnnp._core.cells import Column
from bnnp._core.columns import Columns
from bnnp._core.ranges import Ranges
from bnnp._core.shapes import Tensor
from bnnp._core.show import Shown, listed
from bnnp.tasks.blocks import Blocks
from bnnp.tasks.named import NamedColumns
from bnnp.tasks.source import TaskSource
from bnnp.tasks.task import Task

ROWS_AT_ONCE = 65_536
LARGEST = 1e150
"""Numbers whose squares can be summed are smaller."""
GROUPS = 4
"""Blocks that a draw reads: its tasks come from these."""


@dataclass(frozen=True, eq=False, repr=False)
class ParquetTasks(Shown, NamedColumns, TaskSource):
    """Data sets in Parquet files of any size, the rows of each together. Made by `from_parquet(..., task=...)`.

    A draw takes a few blocks of rows (row groups of the files) at random, and tasks at random from each: every task is
    as likely as any other. Memory holds the blocks of one draw, and two numbers per task.

    Attributes:
        blocks: The rows.
        task_name: The column that tells tasks apart.
        x_names: Input columns.
        y_names: Output columns.
        scan: What one reading of all rows has found.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"who": ["a", "a", "b", "b"], "t": [0.0, 1.0, 0.0, 2.0], "c": [1.0, 3.0, 5.0, 2.0]})
        >>> frame.to_parquet("subjects.parquet")
        >>> subjects = bnnp.tasks.from_parquet("subjects.parquet", task="who", x=["t"], y=["c"])
        >>> len(subjects), subjects.ranges().x
        (2, ((0.0, 2.0),))
    """

    blocks: Blocks
    task_name: str
    x_names: tuple[str, ...]
    y_names: tuple[str, ...]
    scan: Scan

    standardise, positive, encodings, tasks = True, False, None, ()

    def __len__(self) -> int:
        return len(self.scan.starts) - 1

    @property
    def columns(self) -> Columns:
        """The shifts and scales of all columns, from sums over all rows."""
        columns = Columns(self.in_size, self.out_size, self.x_names, self.y_names).double()
        for which, some in (("x", slice(self.in_size)), ("y", slice(self.in_size, None))):
            getattr(columns, f"{which}_shift").copy_(torch.from_numpy(self.scan.mean[some]))
            getattr(columns, f"{which}_scale").copy_(torch.from_numpy(self.scan.std[some]))
        return columns

    def ranges(self) -> Ranges:
        """The smallest and the largest value of every column."""
        pairs = tuple(zip(self.scan.low.tolist(), self.scan.high.tolist(), strict=True))
        return Ranges(pairs[: self.in_size], pairs[self.in_size :])

    def draw(self, count: int, generator: torch.Generator) -> list[Task]:
        """Draw tasks at random, as `TaskSource.draw`, from a few blocks of the file."""
        first = np.searchsorted(self.scan.starts[:-1], self.blocks.bounds)  # of each block: its first task
        sizes = torch.from_numpy(np.diff(first).astype(float))
        blocks = torch.multinomial(sizes, min(GROUPS, count), replacement=True, generator=generator).tolist()
        drawn = []
        for place, block in enumerate(blocks):
            wanted = count * (place + 1) // len(blocks) - count * place // len(blocks)
            some = torch.randint(int(sizes[block]), (wanted,), generator=generator)
            drawn += [self._task(int(first[block]) + int(i)) for i in some]
        return [drawn[int(i)] for i in torch.randperm(count, generator=generator)]

    def _task(self, index: int) -> Task:
        start, stop = (int(row) for row in self.scan.starts[index : index + 2])
        blocks = range(*(int(np.searchsorted(self.blocks.bounds, row, "right")) - 1 for row in (start, stop - 1)))
        parts = []
        for block in (*blocks, blocks.stop):
            low = int(self.blocks.bounds[block])
            parts.append(self._block(block)[max(0, start - low) : stop - low])
        values = torch.cat(parts)
        return Task(values[:, : self.in_size], values[:, self.in_size :], str(index))

    @cached_property
    def _block(self) -> Callable[[int], Tensor]:
        @lru_cache(maxsize=GROUPS + 1)
        def block(index: int) -> Tensor:
            rows = self.blocks.read(index, [*self.x_names, *self.y_names])
            return torch.from_numpy(numbers_in(rows, str(self.blocks.path)))

        return block

    def _described(self) -> dict[str, object]:
        numbers = ", ".join(f"{value:.12g}" for value in (*self.scan.mean, *self.scan.std))
        columns = listed([*self.x_names, *self.y_names])
        return {"file": self.blocks.path.name, "tasks": len(self), "columns": columns, "means and spreads": numbers}


@dataclass(frozen=True, eq=False)
class Scan:
    """What one reading of all rows finds.

    Attributes:
        starts: The first row of every task, and the number of rows.
        mean: The mean of every column.
        std: Its standard deviation.
        low: Its smallest value.
        high: Its largest value.
    """

    starts: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    low: np.ndarray
    high: np.ndarray


def scanned(blocks: Blocks, task: str, names: list[str]) -> Scan:
    """Read all rows once, in pieces.

    Args:
        blocks: The rows.
        task: The column that tells tasks apart.
        names: The columns of numbers.

    Raises:
        ValueError: If the rows of a task are not together, a value is not a finite number, or a column does not vary.
    """
    starts, names_of_tasks, row, last, where = [], _Names(task, str(blocks.path)), 0, None, str(blocks.path)
    count, mean, square = 0, np.zeros(len(names)), np.zeros(len(names))
    low, high = np.full(len(names), np.inf), np.full(len(names), -np.inf)
    for piece in blocks.pieces([task, *names], ROWS_AT_ONCE):
        if piece.num_rows == 0:
            continue
        ids = piece.column(0).to_numpy()
        places = np.flatnonzero(np.append(last is None or ids[0] != last, ids[1:] != ids[:-1]))
        names_of_tasks.add(ids[places], row + places)
        starts.append(row + places)
        last = ids[-1]
        values = numbers_in(piece.select(names), where, row)
        _check(values, where, names, row)
        row += len(values)
        apart, share = values.mean(0) - mean, len(values) / (count + len(values))
        square += np.square(values - values.mean(0)).sum(0) + np.square(apart) * share * count
        mean, count = mean + apart * share, count + len(values)
        low, high = np.minimum(low, values.min(0)), np.maximum(high, values.max(0))
    for name, constant in zip(names, low >= high, strict=True):
        if constant:
            raise ValueError(f"{where}: column {name!r}: got no rows or one value in all, expected one that varies")
    return Scan(np.append(np.concatenate(starts), row), mean, np.sqrt(square / (count - 1)), low, high)


class _Names:
    """The names of all tasks of a file, of which none may come twice."""

    def __init__(self, column: str, where: str):
        self.column, self.where, self.seen = column, where, set[str]()

    def add(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Take in the tasks that begin at some rows."""
        for name in Column(self.column, ids, rows, f"{self.where}: ").names().tolist():
            if name in self.seen:
                raise ValueError(
                    f"{self.where}: got rows of task {name!r} in two places, expected the rows of a task together; "
                    f"sort by {self.column!r}"
                )
            self.seen.add(name)


def numbers_in(table: Any, where: str, first: int = 0) -> np.ndarray:
    """The columns of an Arrow table as numbers (rows, columns); NaN where a cell is empty.

    Args:
        table: The table.
        where: The file's name, for errors.
        first: The number of its first row, for errors.

    Raises:
        ValueError: If another cell is not a finite number.
    """
    rows = np.arange(first, first + table.num_rows)
    columns = zip(table.column_names, table.columns, strict=True)
    found = [Column.of(cells.to_pandas(), name, rows, f"{where}: ").numbers() for name, cells in columns]
    return np.stack(found, axis=1)


def _check(values: np.ndarray, where: str, names: list[str], row: int) -> None:
    bad = np.argwhere(~(np.abs(values) < LARGEST))
    if len(bad):
        place, column = bad[0]
        raise ValueError(
            f"{where}: got {values[place, column]} at row {row + place}, column {names[column]!r}, expected finite "
            f"numbers below {LARGEST:g}; remove or impute these rows"
        )
