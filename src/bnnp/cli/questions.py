"""What `bnnp predict` and `bnnp infer` are asked: the known points and the targets of every data set."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bnnp._core.show import listed
from bnnp.cli.messages import note_left_out, say
from bnnp.cli.reading import Reading, checked_inputs, checked_outputs
from bnnp.models import MetaLearner
from bnnp.prediction.base import Predictive
from bnnp.prediction.frames import prediction_columns, prediction_names
from bnnp.tasks.tables import Table

if TYPE_CHECKING:
    import pandas as pd

FROM_PRIOR, OUTSIDE = "from_prior", "outside_training"
"""Columns that say of every row whether its data set had no known points, and whether it is far from the training's."""


@dataclass(frozen=True, eq=False)
class Question:
    """A data set's known points, the inputs to predict at, and their rows in the table of all targets."""

    name: str
    x: np.ndarray
    y: np.ndarray
    x_new: np.ndarray
    rows: np.ndarray
    strange: np.ndarray
    """Which rows have an empty cell or an unknown category, as none had in training."""


@dataclass(frozen=True, eq=False)
class Questions:
    """All data sets to predict.

    Attributes:
        model: The model that is asked.
        targets: The table of targets, with inputs as numbers.
        asked: One question per data set.
    """

    model: MetaLearner
    targets: pd.DataFrame
    asked: list[Question]

    @staticmethod
    def read(model: MetaLearner, context: Path, targets: Path, task: str | None, reading: Reading) -> Questions:
        """Read the known points and the targets, and say on standard error which data sets have both.

        Raises:
            ValueError: If the tables do not fit the model, or no data set of one is in the other.
        """
        columns, both = model.columns, (reading.table(context), reading.table(targets))
        inputs = columns.tables_names
        both[0].check_columns([*inputs, *columns.y_names])
        both[1].check_columns(inputs)
        column = _task_column(model, *both, task)
        ids = [] if column is None else [column]
        known = reading.complete(context, ids, inputs, columns.y_names)
        wanted = reading.complete(targets, ids, inputs)
        if len(wanted) == 0:
            raise ValueError(f"{targets}: got no rows, expected inputs to predict at")
        _check_free(model, wanted)
        x_new, strange = checked_inputs(wanted, columns)
        known_x, known_y = _known_numbers(model, known)
        of_known, of_wanted = (_ids(table, column) for table in (known, wanted))
        names, rows = _places(of_wanted)
        mine = _places(of_known, names)[1]
        asked = [
            Question(name, known_x[here], known_y[here], x_new[there], there, strange[there])
            for name, here, there in zip(names, mine, rows, strict=True)
        ]
        frame = wanted.frame.reset_index(drop=True)
        numeric = [(name, at) for at, name in enumerate(columns.x_names) if name in inputs]
        found = Questions(model, frame.assign(**{name: x_new[:, at] for name, at in numeric}), asked)
        found._report(column, len(known), context, targets, of_known)
        return found._with_known_points() if reading.skip_small else found

    def table(self, numbers: Sequence[np.ndarray]) -> pd.DataFrame:
        """The targets with their predictions, row by row.

        Args:
            numbers: The numbers of every question, as `prediction_numbers` gives them.
        """
        import pandas as pd

        columns, likelihood = self.model.columns, self.model.likelihood
        rows = np.concatenate([question.rows for question in self.asked])
        part = pd.DataFrame(np.concatenate(numbers), index=rows, columns=prediction_names(likelihood, columns))
        part[FROM_PRIOR] = np.concatenate([np.full(len(q.rows), len(q.x) == 0) for q in self.asked])
        if columns.ranges is not None:
            part[OUTSIDE] = np.concatenate([self._outside(question) for question in self.asked])
        return self.targets.join(part, how="inner")

    def _outside(self, question: Question) -> np.ndarray:
        return self.model.columns.outside(question.x_new).numpy() | question.strange

    def _report(self, column: str | None, points: int, context: Path, targets: Path, names: np.ndarray) -> None:
        without = [question.name for question in self.asked if len(question.x) == 0]
        used = sum(len(question.x) for question in self.asked)
        if not points:
            raise ValueError(
                f"{context}: got no known point, expected at least one row; bnnp sample MODEL --at {targets} draws "
                "functions of the prior, which needs none"
            )
        if not used:
            raise ValueError(
                f"column {column!r}: got {listed(without)} in {targets} and {listed(list(dict.fromkeys(names)))} in "
                f"{context}, expected a name that is in both, as it is written"
            )
        if column is not None:
            prior = f" (predicted from the prior: {listed(without)})" if without else ""
            say(
                f"subjects by {column!r}: {len(self.asked)} asked for, {len(self.asked) - len(without)} with known "
                f"points, {len(without)} without{prior}"
            )
        say(f"known points: {used} used, {points - used} not used")
        self._report_strange()
        self._report_ranges()

    def _report_strange(self) -> None:
        count = sum(int(question.strange.sum()) for question in self.asked)
        if count:
            say(
                f"warning: {count} of {len(self.targets)} targets have an empty cell or a category that training did "
                "not have; the mean of training is taken for it"
            )

    def _report_ranges(self) -> None:
        columns = self.model.columns
        if columns.ranges is None:
            say("note: the model's file does not say which range its training inputs had")
            return
        outside = sum(int(self._outside(question).sum()) for question in self.asked)
        if outside:
            say(
                f"warning: {outside} of {len(self.targets)} targets are outside the range of the training inputs "
                f"({columns.ranges.of_inputs(columns.x_names)}); predictions there may be wrong however small their "
                f"std is: see the column {OUTSIDE}"
            )

    def _with_known_points(self) -> Questions:
        kept = [question for question in self.asked if len(question.x)]
        if not kept:
            raise ValueError("--skip-small: no data set has known points, expected at least one")
        note_left_out("subjects without known points", [q.name for q in self.asked if not len(q.x)])
        return Questions(self.model, self.targets, kept)


