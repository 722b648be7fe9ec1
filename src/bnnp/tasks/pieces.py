"""Contexts that are read piece by piece, as often as there are layers, and never held as a whole."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bnnp._core.shapes import Tensor
from bnnp.tasks.datasets.optional import optional_module

Pair = tuple[Any, Any]
Pieces = Iterable[Pair] | Callable[[], Iterable[Pair]]


@dataclass(frozen=True, eq=False)
class ArrayPieces:
    """Arrays in memory or on disk (`numpy.memmap`), of which one slice at a time is read."""

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


@dataclass(frozen=True)
class ParquetPieces:
    """Columns of a Parquet file, of which some rows at a time are read. Made by `from_parquet`."""

    path: Path
    x: tuple[str, ...]
    y: tuple[str, ...]
    rows: int
    size: int = 65_536

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[Pair]:
        for batch in _parquet().ParquetFile(self.path).iter_batches(self.size, columns=[*self.x, *self.y]):
            table = batch.to_pandas()
            yield table[list(self.x)].to_numpy(float), table[list(self.y)].to_numpy(float)


def from_parquet(path: str | Path, *, x: Sequence[str], y: Sequence[str]) -> ParquetPieces:
    """The columns of a Parquet file of any size as a context.

    Example: `post = model.condition(bnnp.tasks.from_parquet("big.parquet", x=["a", "b"], y=["c"]), chunk_size=4096)`
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: there is no such file")
    parquet = _parquet()
    try:
        found = parquet.ParquetFile(file)
    except (ValueError, OSError) as error:  # pyarrow's own errors are kinds of these
        raise ValueError(f"{file}: not a Parquet file ({error})") from None
    missing = [name for name in [*x, *y] if name not in found.schema_arrow.names]
    if missing:
        raise ValueError(
            f"{file}: got columns {', '.join(found.schema_arrow.names)}, expected {', '.join(missing)} too"
        )
    return ParquetPieces(file, tuple(x), tuple(y), found.metadata.num_rows)


def pieces_of(context: Pieces) -> Callable[[], Iterator[Pair]]:
    """A function that reads a context from its beginning, each time it is called."""
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


def _parquet() -> Any:
    return optional_module("pyarrow.parquet", "reading Parquet", "data")
