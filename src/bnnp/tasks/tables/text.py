"""Text files of tables: their encoding, their delimiter, their rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

DELIMITERS = {",": "','", ";": "';'", "\t": "tabs", "|": "'|'"}
"""What may separate columns without being named, and how messages call it."""
LOOKED_AT = 50
"""Rows that are looked at to find out the delimiter."""
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
    import pandas as pd

    content = _decoded(path)
    mark = delimiter or _delimiter(content, path)
    try:
        records = [(row, line) for row, line in _records(content, mark) if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise ValueError(f"{path}: expected a table of text ({error}); a quotation mark may be missing") from None
    if not records:
        raise ValueError(f"{path}: got an empty file, expected a table with a header")
    header = [name.strip() for name in records[0][0]]
    for row, line in records[1:]:
        if len(row) != len(header):
            raise ValueError(
                f"{path}: got {len(row)} cells at row {line}, expected {len(header)} as in the header; the table seems "
                f"to be separated by {DELIMITERS.get(mark, repr(mark))}: if it is not, give "
                "bnnp.tasks.read_table(path, delimiter=...)"
            )
    cells = list(zip(*(row for row, _ in records[1:]), strict=True)) or [()] * len(header)
    frame = pd.concat([pd.Series(list(column), dtype=object) for column in cells], axis=1)
    return frame.set_axis(header, axis=1), np.array([line for _, line in records[1:]], dtype=int)


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
    encoding = next((name for mark, name in MARKS.items() if data.startswith(mark)), "utf-8")
    try:
        content = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}: expected a table of text in UTF-8 ({error.reason} at byte {error.start}); save it as CSV in UTF-8"
        ) from None
    if "\0" in content:
        raise ValueError(f"{path}: expected a table of text, got bytes that are none; save it as CSV in UTF-8")
    return content


def _records(content: str, mark: str):
    """Every row with the number of its line."""
    reader = csv.reader(io.StringIO(content, newline=""), delimiter=mark, strict=True)
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
        for number, (row, _) in enumerate(_records(content, mark)):
            if number == LOOKED_AT:
                break
            if any(cell.strip() for cell in row):
                widths.add(len(row))
    except csv.Error:
        return 0
    return widths.pop() if len(widths) == 1 else 0