def prediction_numbers(predictive: Predictive) -> np.ndarray:
    """The numbers (points, columns) that a table has of a prediction; `prediction_names` has the columns."""
    return np.stack(list(prediction_columns(predictive).values()), axis=1)


def _check_free(model: MetaLearner, wanted: Table) -> None:
    """Refuse targets that already have a column of the predictions' names."""
    new = [*prediction_names(model.likelihood, model.columns), FROM_PRIOR, OUTSIDE]
    taken = [name for name in new if name in wanted.frame.columns]
    if taken:
        raise ValueError(
            f"{wanted.where}column {taken[0]!r}: the table has it already, and predictions would have it too; rename "
            "or remove it"
        )


def _known_numbers(model: MetaLearner, known: Table) -> tuple[np.ndarray, np.ndarray]:
    real_valued = model.likelihood.real_valued
    return checked_inputs(known, model.columns)[0], checked_outputs(known, model.columns, real_valued=real_valued)


def _ids(table: Table, column: str | None) -> np.ndarray:
    return np.full(len(table), "", dtype=object) if column is None else table.names(column)


def _places(ids: np.ndarray, names: np.ndarray | None = None) -> tuple[np.ndarray, list[np.ndarray]]:
    """The names in the order in which they first appear, or those that are given, and the places of each."""
    import pandas as pd

    names = np.asarray(pd.unique(ids)) if names is None else names
    codes = pd.Index(names).get_indexer(pd.Index(ids))
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return names, [order[start:stop] for start, stop in itertools.pairwise(ends)]


def _task_column(model: MetaLearner, known: Table, wanted: Table, task: str | None) -> str | None:
    """The column that tells data sets apart: the one that was named, or that of training where both tables have it."""
    trained = model.columns.task_name
    if task is not None or trained is None:
        return task
    with_it, without = (
        [t for t in (known, wanted) if (trained in t.frame.columns) == there] for there in (True, False)
    )
    if with_it and without:
        raise ValueError(
            f"{without[0].where}column {trained!r}: there is no such column, but {with_it[0].where.removesuffix(': ')} "
            "has it, and it told data sets apart in training; give it in both tables, or rename it"
        )
    return trained if with_it else None
