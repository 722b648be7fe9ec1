"""Columns as people have them: numbers with gaps, categories, dates and durations, and the numbers they become."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bnnp._core.cells import Column, as_names, as_numbers

NUMBER, CATEGORY, DATE, DURATION = "number", "category", "date", "duration"
UNITS = {"days": 86400.0, "hours": 3600.0, "seconds": 1.0}
"""The units of times, in seconds; a column has the largest of which it spans two or more."""
ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?", re.ASCII)
CLOCK = re.compile(r"(\d+):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?", re.ASCII)
UNKNOWN = "unknown"
LEAST_TASKS = 2
"""A category that fewer data sets have counts as unknown: what one data set has to itself cannot help others."""


@dataclass(frozen=True)
class Encoding:
    """How the cells of one input column become numbers.

    An empty cell, or a category that is not known, takes the mean of training. Where training had such cells, one more
    number says so, and the model learns from it.

    Attributes:
        name: The name of the column in the user's table.
        kind: "number", "category", "date" or "duration".
        fill: The mean of every number in training.
        gaps: Whether training had empty cells or unknown categories.
        levels: The categories.
        origin: The day from which dates are counted.
        unit: The unit of dates and durations.
    """

    name: str
    kind: str
    fill: tuple[float, ...]
    gaps: bool = False
    levels: tuple[str, ...] = ()
    origin: str = ""
    unit: str = ""

    @staticmethod
    def of(column: Column, tasks: np.ndarray) -> Encoding:
        """The encoding of a column of training.

        Args:
            column: The column.
            tasks: The data set of every row.

        Raises:
            ValueError: If all cells are empty, or some are neither of the kind of the others nor empty.
        """
        missing = column.missing()
        if missing.all():
            raise ValueError(
                f"{column.where}column {column.name!r}: got an empty cell in every row, expected values; leave it out"
            )
        kind = _kind(column, ~missing)
        if kind == CATEGORY:
            return _with_means(Encoding(column.name, kind, (), levels=_levels(column, missing, tasks)), column)
        if kind in (DATE, DURATION):
            origin, unit = _origin(_seconds(column, kind), kind)
            return _with_means(Encoding(column.name, kind, (0.0,), origin=origin, unit=unit), column)
        return _with_means(Encoding(column.name, kind, (0.0,)), column)

    @property
    def names(self) -> list[str]:
        """The names of the numbers."""
        shown = f" [{self.unit} since {self.origin}]" if self.origin else f" [{self.unit}]" if self.unit else ""
        own = [f"{self.name}={level}" for level in self.levels] if self.kind == CATEGORY else [self.name + shown]
        return own + [f"{self.name}={UNKNOWN}"] * self.gaps

    def numbers(self, column: Column) -> tuple[np.ndarray, np.ndarray]:
        """The cells as numbers (rows, names), and which rows have an empty or unknown cell, where training had none.

        Raises:
            ValueError: If a cell is not of the column's kind.
        """
        own = self._own(column)
        unknown = np.asarray(np.isnan(own).any(axis=1)) if own.shape[1] else np.ones(len(own), dtype=bool)
        filled = np.where(unknown[:, None], np.array(self.fill), own)
        if not self.gaps:
            return filled, unknown
        return np.hstack([filled, unknown[:, None].astype(float)]), np.zeros(len(own), dtype=bool)

    def words(self, number: float) -> str:
        """A number in the user's words: a date as a date."""
        if self.kind != DATE:
            return f"{number:g}"
        when = datetime.datetime.fromisoformat(self.origin) + datetime.timedelta(seconds=number * UNITS[self.unit])
        return when.isoformat(sep=" ", timespec="seconds").removesuffix(" 00:00:00")

    def _own(self, column: Column) -> np.ndarray:
        """The numbers without the one that says what is unknown; NaN where the cell is empty or unknown."""
        if self.kind == CATEGORY:
            known = _labels(column)[:, None] == np.array(self.levels, dtype=object)
            return np.where(known.any(1, keepdims=True), known.astype(float), math.nan)
        if self.kind == NUMBER:
            return column.numbers()[:, None]
        start = datetime.datetime.fromisoformat(self.origin + "T00:00+00:00").timestamp() if self.origin else 0.0
        return ((_seconds(column, self.kind) - start) / UNITS[self.unit])[:, None]


@dataclass(frozen=True)
class Encodings:
    """How the columns of a user's table become numbers.

    Attributes:
        inputs: One encoding per input column.
        classes: The labels of the output, if it has labels; they become 0, 1, ...
    """

    inputs: tuple[Encoding, ...]
    classes: tuple[str, ...] = ()

    @property
    def tables_names(self) -> list[str]:
        """The names of the input columns in the user's tables."""
        return [encoding.name for encoding in self.inputs]

    @property
    def names(self) -> list[str]:
        """The names of all numbers."""
        return [name for encoding in self.inputs for name in encoding.names]

    @property
    def plain(self) -> bool:
        """Whether all input columns are numbers without gaps."""
        return all(encoding.kind == NUMBER and not encoding.gaps for encoding in self.inputs)

    def numbers(self, column: Callable[[str], Column]) -> tuple[np.ndarray, np.ndarray]:
        """The inputs as numbers (rows, names), and which rows have an empty or unknown cell, where training had none.

        Args:
            column: Gives the column of a name.

        Raises:
            ValueError: If a cell is not of its column's kind.
        """
        parts = [encoding.numbers(column(encoding.name)) for encoding in self.inputs]
        return np.hstack([numbers for numbers, _ in parts]), np.any([strange for _, strange in parts], axis=0)

    def labels(self, column: Column) -> np.ndarray:
        """Class labels as 0, 1, ...

        Raises:
            ValueError: If a label is none of training.
        """
        places = {label: float(place) for place, label in enumerate(self.classes)}
        found = np.array([places.get(label, math.nan) for label in _labels(column)])
        column.refuse(np.isnan(found), f"one of {', '.join(self.classes)}", "correct or remove this row")
        return found

    def record(self) -> dict[str, Any]:
        """The encodings as plain values, for a file."""
        return {"inputs": [asdict(encoding) for encoding in self.inputs], "classes": list(self.classes)}

    @staticmethod
    def of_record(record: Mapping[str, Any], names: Sequence[str]) -> Encodings:
        """The encodings that `record` gave.

        Raises:
            ValueError: If their numbers do not have these names.
        """
        made = []
        for one in record["inputs"]:
            texts = {part: str(one[part]) for part in ("name", "kind", "origin", "unit")}
            fill, levels = tuple(map(float, one["fill"])), tuple(map(str, one["levels"]))
            made.append(Encoding(fill=fill, gaps=bool(one["gaps"]), levels=levels, **texts))
        found = Encodings(tuple(made), tuple(map(str, record["classes"])))
        if found.names != list(names):
            raise ValueError("encodings of columns do not fit the model")
        return found


