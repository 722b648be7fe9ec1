"""Tables on disk: text or Parquet, as the file's name says."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bnnp._core.files import write_atomically
from bnnp.tasks.datasets.optional import optional_module

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
    suffix = path.suffix.lower()
    if suffix != PARQUET:
        return write_atomically(path, frame.to_csv(index=False, sep=DELIMITERS[suffix]))
    buffer = io.BytesIO()
    frame.to_parquet(buffer, index=False)
    return write_atomically(path, buffer.getvalue())
