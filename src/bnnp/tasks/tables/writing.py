"""Tables on disk: text or Parquet, as the file's name says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bnnp._core.files import naming, written_atomically
from bnnp._core.optional import optional_module

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = {".csv": ",", ".tsv": "\t"}
PARQUET = ".parquet"
TABLES = (*DELIMITERS, PARQUET)


def check_out(
    path: Path, suffixes: Sequence[str] = TABLES, inputs: Sequence[Path | None] = (), name: str = "out"
) -> None:
    """Refuse a place to write to before the work is done.

    Args:
        path: The file that is to be written.
        suffixes: The ends that its name may have.
        inputs: Files that it must not replace.
        name: The option's name, for the error.

    Raises:
        ValueError: If the file's name ends in something else, it is a folder, within a file, or one of the inputs.
        ImportError: If the package that writes this kind of file is not installed.
    """
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{name}: got {str(path)!r}, expected a file that ends in {' or '.join(suffixes)}")
    if path.is_dir():
        raise ValueError(f"{name}: got {str(path)!r}, which is a folder, expected a file")
    above = next((folder for folder in path.parents if folder.exists()), None)
    if above is not None and not above.is_dir():
        raise ValueError(f"{name}: got {str(path)!r}, but {str(above)!r} is a file, expected a folder")
    if any(other is not None and path.exists() and other.exists() and path.samefile(other) for other in inputs):
        raise ValueError(f"{name}: got {str(path)!r}, which is a file to read from, expected another one")
    if path.suffix.lower() == PARQUET:
        optional_module("pyarrow", "writing Parquet", "data")


def write_table(path: Path, frame: pd.DataFrame) -> Path:
    """Write a table completely or not at all, as text (.csv, .tsv) or as Parquet.

    Args:
        path: The file.
        frame: The table.

    Returns:
        The path.
    """
    with table_writer(path) as write:
        write(frame)
    return path


@contextmanager
def table_writer(path: Path, types: Any = None) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Write a table part by part; the file takes its place when the block ends without an error.

    Args:
        path: The file.
        types: For Parquet, Arrow fields of columns whose types are known; those of the others are of the first part.

    Yields:
        A function that writes the next rows.
    """
    with written_atomically(path) as file, ExitStack() as stack:
        if path.suffix.lower() == PARQUET:
            write = _parquet_writer(file, types, stack)
        else:
            write = _text_writer(file, DELIMITERS[path.suffix.lower()])

        def write_part(frame: pd.DataFrame) -> None:
            with naming(path):
                write(frame)

        yield write_part


def _text_writer(file: BinaryIO, mark: str) -> Callable[[pd.DataFrame], None]:
    def write(frame: pd.DataFrame) -> None:
        file.write(frame.to_csv(index=False, sep=mark, header=file.tell() == 0).encode())

    return write


def _parquet_writer(file: BinaryIO, types: Any, stack: ExitStack) -> Callable[[pd.DataFrame], None]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    opened: list[pq.ParquetWriter] = []

    def write(frame: pd.DataFrame) -> None:
        if not opened:
            schema = pa.Schema.from_pandas(frame, preserve_index=False)
            for field in types or ():
                at = schema.get_field_index(field.name)
                schema = schema if at < 0 else schema.set(at, schema.field(at).with_type(field.type))
            opened.append(stack.enter_context(pq.ParquetWriter(file, schema)))
        opened[0].write_table(pa.Table.from_pandas(frame, schema=opened[0].schema, preserve_index=False))

    return write
