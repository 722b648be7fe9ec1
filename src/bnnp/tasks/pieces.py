"""Contexts that are read piece by piece, once per layer, and never held in memory as a whole."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, overload

from bnnp._core.checks import check_kind
from bnnp._core.files import as_path
from bnnp._core.shapes import Tensor
from bnnp._core.show import Shown, listed
from bnnp.tasks.blocks import Blocks
from bnnp.tasks.named import names_of
from bnnp.tasks.parquet import ParquetTasks, numbers_in, scanned

Pair = tuple[Any, Any]
Pieces = Iterable[Pair] | Callable[[], Iterable[Pair]]


@dataclass(frozen=True, eq=False)
class ArrayPieces:
    """Arrays in memory or on disk (`numpy.memmap`), of which one slice is read at a time.

    Args:
        x: Inputs, one row per point.
        y: Outputs, one row per point.
        size: Number of points in a slice.
    """

    x: Any
    y: Any
    size: int

    def __post_init__(self):
        if len(self.x) != len(self.y):
            raise ValueError(f"x and y: got {len(self.x)} and {len(self.y)} points, expected as many of each")

    def __len__(self) -> int:
        return len(self.x)

    def __iter__(self) -> Iterator[Pair]:
        for start in range(0, len(self), self.size):
            yield self.x[start : start + self.size], self.y[start : start + self.size]


@dataclass(frozen=True, eq=False, repr=False)
class ParquetPieces(Shown):
    """Columns of Parquet files, of which a limited number of rows is read at a time. Made by `from_parquet`.

    Attributes:
        blocks: The rows.
        x: Input columns.
        y: Output columns.
        size: The most rows that are read at a time.

    Example:
        >>> import pandas as pd
        >>> pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [1.0, 3.0, 5.0]}).to_parquet("small.parquet")
        >>> pieces = bnnp.tasks.from_parquet("small.parquet", x=["a"], y=["b"])
        >>> [inputs.shape for inputs, outputs in pieces]
        [(3, 1)]
    """

    blocks: Blocks
    x: tuple[str, ...]
    y: tuple[str, ...]
    size: int = 65_536

    def __len__(self) -> int:
        return self.blocks.rows

    def _described(self) -> dict[str, object]:
        return {"file": self.blocks.path.name, "rows": len(self), "columns": listed([*self.x, *self.y])}

    def __iter__(self) -> Iterator[Pair]:
        for piece in self.blocks.pieces([*self.x, *self.y], self.size):
            yield numbers_in(piece.select(self.x), self.where), numbers_in(piece.select(self.y), self.where)

    @property
    def where(self) -> str:
        """The name of the file, for errors."""
        return str(self.blocks.path)


@overload
def from_parquet(path: str | Path, *, x: Sequence[str], y: Sequence[str]) -> ParquetPieces: ...
@overload
def from_parquet(path: str | Path, *, x: Sequence[str], y: Sequence[str], task: str) -> ParquetTasks: ...
def from_parquet(
    path: str | Path, *, x: Sequence[str], y: Sequence[str], task: str | None = None
) -> ParquetPieces | ParquetTasks:
    """Use columns of Parquet files of any size as a context, or as many tasks.

    Args:
        path: The file, or a folder of files with the same columns. Parts of paths in it like `who=7` are columns too.
        x: Input columns.
        y: Output columns.
        task: The column that tells tasks apart; the rows of a task must be together. Without it, all rows are one
            context.

    Returns:
        A context for `model.condition(context, chunk_size=4096)`, which reads it piece by piece; with `task`, a task
        source for `bnnp.fit`, which reads it block by block.

    Raises:
        FileNotFoundError: If there is no such file or folder.
        ImportError: If pyarrow is not installed (`pip install 'bnnp[data]'`).
        ValueError: If it is not a Parquet file, or a column is missing; with `task`, also if the rows of a task are
            not together, or a value is not a finite number.

    Example:
        >>> import pandas as pd
        >>> pd.DataFrame({"a": [0.0, 1.0, 2.0], "b": [1.0, 3.0, 5.0]}).to_parquet("big.parquet")
        >>> context = bnnp.tasks.from_parquet("big.parquet", x=["a"], y=["b"])
        >>> len(context)
        3
    """
    file, names = as_path(path), [*([] if task is None else [task]), *names_of(x, "x"), *names_of(y, "y")]
    check_kind("task", task, (str, NoneType), "the name of a column")
    blocks = Blocks.of(file)
    if len(set(names)) != len(names):
        raise ValueError(f"{file}: got the columns {', '.join(names)}, expected each column once")
    missing = [name for name in names if name not in blocks.schema.names]
    if missing:
        raise ValueError(f"{path}: got columns {', '.join(blocks.schema.names)}, expected {', '.join(missing)} too")
    if task is not None:
        scan = scanned(blocks, task, [*names_of(x, "x"), *names_of(y, "y")])
        return ParquetTasks(blocks, task, tuple(names_of(x, "x")), tuple(names_of(y, "y")), scan)
    return ParquetPieces(blocks, tuple(names_of(x, "x")), tuple(names_of(y, "y")))


def pieces_of(context: Pieces) -> Callable[[], Iterator[Pair]]:
    """Make a function that reads a context from its beginning each time it is called.

    Args:
        context: Pairs `(x, y)` that can be read more than once, or a function that returns an iterator of such pairs.

    Raises:
        ValueError: If the context can be read only once, or is not made of pairs.
    """
    if callable(context):
        return lambda: iter(context())
    if isinstance(context, Iterator):
        raise ValueError(
            "x: got an iterator that can be read once, expected one that can be read again for every layer; pass a "
            "function that returns a new one, or arrays"
        )
    if isinstance(context, Tensor) or not isinstance(context, Iterable):
        raise ValueError(f"y: got nothing beside {type(context).__name__}, expected the outputs of these inputs")
    return lambda: iter(context)
