"""Cells of a table: which are missing, which are numbers, and how names are written."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "-nan", "null", "none", "<na>"))
"""What stands in a column of numbers where there is none, in small letters."""
TRUTH = {"true": 1.0, "false": 0.0}
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
WITH_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?", re.ASCII)
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)


def of_column(column: pd.Series) -> np.ndarray:
    """The cells of a column; those of one that holds anything but plain numbers and dates as objects."""
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biufcmM":
        return column.to_numpy()
    return column.astype(object).to_numpy()


def plain(cell: Any) -> Any:
    """A cell as Python's own object, for messages."""
    return cell.item() if isinstance(cell, np.generic) else cell


def is_missing(cells: np.ndarray, *, number: bool) -> np.ndarray:
    """Which cells are empty. In columns of numbers `NA` and the like are empty too; in columns of names they are names.

    Args:
        cells: The cells.
        number: Whether this is a column of numbers.
    """
    import pandas as pd

    empty = np.asarray(pd.isna(cells), dtype=bool)
    if cells.dtype.kind != "O":
        return empty
    words = MISSING if number else ("",)
    return empty | np.array([isinstance(cell, str) and cell.strip().lower() in words for cell in cells], dtype=bool)


def as_names(cells: np.ndarray) -> np.ndarray:
    """Names as text, as written. Whole numbers have no decimal point, so that 7 and 7.0 name the same task."""
    return np.array([_name(cell) for cell in cells.tolist()], dtype=object)


def as_numbers(cells: np.ndarray, mark: str) -> np.ndarray:
    """The cells as numbers; NaN for cells that are not numbers.

    Args:
        cells: The cells.
        mark: The decimal mark of numbers that are written as text.
    """
    if cells.dtype.kind in "biuf":
        return cells.astype(np.float64)
    return np.array([_number(cell, mark) for cell in cells], dtype=np.float64)


def decimal_mark(columns: Mapping[str, np.ndarray], where: str) -> str:
    """The decimal mark of the numbers in these columns: a comma if some have one and none has a point.

    Raises:
        ValueError: If the numbers do not show which it is.
    """
    texts = {
        name: [c.strip() for c in cells if isinstance(c, str)]
        for name, cells in columns.items()
        if cells.dtype.kind == "O"
    }
    commas = [(name, cell) for name, cells in texts.items() for cell in cells if WITH_COMMA.fullmatch(cell)]
    if not commas:
        return "."
    points = any("." in cell and NUMBER.fullmatch(cell) for cells in texts.values() for cell in cells)
    if points or all(THOUSANDS.fullmatch(cell) for _, cell in commas):
        name, cell = commas[0]
        raise ValueError(
            f"{where}column {name!r}: got {cell!r}, expected numbers with one decimal mark; if it is the comma, give "
            "bnnp.tasks.read_table(path, decimal=','), and if it is the point, remove the commas"
        )
    return ","


def _name(cell: Any) -> str:
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _number(cell: Any, mark: str) -> float:
    if isinstance(cell, str):
        word = cell.strip()
        word = word.replace(",", ".") if mark == "," and "." not in word else word
        return float(word) if NUMBER.fullmatch(word) else TRUTH.get(word.lower(), math.nan)
    try:
        return math.nan if isinstance(cell, complex) else float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.nan


@dataclass(frozen=True, eq=False)
class Column:
    """The cells of one column of a user's table, with what errors say of them.

    Attributes:
        name: The name of the column.
        cells: Its cells.
        rows: The number of every row, for errors.
        where: The file and a colon, for errors; empty for a data frame.
        mark: The decimal mark of numbers that are written as text.
        is_category: Whether the user has said that it holds categories.
    """

    name: str
    cells: np.ndarray
    rows: np.ndarray
    where: str = ""
    mark: str = "."
    is_category: bool = False

    @staticmethod
    def of(series: pd.Series, name: str, rows: np.ndarray, where: str = "", mark: str = ".") -> Column:
        """A column of a data frame."""
        return Column(name, of_column(series), rows, where, mark, str(series.dtype) == "category")

    def missing(self, *, number: bool = True) -> np.ndarray:
        """Which cells are empty, as in a column of numbers or of names."""
        return is_missing(self.cells, number=number)

    def numbers(self) -> np.ndarray:
        """The cells as finite numbers; NaN for those that are empty. Where all are true or false, these are 1 and 0.

        Raises:
            ValueError: If another cell is not a finite number, or some are numbers and some true or false; the message
                names the first such cell.
        """
        if self.cells.dtype.kind in "mMc":
            raise ValueError(
                f"{self.where}column {self.name!r}: got {self.cells.dtype}, expected real numbers; turn times into "
                "numbers first, as in hours since the first one"
            )
        found, missing = as_numbers(self.cells, self.mark), self.missing()
        self.refuse(~np.isfinite(found) & ~missing, "finite numbers", "correct or remove this row")
        truth = self._truth()
        if not (truth | missing).all():
            self.refuse(truth, "numbers alone, or true and false alone", "correct or remove this row")
        return np.where(missing, math.nan, found)

    def _truth(self) -> np.ndarray:
        """Which cells are true or false, in a column of any cells."""
        if self.cells.dtype.kind != "O":
            return np.zeros(len(self.cells), dtype=bool)
        return np.array(
            [isinstance(c, bool | np.bool_) or (isinstance(c, str) and c.strip().lower() in TRUTH) for c in self.cells],
            dtype=bool,
        )

    def refuse(self, bad: np.ndarray, expected: str, cure: str) -> None:
        """Raise a `ValueError` that names the first of the cells that are bad, if there is one."""
        if bad.any():
            cell = self.cells[int(bad.argmax())]
            empty = (isinstance(cell, str) and not cell.strip()) or cell is None
            raise ValueError(
                f"{self.where}column {self.name!r}: got {'an empty cell' if empty else repr(plain(cell))} at row "
                f"{self.rows[int(bad.argmax())]} ({int(bad.sum())} such cells), expected {expected}; {cure}"
            )
