"""What a model is asked by tables: the known points and the targets of every data set, and the table of answers."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from bnnp._core.columns import Columns
from bnnp._core.show import Few
from bnnp.models import AmortisedModel, MetaLearner
from bnnp.prediction import ExtrapolationWarning
from bnnp.prediction.base import Predictive
from bnnp.prediction.frames import prediction_columns, prediction_names
from bnnp.tasks.tables import Table, outputs_of

if TYPE_CHECKING:
    import pandas as pd

FROM_PRIOR, OUTSIDE = "from_prior", "outside_training"
"""Columns that say of every row whether its data set had no known points, and whether it is far from the training's."""
WINDOW = 256
"""Data sets that are answered at a time, where there are many."""


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
        points: Known points, of other data sets too.
        others: The names of data sets that have known points and are not asked for.
    """

    model: MetaLearner
    targets: pd.DataFrame
    asked: list[Question]
    points: int
    others: Few

    @staticmethod
    def of(model: MetaLearner, known: Table, wanted: Table, column: str | None) -> Questions:
        """The questions of two tables, data sets told apart by a column."""
        columns, inputs = model.columns, model.columns.tables_names
        _check_free(model, wanted)
        x_new, strange = checked_inputs(wanted, columns)
        known_x, known_y = _known_numbers(model, known)
        names, rows = _places(ids_of(wanted, column))
        mine = _places(ids_of(known, column), names)[1]
        asked = [
            Question(name, known_x[here], known_y[here], x_new[there], there, strange[there])
            for name, here, there in zip(names, mine, rows, strict=True)
        ]
        frame = wanted.frame.reset_index(drop=True)
        numeric = [(name, at) for at, name in enumerate(columns.x_names) if name in inputs]
        frame = frame.assign(**{name: x_new[:, at] for name, at in numeric})
        return Questions(model, frame, asked, len(known), Few())

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
            part[OUTSIDE] = np.concatenate([self.outside(question) for question in self.asked])
        return self.targets.join(part, how="inner")

    def outside(self, question: Question) -> np.ndarray:
        """Which inputs of a question are outside the range of the training's, or strange to it."""
        return self.model.columns.outside(question.x_new).numpy() | question.strange

    def with_known_points(self) -> Questions:
        """The questions without those of data sets that have no known points."""
        return replace(self, asked=[question for question in self.asked if len(question.x)])


def answers(model: MetaLearner, asked: Sequence[Question], samples: int | None, seed: int) -> list[np.ndarray]:
    """The numbers (points, columns) that a table has of every prediction; `prediction_names` has the columns.

    Args:
        model: The model.
        asked: The questions.
        samples: Weight samples; the model's own choice if None.
        seed: The seed of the draws. No number depends on the other questions.
    """
    choices = {"seed": seed} if samples is None else {"seed": seed, "num_samples": samples}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # there is a column for it
        if isinstance(model, AmortisedModel):
            posts = model.condition_many([(q.x, q.y) for q in asked], **choices)
            found = posts.predict([q.x_new for q in asked])
        else:
            found = [model.condition(q.x, q.y, **choices).predict(q.x_new) for q in asked]
    return [prediction_numbers(one) for one in found]


def prediction_numbers(predictive: Predictive) -> np.ndarray:
    """The numbers (points, columns) that a table has of a prediction; `prediction_names` has the columns."""
    return np.stack(list(prediction_columns(predictive).values()), axis=1)


def checked_inputs(table: Table, columns: Columns) -> tuple[np.ndarray, np.ndarray]:
    """The inputs of a table as numbers that the model can hold.

    Args:
        table: The table.
        columns: The model's columns.

    Returns:
        The numbers (rows, inputs), and which rows have an empty cell or an unknown category, as none had in training.

    Raises:
        ValueError: If a cell is not of the kind that its column had in training.
    """
    marked = table.marked(columns.tables_names)
    if columns.encodings is None:
        numbers, strange = marked.numbers(columns.x_names), np.zeros(len(table), dtype=bool)
    else:
        numbers, strange = columns.encodings.numbers(marked.column)
    _check_size(table, numbers, columns, "x")
    return numbers, strange


def checked_outputs(table: Table, columns: Columns, *, real_valued: bool) -> np.ndarray:
    """The outputs of a table as numbers that the model can hold, labels as 0, 1, ...

    Args:
        table: The table.
        columns: The model's columns.
        real_valued: Whether outputs are no labels.

    Raises:
        ValueError: If a cell is neither a finite number nor a label of training.
    """
    numbers = outputs_of(table, columns.y_names, columns.encodings)
    if real_valued:
        _check_size(table, numbers, columns, "y")
    return numbers


def _check_size(table: Table, numbers: np.ndarray, columns: Columns, which: str) -> None:
    columns.check_size(torch.from_numpy(numbers), which, table.where.removesuffix(": "), table.rows.tolist())


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


def ids_of(table: Table, column: str | None) -> np.ndarray:
    """The name of every row's data set; empty where there is one data set."""
    return np.full(len(table), "", dtype=object) if column is None else table.names(column)


def _places(ids: np.ndarray, names: np.ndarray | None = None) -> tuple[np.ndarray, list[np.ndarray]]:
    """The names in the order in which they first appear, or those that are given, and the places of each."""
    import pandas as pd

    names = np.asarray(pd.unique(ids)) if names is None else names
    codes = pd.Index(names).get_indexer(pd.Index(ids))
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names) + 1))
    return names, [order[start:stop] for start, stop in itertools.pairwise(ends)]


def common_column(model: MetaLearner, known: Table, wanted: Table, task: str | None) -> str | None:
    """The column that tells data sets apart: the one that was named, or that of training where both tables have it.

    Raises:
        ValueError: If only one table has it, or another column that the model needs is missing.
    """
    inputs = model.columns.tables_names
    known.check_columns([*inputs, *model.columns.y_names])
    wanted.check_columns(inputs)
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
