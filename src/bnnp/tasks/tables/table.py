"""One table, wherever it comes from: its cells, the numbers of its rows in an editor, and its file's name."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bnnp._core import cells
from bnnp._core.frames import as_pandas, is_frame
from bnnp._core.optional import optional_module
from bnnp._core.show import Shown, listed
from bnnp.tasks.tables import text

if TYPE_CHECKING:
    import pandas as pd

TEXT, EXCEL, PARQUET = (".csv", ".tsv", ".txt"), (".xlsx",), (".parquet", ".pq")
WHOLE_NUMBERS = {"integer_object_nulls": True}
"""So that whole numbers beside a gap stay whole in all pieces of a Parquet file."""
BYTES_OF_ROW = 32
"""In a text file, about."""
FIRST_ROW = 2
"""The number of the first row below the header, as an editor shows it."""


@dataclass(frozen=True, eq=False, repr=False)
class Table(Shown):
    """A table of a user. `read_table` makes it.

    Attributes:
        frame: The cells. Those of text files are text, as written.
        rows: The number of every row as an editor shows it, the header being row 1.
        where: The file and a colon, for errors; empty for a data frame.
        decimal: The decimal mark of numbers that are written as text; None where the numbers must show it.

    Example:
        >>> import pandas as pd
        >>> bnnp.tasks.read_table(pd.DataFrame({"time": [0.0, 1.0]})).rows.tolist()
        [2, 3]
    """

    frame: pd.DataFrame
    rows: np.ndarray
    where: str = ""
    decimal: str | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def _described(self) -> dict[str, object]:
        return {"rows": len(self), "columns": listed([str(name) for name in self.frame.columns])}

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise `ValueError` unless every name is the name of exactly one column, and no name is there twice."""
        there = [str(name) for name in self.frame.columns]
        for name in names:
            if name not in there:
                raise ValueError(
                    f"{self.where}column {name!r}: there is no such column; the table has {', '.join(there)}"
                    f"{text.hint(there)}"
                )
        twice = sorted({name for name in there if there.count(name) > 1})
        if twice:
            count = there.count(twice[0])
            raise ValueError(
                f"{self.where}column {twice[0]!r}: got {count} columns of this name, expected one; rename them"
            )
        if len(set(names)) != len(names):
            raise ValueError(f"{self.where}columns: got {', '.join(names)}, expected each column once")

    def complete(self, ids: Sequence[str], numbers: Sequence[str], missing: str) -> Table:
        """The table without the rows that have an empty cell in one of these columns, if `missing` is "drop".

        Args:
            ids: Columns of names.
            numbers: Columns of numbers.
            missing: "error" or "drop".

        Raises:
            ValueError: If an empty cell is in the way, or no row is complete.
        """
        if missing not in ("error", "drop"):
            raise ValueError(f"missing: got {missing!r}, expected 'error' or 'drop'")
        self.check_columns([*ids, *numbers])
        if missing == "error" or len(self) == 0:
            return self
        kept = self.filled(ids, numbers)
        if len(kept) == 0:
            raise ValueError(f"{self.where}table: got an empty cell in every row, expected at least one complete row")
        return kept

    def filled(self, ids: Sequence[str], numbers: Sequence[str]) -> Table:
        """The rows without an empty cell in these columns of names and of numbers; there may be none."""
        empty = [self.column(name).missing(number=name in numbers) for name in (*ids, *numbers)]
        return self.take(np.flatnonzero(~np.any(empty, axis=0))) if empty else self

    def take(self, places: np.ndarray) -> Table:
        """The rows at these places."""
        return replace(self, frame=self.frame.iloc[places], rows=self.rows[places])

    def names(self, column: str) -> np.ndarray:
        """A column of names as text, as written.

        Raises:
            ValueError: If a cell is empty, or a name has blanks around it.
        """
        return self.column(column).names()

    def numbers(self, columns: Sequence[str]) -> np.ndarray:
        """Columns of finite numbers (rows, columns).

        Raises:
            ValueError: If a cell is not a finite number; the message names the first such cell.
        """
        marked = self.marked(columns)
        for name in columns:
            marked.refuse_missing(name)
        return np.stack([marked.column(name).numbers() for name in columns], axis=1)

    def refuse_non_positive(self, columns: Sequence[str]) -> None:
        """Raise `ValueError` if a number in these columns is not positive; the message names the first such cell."""
        cure = "correct or remove this row, or leave out positive=True"
        for name, values in zip(columns, self.numbers(columns).T, strict=True):
            self.column(name).refuse(~(values > 0), "positive numbers, whose logarithms are learned", cure)

    def marked(self, columns: Sequence[str]) -> Table:
        """The table with the decimal mark of the numbers in these columns.

        Raises:
            ValueError: If the numbers do not show which it is.
        """
        given = {name: self.column(name).cells for name in columns}
        return replace(self, decimal=self.decimal or cells.decimal_mark(given, self.where))

    def refuse_missing(self, name: str) -> None:
        """Raise a `ValueError` if a cell of a column of values is empty."""
        column = self.column(name)
        column.refuse(column.missing(), "finite numbers", cells.DROP)

    def column(self, name: str) -> cells.Column:
        """One column."""
        place = [str(other) for other in self.frame.columns].index(name)
        return cells.Column.of(self.frame.iloc[:, place], name, self.rows, self.where, self.decimal or ".")