def classes_of(column: Column) -> tuple[str, ...]:
    """The labels of an output column, sorted; none if it holds numbers."""
    if _kind(column, ~column.missing()) != CATEGORY:
        return ()
    return tuple(sorted(set(_labels(column)[~column.missing()])))


def _with_means(encoding: Encoding, column: Column) -> Encoding:
    own = encoding._own(column)
    gaps = bool(np.isnan(own).any()) or not own.shape[1]
    means = tuple(np.nanmean(own, axis=0).tolist()) if own.shape[1] else ()
    return Encoding(**{**vars(encoding), "fill": means, "gaps": gaps})


def _kind(column: Column, there: np.ndarray) -> str:
    """What a column holds. One that has a number, or text that begins like one, is meant as a column of numbers."""
    kind = column.cells.dtype.kind
    if column.is_category:
        return CATEGORY
    if kind != "O":
        return {"M": DATE, "m": DURATION}.get(kind, NUMBER)
    cells = column.cells[there]
    for name, types, pattern in (
        (DATE, (datetime.date, np.datetime64), ISO),
        (DURATION, (datetime.timedelta, np.timedelta64), CLOCK),
    ):
        if all(isinstance(c, types) or (isinstance(c, str) and pattern.fullmatch(c.strip())) for c in cells):
            return name
    words = all(isinstance(cell, str) and cell.strip()[0].isalpha() for cell in cells)
    return CATEGORY if words and not np.isfinite(as_numbers(cells, column.mark)).any() else NUMBER


def _labels(column: Column) -> np.ndarray:
    """The cells as text without blanks around it."""
    return np.array([name.strip() for name in as_names(column.cells)], dtype=object)


def _levels(column: Column, missing: np.ndarray, tasks: np.ndarray) -> tuple[str, ...]:
    """The categories that enough data sets have."""
    pairs = set(zip(_labels(column)[~missing].tolist(), tasks[~missing].tolist(), strict=True))
    counts: dict[str, int] = {}
    for label, _ in pairs:
        counts[label] = counts.get(label, 0) + 1
    least = min(LEAST_TASKS, len(set(tasks.tolist())))
    return tuple(sorted(label for label, count in counts.items() if count >= least))


def _without(cells: np.ndarray, some: np.ndarray) -> np.ndarray:
    """The cells, with None in place of some of them."""
    kept = cells.copy()
    kept[some] = None
    return kept


def _seconds(column: Column, kind: str) -> np.ndarray:
    """Dates in seconds since 1970, durations in seconds; NaN where the cell is empty.

    Raises:
        ValueError: If another cell is not of this kind.
    """
    import pandas as pd

    missing = column.missing()
    cells = _without(column.cells, missing) if column.cells.dtype.kind == "O" else column.cells
    if kind == DATE:
        fine = [not isinstance(c, str) or bool(ISO.fullmatch(c.strip())) for c in cells.tolist()]
        readable = pd.Series(_without(cells, ~np.array(fine)) if cells.dtype.kind == "O" else cells)
        since = pd.to_datetime(readable, format="ISO8601", utc=True, errors="coerce") - pd.Timestamp(0, tz="UTC")
    elif cells.dtype.kind == "O":
        since = pd.to_timedelta(pd.Series([_clock(cell) for cell in cells]))
    else:
        since = pd.Series(cells) if cells.dtype.kind == "m" else pd.Series(pd.NaT, index=range(len(cells)))
    found = since.dt.total_seconds().to_numpy(dtype=float, na_value=math.nan)
    example = "dates, as in 2024-05-17 or 2024-05-17T08:30" if kind == DATE else "durations, as in 08:30 or 08:30:15"
    column.refuse(np.isnan(found) & ~missing, example, "correct or remove this row")
    return found


def _clock(cell: Any) -> Any:
    """A cell as a duration; None if it is none."""
    parts = CLOCK.fullmatch(cell.strip()) if isinstance(cell, str) else None
    if parts is None:
        return cell if isinstance(cell, datetime.timedelta | np.timedelta64) else None
    hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    return datetime.timedelta(hours=hours, minutes=minutes, seconds=seconds)


def _origin(seconds: np.ndarray, kind: str) -> tuple[str, str]:
    """The day from which a column of dates is counted, and the unit of a column of times."""
    low, high = float(np.nanmin(seconds)), float(np.nanmax(seconds))
    span = high - low if kind == DATE else high
    unit = next((name for name, size in UNITS.items() if span >= 2 * size), "seconds")
    first = datetime.datetime.fromtimestamp(low, datetime.UTC).date().isoformat() if kind == DATE else ""
    return first, unit
