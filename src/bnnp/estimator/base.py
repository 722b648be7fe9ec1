"""What the estimators share: a prior learned from the data sets of a table, and what is known of each data set."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from bnnp._core.checks import check_count, check_samples
from bnnp._core.frames import as_pandas, is_frame, like
from bnnp.estimator import single
from bnnp.estimator.reading import TASK, as_table
from bnnp.inference import Effort, infer_many
from bnnp.likelihoods.base import Likelihood
from bnnp.models.base import MetaLearner
from bnnp.prediction import ExtrapolationWarning
from bnnp.prediction.base import Predictive
from bnnp.recipe import default_models, learn
from bnnp.tasks.source import Collection
from bnnp.tasks.tables import Table, from_table
from bnnp.tasks.task import Task
from bnnp.training.prepare import start_prior

FROM_PRIOR, OUTSIDE = "from_prior", "outside_training"
STEPS = 150
"""Steps of the inference of labels, where no inference networks were trained."""


@dataclass(frozen=True, eq=False)
class Answer:
    """The predictions of one data set's rows."""

    rows: np.ndarray
    predictive: Predictive
    known: int
    outside: np.ndarray


class TableLearner(BaseEstimator, abc.ABC):
    """The base of `BNNPRegressor` and `BNNPClassifier`."""

    _classes = False

    def __init__(
        self,
        task: str | int | None = None,
        *,
        hidden: Sequence[int] = (64, 64),
        prior: str = "zoo:gp",
        minutes: float = 10.0,
        num_samples: int | None = None,
        random_state: Any = None,
    ):
        self.task = task
        self.hidden = hidden
        self.prior = prior
        self.minutes = minutes
        self.num_samples = num_samples
        self.random_state = random_state

    def _fit(self, X: Any, y: Any) -> None:  # noqa: N803
        """Learn the prior, and keep the points of every data set."""
        if self.num_samples is not None:
            check_samples(self.num_samples)
        table = as_table(self, X, y, task=self.task, reset=True, classes=self._classes)
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        found = self._tasks(table, table.frame.columns[-1], None)
        self._check_sizes(found)
        self.model_, self.trained_ = self._learned(found)
        self.known_ = {task.name: task for task in found.tasks}
        self._kept: list[Any] = []

    def observe(self, X: Any, y: Any) -> Any:  # noqa: N803
        """Take in known points of data sets, new ones or those of training. The prior stays as it is.

        Args:
            X: Inputs with the column of tasks, as in `fit`.
            y: Outputs.

        Returns:
            The estimator.

        Raises:
            ValueError: If the data are not of the kind that `fit` had.
        """
        check_is_fitted(self)
        table = as_table(self, X, y, task=self.task, reset=False, classes=self._classes)
        for task in self._tasks(table, table.frame.columns[-1], self.model_).tasks:
            before = self.known_.get(task.name)
            joined = task if before is None else _joined(before, task)
            self.known_ = {**self.known_, task.name: joined}
        self._kept = []
        return self

    def sample_functions(self, X: Any, n_samples: int = 10, random_state: Any = 0) -> np.ndarray:  # noqa: N803
        """Draw whole functions of every data set from its posterior, without observation noise.

        Args:
            X: Inputs with the column of tasks, as in `fit`.
            n_samples: Number of functions.
            random_state: Seed of the choice.

        Returns:
            An array (functions, rows), or (functions, rows, classes). The rows of one data set are values of one
            function in every function drawn.

        Raises:
            ValueError: If the data are not of the kind that `fit` had.
        """
        check_count("n_samples", n_samples, "whole number of functions, as in 10")
        random = check_random_state(random_state)
        parts, order = [], []
        for answer in self._answers(X):
            drawn = answer.predictive.samples
            parts.append(drawn[random.randint(len(drawn), size=n_samples)])
            order.append(answer.rows)
        values = np.concatenate(parts, axis=1)[:, np.argsort(np.concatenate(order))]
        return values if self._classes else values[..., 0]

    def predict_frame(self, X: Any, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> Any:  # noqa: N803
        """Predict, as a frame of the same kind as `X`, with its columns and those of the prediction.

        Args:
            X: Inputs with the column of tasks, as in `fit`; further columns of a frame are kept.
            quantiles: Levels of the quantiles of a new observation; classes have none.

        Returns:
            The frame. The column from_prior marks data sets without known points, and outside_training marks inputs
            outside the range of the training inputs, empty cells and categories that training did not have.

        Raises:
            ValueError: If the data are not of the kind that `fit` had.
        """
        check_is_fitted(self)
        whole = as_pandas(X).reset_index(drop=True) if is_frame(X) else None
        names = [] if whole is None else [name for name in getattr(self, "feature_names_in_", whole) if name in whole]
        table = self._asked(X if whole is None else whole[names])
        self._check_free(whole, quantiles)
        answers = self._answers_of(table)
        given = table.frame.drop(columns=[TASK] if self.task is None else []) if whole is None else whole
        columns = {
            **self._columns(answers, quantiles),
            FROM_PRIOR: lambda one: np.full(len(one.rows), one.known == 0),
            OUTSIDE: lambda one: one.outside,
        }
        own = {name: in_rows(answers, value) for name, value in columns.items()}
        return like(pd.concat([given, pd.DataFrame(own, index=given.index)], axis=1), X)

    def _check_free(self, whole: pd.DataFrame | None, quantiles: Sequence[float]) -> None:
        """Refuse a frame with a column that the prediction would have too, and two columns of one name."""
        names = [*([] if whole is None else whole.columns), *self._columns([], quantiles), FROM_PRIOR, OUTSIDE]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"X: got {twice[0]!r}, which predictions would have too; rename or remove this column")

    @abc.abstractmethod
    def _columns(self, answers: Sequence[Answer], quantiles: Sequence[float]) -> dict[str, Any]:
        """The columns of a prediction: functions of an answer by name."""

    @abc.abstractmethod
    def _likelihood(self, tasks: Collection) -> tuple[Likelihood, int]:
        """The likelihood, and the number of the network's outputs."""

    def _asked(self, X: Any) -> Table:  # noqa: N803
        check_is_fitted(self)
        return as_table(self, X, task=self.task, reset=False, classes=self._classes)

    def _answers(self, X: Any) -> list[Answer]:  # noqa: N803
        answers = self._answers_of(self._asked(X))
        count = sum(int(answer.outside.sum()) for answer in answers)
        if count:
            warnings.warn(
                f"X: {count} rows lie outside the range of the training inputs, or have cells unlike any of training; "
                f"predictions there may be wrong: `predict_frame` marks them in the column {OUTSIDE}",
                ExtrapolationWarning,
                stacklevel=3,
            )
        return answers

    def _answers_of(self, table: Table) -> list[Answer]:
        """Predictions of every data set in a table."""
        if len(table) == 0:
            raise ValueError("X: got no rows, expected at least 1 sample")
        columns = self.model_.columns
        assert columns.encodings is not None
        x, strange = columns.encodings.numbers(table.marked(columns.tables_names).column)
        columns.check_size(torch.from_numpy(x), "x", "X")
        codes, names = pd.factorize(table.names(self._task_column()))
        rows = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
        known = [self._known_of(name) for name in names]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)
            predictives = self._predicted(known, [x[some] for some in rows])
        return [
            Answer(some, predictive, len(task), columns.outside(x[some]).numpy() | strange[some])
            for some, predictive, task in zip(rows, predictives, known, strict=True)
        ]

    def _known_of(self, name: str) -> Task:
        """The known points of a data set."""
        nothing = Task(torch.zeros(0, self.model_.in_size), torch.zeros(0, self.model_.y_size), name)
        return self.known_.get(name, nothing)

    def _predicted(self, known: Sequence[Task], inputs: Sequence[np.ndarray]) -> list[Predictive]:
        """One prediction per data set, given its known points."""
        if self.task is None:  # one data set, whose posterior is kept
            if not self._kept:
                self._kept.append(self._posterior(known[0]))
            return [self._kept[0].predict(inputs[0])]
        if self.trained_ or self.model_.likelihood.real_valued:
            choices = {"num_samples": self.num_samples, "seed": self.seed_}
            return self.model_.condition_many(known, **choices).predict(inputs)
        return [self._posterior(task).predict(x) for task, x in zip(known, inputs, strict=True)]

    def _posterior(self, known: Task) -> Any:
        """The posterior of a data set; of labels by fitting, where no inference networks were trained."""
        if self.trained_ or self.model_.likelihood.real_valued or not len(known):
            return self.model_.condition(known.x, known.y, num_samples=self.num_samples, seed=self.seed_)
        choices: dict[str, Any] = {} if self.num_samples is None else {"num_samples": self.num_samples}
        effort = Effort(steps=STEPS)
        return infer_many(self.model_, [known], method="mfvi", effort=effort, seed=self.seed_, **choices)[0]

    def _task_column(self) -> str:
        return TASK if self.task is None else f"x{self.task}" if isinstance(self.task, int) else self.task

    def _tasks(self, table: Table, output: str, model: MetaLearner | None) -> Collection:
        task = self._task_column()
        inputs = [str(name) for name in table.frame.columns if name not in (task, output)]
        if not inputs:
            raise ValueError(f"X: got no column beside {task!r}, expected at least one input")
        return from_table(table, task=task, x=inputs, y=output, min_points=1, like=model)

    def _check_sizes(self, found: Collection) -> None:
        if max(len(task) for task in found.tasks) < 2:
            raise ValueError(
                f"X: got 1 sample in each of {len(found)} data sets, expected at least one data set of 2 or more"
            )

    def _learned(self, found: Collection) -> tuple[Any, bool]:
        """The model, and whether its inference networks were trained."""
        tasks = replace(found, tasks=tuple(task for task in found.tasks if len(task) > 1))
        likelihood, outputs = self._likelihood(tasks)
        if self.task is None and tasks.in_size == 1 and likelihood.real_valued:
            return single.fitted(self.prior, tasks, self.seed_), True
        models = default_models(tasks.in_size, outputs, self.hidden, likelihood, seed=self.seed_)
        if self.minutes == 0:
            start_prior(models[0], tasks, "spread", self.seed_)
            return models[0], False
        learned = learn(models, tasks, minutes=self.minutes, progress=False, seed=self.seed_)
        self.decisions_ = learned.decisions
        return learned.model, bool(learned.history.steps)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _joined(one: Task, other: Task) -> Task:
    return Task(torch.cat([one.x, other.x]), torch.cat([one.y, other.y]), one.name)


def in_rows(answers: Sequence[Answer], value: Any) -> np.ndarray:
    """Values of all answers, in the order of the rows."""
    order = np.argsort(np.concatenate([answer.rows for answer in answers]))
    return np.concatenate([np.asarray(value(answer)) for answer in answers])[order]