def read_table(table: Any, *, delimiter: str | None = None, decimal: str | None = None) -> Table:
    """Read a table from a file, or take a data frame.

    Args:
        table: A data frame of pandas, polars or Arrow, or the path of a file: text (.csv, .tsv, .txt), Excel (.xlsx)
            or Parquet (.parquet, .pq).
        delimiter: What separates the columns of a text file; found out if None.
        decimal: The decimal mark of numbers in a text file, "." or ","; found out if None.

    Returns:
        The table, which `bnnp.tasks.from_table` takes too.

    Raises:
        FileNotFoundError: If there is no such file.
        IsADirectoryError: If it is a folder.
        ImportError: If the package that reads this kind of file is not installed.
        ValueError: If the file is not a table.

    Example:
        >>> import pathlib
        >>> written = pathlib.Path("semicolons.csv").write_text("who;time;conc\\n013;0,5;2\\n013;1,5;3\\n")
        >>> tasks = bnnp.tasks.from_table(bnnp.tasks.read_table("semicolons.csv"), task="who", x="time", y="conc")
        >>> tasks[0].name, tasks[0].x.tolist()
        ('013', [[0.5], [1.5]])
    """
    import pandas as pd

    if isinstance(table, Table):
        return table
    text.check_marks(delimiter, decimal)
    if isinstance(table, pd.DataFrame) or is_frame(table):
        return _of_frame(as_pandas(table), "")
    if not isinstance(table, str | os.PathLike):
        raise ValueError(f"table: got {type(table).__name__}, expected a data frame or the path of a file")
    path = Path(table)
    _check_file(path)
    if path.suffix.lower() in TEXT:
        frame, rows = text.read(path, delimiter)
        return Table(frame, rows, f"{path}: ", decimal)
    return _of_frame(_frame_in(path), f"{path}: ")


def table_pieces(path: Path, rows: int, *, delimiter: str | None = None, decimal: str | None = None) -> Iterator[Table]:
    """A table in a file, a limited number of rows at a time; the other arguments and errors are those of `read_table`.

    Args:
        path: A text file or a Parquet file; of other files, all rows come at once.
        rows: The most rows of a piece.
        delimiter: What separates the columns of a text file.
        decimal: The decimal mark of numbers in a text file; if None, each piece has that of its own cells.
    """
    _check_file(path)
    text.check_marks(delimiter, decimal)
    if path.suffix.lower() in TEXT:
        for frame, numbers in text.pieces(path, delimiter, rows):
            yield Table(frame, numbers, f"{path}: ", decimal)
    elif path.suffix.lower() in PARQUET:
        start = FIRST_ROW
        for frame in _parquet_pieces(path, rows):
            yield Table(frame, np.arange(start, start + len(frame)), f"{path}: ")
            start += len(frame)
    else:
        yield read_table(path, delimiter=delimiter, decimal=decimal)


def has_more_rows(path: Path, rows: int) -> bool:
    """Whether a file certainly can be read in pieces and may have more rows than this."""
    if path.suffix.lower() in PARQUET:
        return _parquet_file(path).metadata.num_rows > rows
    return path.suffix.lower() in TEXT and path.is_file() and path.stat().st_size > rows * BYTES_OF_ROW


def column_types(path: Path) -> Any:
    """The types of a Parquet file's columns, as pyarrow has them; None for other files."""
    return _parquet_file(path).schema_arrow if path.suffix.lower() in PARQUET else None


def _parquet_pieces(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    file, none = _parquet_file(path), True
    with file:
        for batch in file.iter_batches(rows):
            none = False
            yield batch.to_pandas(**WHOLE_NUMBERS)
        if none:
            yield file.schema_arrow.empty_table().to_pandas()


def _parquet_file(path: Path) -> Any:
    _check_file(path)
    parquet = optional_module("pyarrow.parquet", "reading Parquet", "data")
    try:
        return parquet.ParquetFile(path)
    except Exception as error:  # pyarrow has errors of its own for files that are damaged
        raise _not_a_table(path, error) from None


def _not_a_table(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path}: expected a table of the kind {path.suffix.lower()} ({error})")


def _check_file(path: Path) -> None:
    if path.is_dir():
        raise IsADirectoryError(f"{path}: this is a folder, expected a file with a table")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")


def _of_frame(frame: pd.DataFrame, where: str) -> Table:
    return Table(frame, np.arange(FIRST_ROW, FIRST_ROW + len(frame)), where)


def _frame_in(path: Path) -> pd.DataFrame:
    """The data frame in an Excel or Parquet file."""
    import pandas as pd

    suffix = path.suffix.lower()
    if suffix not in (*EXCEL, *PARQUET):
        known = ", ".join((*TEXT, *EXCEL, *PARQUET))
        raise ValueError(f"{path}: got a file that ends in {suffix or 'nothing'!r}, expected a table: {known}")
    try:
        if suffix in PARQUET:
            return _parquet_file(path).read().to_pandas(**WHOLE_NUMBERS)
        optional_module("openpyxl", "reading Excel", "excel")
        return _only_sheet(pd.read_excel(path, sheet_name=None, dtype=object, keep_default_na=False))
    except ImportError:
        raise
    except Exception as error:  # each package has errors of its own for files that are damaged
        raise _not_a_table(path, error) from None


def _only_sheet(sheets: dict[str, pd.DataFrame]) -> pd.DataFrame:
    filled = {name: frame for name, frame in sheets.items() if frame.shape[1]}
    if len(filled) != 1:
        raise ValueError(
            f"got the sheets {', '.join(filled) or '(none)'}, expected one; save the one you mean by itself"
        )
    return next(iter(filled.values()))
