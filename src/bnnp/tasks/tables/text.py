"""Text files of tables: their encoding, their delimiter, their rows."""

from __future__ import annotations

import csv
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = {",": "','", ";": "';'", "\t": "tabs", "|": "'|'"}
"""What may separate columns without being named, and how messages call it."""
LOOKED_AT = 50
"""Rows that are looked at to find out the delimiter."""
LINES_OF_HEAD = 20 * LOOKED_AT
"""Lines that are read for it, of a file that is read in pieces; a cell may have several."""
MARKS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}
"""The bytes with which files begin that say their encoding."""


def read(path: Path, delimiter: str | None) -> tuple[pd.DataFrame, np.ndarray]:
    """The cells of a file as text, and the number of every row.

    Args:
        path: The file.
        delimiter: What separates the columns; found out if None.

    Raises:
        ValueError: If the file is not text, has no header, or a row has too few or too many cells.
    """
    content = _decoded(path)
    return next(_frames(io.StringIO(content, newline=""), path, delimiter or _delimiter(content, path), None))


def pieces(path: Path, delimiter: str | None, rows: int) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
    """The same as `read`, a limited number of rows at a time, of which only these are in memory.

    Args:
        path: The file.
        delimiter: What separates the columns; found out from the first lines if None.
        rows: The most rows of a piece.

    Raises:
        ValueError: As `read`, when the reading comes to the row.
    """
    with path.open("rb") as file:
        encoding = _encoding(file.read(4))
    with path.open(encoding=encoding, newline="") as first, path.open(encoding=encoding, newline="") as lines:
        try:
            head = "".join(itertools.islice(first, LINES_OF_HEAD))
            yield from _frames(_without_zeros(lines, path), path, delimiter or _delimiter(head, path), rows)
        except UnicodeDecodeError as error:
            raise _not_text(path, error.reason) from None


def _frames(lines: Iterable[str], path: Path, mark: str, rows: int | None) -> Iterator[tuple[pd.DataFrame, np.ndarray]]:
    """The cells below the header in frames of at most so many rows, and the number of every row; at least one frame."""
    records = _filled_records(lines, path, mark)
    header = [name.strip() for name in next(records, ([], 0))[0]]
    if not header:
        raise ValueError(f"{path}: got an empty file, expected a table with a header")
    some = list(itertools.islice(records, rows))
    yield _frame(header, some, path, mark)
    while rows is not None and (some := list(itertools.islice(records, rows))):
        yield _frame(header, some, path, mark)


def _frame(
    header: list[str], records: list[tuple[list[str], int]], path: Path, mark: str
) -> tuple[pd.DataFrame, np.ndarray]:
    import pandas as pd

    for row, line in records:
        if len(row) != len(header):
            raise ValueError(
                f"{path}: got {len(row)} cells at row {line}, expected {len(header)} as in the header; the table seems "
                f"to be separated by {DELIMITERS.get(mark, repr(mark))}: if it is not, give "
                "bnnp.tasks.read_table(path, delimiter=...)"
            )
    cells = list(zip(*(row for row, _ in records), strict=True)) or [()] * len(header)
    frame = pd.concat([pd.Series(list(column), dtype=object) for column in cells], axis=1)
    return frame.set_axis(header, axis=1), np.array([line for _, line in records], dtype=int)


def _filled_records(lines: Iterable[str], path: Path, mark: str) -> Iterator[tuple[list[str], int]]:
    try:
        yield from ((row, line) for row, line in _records(lines, mark) if any(cell.strip() for cell in row))
    except csv.Error as error:
        raise ValueError(f"{path}: expected a table of text ({error}); a quotation mark may be missing") from None


def check_marks(delimiter: Any, decimal: Any) -> None:
    """Check the characters that a user names, before a table is read.

    Raises:
        ValueError: If they cannot stand between columns, or within numbers.
    """
    if decimal not in (None, ".", ","):
        raise ValueError(f"decimal: got {decimal!r}, expected '.' or ','")
    if delimiter is not None and not (isinstance(delimiter, str) and may_separate(delimiter)):
        raise ValueError(f"delimiter: got {delimiter!r}, expected one character that no number has, as in ';'")
    if delimiter is not None and delimiter == decimal:
        raise ValueError(f"delimiter: got {delimiter!r}, which is the decimal mark too; expected another, as in ';'")


def may_separate(mark: str) -> bool:
    """Whether this is one character that can stand between columns."""
    return len(mark) == 1 and not mark.isalnum() and mark not in "\r\n\0\"'.+-"


def hint(columns: Sequence[str]) -> str:
    """What to try if a table seems to have one column only, for the end of an error."""
    if len(columns) != 1 or not columns[0].split():
        return ""
    marks = [mark for mark in (*DELIMITERS, ":", " ") if mark in columns[0]]
    return (
        ""
        if not marks
        else (
            f"; it seems to be separated by {DELIMITERS.get(marks[0], repr(marks[0]))}: give "
            f"bnnp.tasks.read_table(path, delimiter={marks[0]!r})"
        )
    )


def _decoded(path: Path) -> str:
    data = path.read_bytes()
    try:
        content = data.decode(_encoding(data))
    except UnicodeDecodeError as error:
        raise _not_text(path, f"{error.reason} at byte {error.start}") from None
    return next(_without_zeros([content], path))


def _encoding(data: bytes) -> str:
    return next((name for mark, name in MARKS.items() if data.startswith(mark)), "utf-8")


def _not_text(path: Path, reason: str) -> ValueError:
    return ValueError(f"{path}: expected a table of text in UTF-8 ({reason}); save it as CSV in UTF-8")


def _without_zeros(texts: Iterable[str], path: Path) -> Iterator[str]:
    for one in texts:
        if "\0" in one:
            raise ValueError(f"{path}: expected a table of text, got bytes that are none; save it as CSV in UTF-8")
        yield one


def _records(lines: Iterable[str], mark: str) -> Iterator[tuple[list[str], int]]:
    """Every row with the number of its line."""
    reader = csv.reader(lines, delimiter=mark, strict=True)
    for row in reader:
        yield row, reader.line_num


def _delimiter(content: str, path: Path) -> str:
    """What separates the columns: what gives all rows as many cells as the header, and more than one."""
    fitting = {mark: width for mark in DELIMITERS if (width := _width(content, mark)) > 1}
    if len(fitting) > 1:
        raise ValueError(
            f"{path}: the table may be separated by {' or by '.join(DELIMITERS[mark] for mark in fitting)}; say which: "
            "give bnnp.tasks.read_table(path, delimiter=...)"
        )
    if fitting:
        return next(iter(fitting))
    header = next((line for line in content.splitlines() if line.strip()), "")
    if any(mark in header for mark in DELIMITERS):  # some row does not fit, which the reader will name
        return max(DELIMITERS, key=header.count)
    return ";" if "," in content else ","  # one column, whose numbers may have decimal commas


def _width(content: str, mark: str) -> int:
    """The number of cells of every row, if all have as many; else 0."""
    widths = set()
    try:
        for number, (row, _) in enumerate(_records(io.StringIO(content, newline=""), mark)):
            if number == LOOKED_AT:
                break
            if any(cell.strip() for cell in row):
                widths.add(len(row))
    except csv.Error:
        return 0
    return widths.pop() if len(widths) == 1 else 0
