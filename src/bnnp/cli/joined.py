"""The tables of known points and of targets side by side: whole, or in pieces where both are long and sorted.

Sorted means that data sets stand in ascending order in both tables, by their names as numbers or as text. Then one walk
along both finds the known points of each data set, and memory holds a piece of each. The walk is done twice: once to
check every cell and to count, and once to predict.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bnnp._core.cells import as_numbers
from bnnp._core.show import Few
from bnnp.cli.messages import note_left_out, say
from bnnp.cli.reading import Reading, rows_gone
from bnnp.cli.tally import Tally
from bnnp.models import MetaLearner
from bnnp.questions import Questions, common_column, ids_of
from bnnp.tasks.tables import Table, column_types, has_more_rows

ROWS = 2**17
"""Rows of a piece, and of tables that are read as a whole."""

Key = Callable[[np.ndarray], list[Any]]


class NotInOrder(Exception):
    """The data sets of a table do not stand in the order that is looked for."""


@dataclass(frozen=True)
class Asking:
    """What is asked of a model, in files.

    Attributes:
        model: The model.
        context: The file of known points.
        targets: The file of inputs to predict at.
        column: The column that tells data sets apart, in both.
        reading: How files are read.
    """

    model: MetaLearner
    context: Path
    targets: Path
    column: str | None
    reading: Reading

    @staticmethod
    def of(model: MetaLearner, context: Path, targets: Path, task: str | None, reading: Reading) -> Asking:
        """Look at the headers of both files for the column that tells data sets apart."""
        known, wanted = (next(reading.pieces(path, 1)) for path in (context, targets))
        return Asking(model, context, targets, common_column(model, known, wanted, task), reading)

    @property
    def types(self) -> list[Any]:
        """The Arrow types of a Parquet file's columns that stay as they are."""
        return [one for one in column_types(self.targets) or () if one.name not in self.model.columns.x_names]

    def read(self, *, whole: bool = False) -> tuple[Iterable[Questions], Tally]:
        """The questions, in pieces if the files are long, and their counts, which are said on standard error.

        Args:
            whole: Whether to read them as one piece, however long they are.

        Raises:
            ValueError: If the tables do not fit the model, or no data set of one is in the other.
        """
        found = (None if whole else self._in_pieces()) or self._whole()
        found[1].report(self.column, self.context, self.targets, known_only=self.reading.skip_small)
        if not self.reading.skip_small:
            return found
        return (piece.with_known_points() for piece in found[0]), found[1]

    def _whole(self) -> tuple[Iterable[Questions], Tally]:
        columns = self.model.columns
        ids, inputs = [] if self.column is None else [self.column], columns.tables_names
        known = self.reading.complete(self.context, ids, inputs, columns.y_names)
        wanted = self.reading.complete(self.targets, ids, inputs)
        found = Questions.of(self.model, known, wanted, self.column)
        asked = {question.name for question in found.asked}
        found.others.add([name for name in dict.fromkeys(ids_of(known, self.column)) if name not in asked])
        return [found], Tally.of(columns, [found])

    def _in_pieces(self) -> tuple[Iterable[Questions], Tally] | None:
        if self.column is None or not any(has_more_rows(path, ROWS) for path in (self.context, self.targets)):
            return None
        for key in (_as_numbers, _as_text):
            pieces = Joined(self, key)
            try:
                tally = Tally.of(self.model.columns, pieces)
            except NotInOrder:
                continue
            pieces.report()
            return pieces, tally
        say(
            f"note: both tables are read into memory whole, since they are not sorted by {self.column!r}; sorted "
            "tables are read in pieces"
        )
        return None


@dataclass(eq=False)
class Joined:
    """The questions of two sorted tables, in pieces; each walk reads the files anew.

    Attributes:
        asking: What is asked.
        key: From names to what they are sorted by.
        left_out: The rows that the last walk has left out.
        marks: The decimal marks that it has met.
    """

    asking: Asking
    key: Key
    left_out: dict[str, Few] = field(default_factory=dict)
    marks: dict[str, set[str]] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Questions]:
        self.left_out, self.marks = {}, {}
        asking = self.asking
        known = _Known(self._runs(asking.context, asking.model.columns.y_names))
        nothing = next(asking.reading.pieces(asking.context, 1)).take(np.arange(0))
        for wanted in _whole_sets(self._runs(asking.targets, [])):
            mine = known.of(wanted, nothing)
            found = Questions.of(asking.model, mine, wanted.table, asking.column)
            yield replace(found, points=len(mine) + known.passed_points, others=known.passed)
        known.pass_all()
        yield Questions(asking.model, nothing.frame, [], known.passed_points, known.passed)

    def report(self) -> None:
        """Say what the last walk has left out.

        Raises:
            ValueError: If it has met points and commas as decimal marks.
        """
        for what, rows in self.left_out.items():
            note_left_out(what, rows)
        for where, marks in self.marks.items():
            if len(marks) > 1:
                raise ValueError(
                    f"{where}: got decimal commas in some rows and none in many others, expected one decimal mark; if "
                    "it is the comma, give bnnp.tasks.read_table(path, decimal=',')"
                )

    def _runs(self, path: Path, outputs: list[str]) -> Iterator[Runs]:
        """The rows of a file that are kept, with where data sets begin."""
        asking, last = self.asking, None
        column, inputs = str(asking.column), asking.model.columns.tables_names
        gone = self.left_out.setdefault(asking.reading.left_out_of(path, outputs), Few())
        for table in asking.reading.pieces(path, ROWS):
            kept = asking.reading.kept(table, [column], inputs, outputs)
            gone.add(rows_gone(table, kept))
            for names in filter(None, (inputs, outputs)):
                where = f"{path}: columns {', '.join(names)}"
                self.marks.setdefault(where, set()).add(kept.marked(names).decimal or ".")
            if len(kept):
                some = Runs.of(kept, column, self.key)
                if last is not None and some.keys[0] < last:
                    raise NotInOrder
                last = some.keys[-1]
                yield some


@dataclass(frozen=True)
class Runs:
    """Rows of a sorted table, and where data sets begin in them.

    Attributes:
        table: The rows.
        names: The names of the data sets.
        keys: What they are sorted by, ascending.
        starts: The first row of each, and the number of rows.
    """

    table: Table
    names: list[str]
    keys: list[Any]
    starts: np.ndarray

    @staticmethod
    def of(table: Table, column: str, key: Key) -> Runs:
        """Find where data sets begin.

        Raises:
            NotInOrder: If they are not in ascending order.
        """
        ids = table.names(column)
        starts = np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1])
        keys = key(ids[starts])
        if any(after <= before for before, after in itertools.pairwise(keys)):
            raise NotInOrder
        return Runs(table, ids[starts].tolist(), keys, np.append(starts, len(table)))

    def before(self, count: int) -> Runs:
        """The first data sets."""
        rows = np.arange(self.starts[count])
        return Runs(self.table.take(rows), self.names[:count], self.keys[:count], self.starts[: count + 1])

    def after(self, count: int) -> Runs:
        """All data sets but the first ones."""
        first = self.starts[count]
        rows = np.arange(first, self.starts[-1])
        return Runs(self.table.take(rows), self.names[count:], self.keys[count:], self.starts[count:] - first)

    def followed_by(self, other: Runs) -> Runs:
        """These rows and the next ones, which may begin with more rows of the last data set."""
        same = int(self.keys[-1] == other.keys[0])
        starts = np.concatenate([self.starts[:-1], self.starts[-1] + other.starts[same:]])
        both = (_stacked([self.table, other.table]), self.names + other.names[same:], self.keys + other.keys[same:])
        return Runs(*both, starts)


class _Known:
    """The known points, of which each call takes those of the next data sets that are asked for."""

    def __init__(self, runs: Iterable[Runs]):
        self._sets = _whole_sets(runs)
        self._ahead: Runs | None = None
        self.passed, self.passed_points = Few(), 0

    def of(self, wanted: Runs, nothing: Table) -> Table:
        """The known points of some data sets; those of others before them are passed and counted."""
        self.passed, self.passed_points = Few(), 0
        names, found = set(wanted.names), [nothing]
        while (some := self._next()) is not None:
            at = bisect_right(some.keys, wanted.keys[-1])
            found.append(self._chosen(some.before(at), names))
            if at < len(some.keys):
                self._ahead = some.after(at)
                break
        return _stacked(found)

    def pass_all(self) -> None:
        """Count what is left."""
        self.passed, self.passed_points = Few(), 0
        while (some := self._next()) is not None:
            self._chosen(some, set())

    def _next(self) -> Runs | None:
        ahead, self._ahead = self._ahead, None
        return next(self._sets, None) if ahead is None else ahead

    def _chosen(self, some: Runs, names: set[str]) -> Table:
        chosen = np.array([name in names for name in some.names], dtype=bool)
        rows = np.repeat(chosen, np.diff(some.starts))
        self.passed.add([name for name in some.names if name not in names])
        self.passed_points += int((~rows).sum())
        return some.table.take(np.flatnonzero(rows))


def _whole_sets(runs: Iterable[Runs]) -> Iterator[Runs]:
    """The same rows in pieces that end where a data set ends."""
    held: Runs | None = None
    for some in runs:
        held = some if held is None else held.followed_by(some)
        if len(held.keys) > 1:
            yield held.before(len(held.keys) - 1)
            held = held.after(len(held.keys) - 1)
    if held is not None:
        yield held


def _stacked(tables: list[Table]) -> Table:
    """The rows of tables with the same columns."""
    import pandas as pd

    filled = [table for table in tables if len(table)] or tables[:1]
    if len(filled) == 1:
        return filled[0]
    rows = np.concatenate([table.rows for table in filled])
    return replace(filled[0], frame=pd.concat([table.frame for table in filled]), rows=rows)


def _as_numbers(names: np.ndarray) -> list[Any]:
    values = as_numbers(names, ".")
    if not np.isfinite(values).all():
        raise NotInOrder
    return list(zip(values.tolist(), names.tolist(), strict=True))


def _as_text(names: np.ndarray) -> list[Any]:
    return names.tolist()
