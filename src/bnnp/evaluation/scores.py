"""Scores of predictions: log densities, errors and calibration, each with its standard error over tasks."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from bnnp._core.checks import check_count, check_positive, check_samples
from bnnp._core.progress import ProgressBar
from bnnp._core.random import Seed, as_integer, child
from bnnp._core.show import Shown, listed
from bnnp._core.threads import in_parallel
from bnnp.evaluation.score import score, with_noise
from bnnp.prediction.base import Predictive
from bnnp.prediction.mixture import MixturePredictive
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.split import ContextCount, ContextSize, context_size, random_split
from bnnp.tasks.task import Split

if TYPE_CHECKING:
    import pandas as pd
_SPLIT, _CONDITION, _OBSERVE = 1, 2, 3
SHARE = (0.1, 0.5)
"""Range of the share of a task's points that is context, where nothing else is said."""


class Predictor(Protocol):
    """Anything that predicts at new inputs."""

    def predict(self, x: Any) -> Predictive: ...


class AnyModel(Protocol):
    """Anything that predicts from a context: a model, a neural process, the oracle."""

    def condition(self, x: Any, y: Any, *, num_samples: int = ..., seed: Seed) -> Predictor: ...


@dataclass(frozen=True, eq=False, repr=False)
class Scores(Shown):
    """Scores of every task, with their means and standard errors. `scores["mae"]` is a mean over tasks.

    The names of log predictive densities say how they are estimated. `joint_lppd@1000` is from 1000 weight samples: its
    bias depends on this number, so compare only values with the same number. `joint_lppd@20 integrated` integrates the
    last layer given 20 samples of the hidden layers, `joint_lppd@integrated` given as many as each task needs, and
    `joint_lppd@exact` is exact. `scores["joint_lppd"]` finds each of them.

    Args:
        per_task: A table with one row per task and one column per score.

    Example:
        >>> import pandas as pd
        >>> scores = bnnp.Scores(pd.DataFrame({"mae": [0.25, 0.75]}, index=["first", "second"]))
        >>> scores["mae"], scores.standard_error("mae")
        (0.5, 0.25)
        >>> scores.names()
        ['mae']
    """

    per_task: "pd.DataFrame"

    def __getitem__(self, name: str) -> float:
        """The mean of a score over tasks."""
        return float(self.values(name).mean())

    def standard_error(self, name: str) -> float:
        """The standard error of a score's mean over tasks; NaN for a single task."""
        values = self.values(name)
        return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan

    def names(self) -> list[str]:
        """The names of all scores."""
        return [str(name) for name in self.per_task.columns]

    def table(self) -> "pd.DataFrame":
        """One row per score: mean and standard error over tasks."""
        import pandas as pd

        rows = {name: {"mean": self[name], "standard error": self.standard_error(name)} for name in self.names()}
        return pd.DataFrame.from_dict(rows, orient="index")

    def to_dict(self) -> dict[str, Any]:
        """All scores as plain values for JSON: None stands for a number that is not finite."""
        means = {
            name: {"mean": _plain(self[name]), "standard_error": _plain(self.standard_error(name))}
            for name in self.names()
        }
        per_task = {name: [_plain(value) for value in self.values(name)] for name in self.names()}
        labels = [str(label) for label in self.per_task.index]
        return {"tasks": len(labels), "scores": means, "task": labels, "per_task": per_task}

    def to_json(self) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def __str__(self) -> str:
        return self.table().to_string(float_format=lambda value: f"{value:.4f}")

    def values(self, name: str) -> np.ndarray:
        """One value of a score per task."""
        return np.asarray(self.per_task[self._column(name)], dtype=np.float64)

    def _column(self, name: str) -> str:
        for column in self.names():
            if column == name or column.split("@")[0] == name:
                return column
        raise KeyError(f"{name}: expected one of {', '.join(self.names())}")

    def _described(self) -> dict[str, object]:
        scores = {name: f"{self[name]:.4f} ± {self.standard_error(name):.4f}" for name in self.names()}
        return {"tasks": len(self.per_task), **scores}


def evaluate(
    model: AnyModel,
    tasks: TaskSource | Sequence[Split],
    *,
    num_samples: int | None = None,
    num_tasks: int = 64,
    context_share: float | tuple[float, float] | ContextSize = SHARE,
    context_count: int | tuple[int, int] | ContextCount | None = None,
    noise: float | None = None,
    progress: bool = False,
    seed: Seed = 0,
) -> Scores:
    """Score a model's predictions of the targets of test tasks, in the user's units.

    Args:
        model: A model, a neural process, or the oracle.
        tasks: A source, of which `num_tasks` are drawn (all of a collection) and split at random, or ready splits.
        num_samples: Samples of a task's posterior; by default as many as the model chooses.
        num_tasks: Number of tasks that are drawn from a source.
        context_share: Range of the share of a task's points that is given as context.
        context_count: Range of the number of context points, instead of their share.
        noise: Score as if the observation noise had this standard deviation (Gaussian likelihood only).
        progress: Whether to show a progress bar, on standard error.
        seed: Seed of splits, posterior samples and observations.

    Returns:
        The scores of every task, their means and standard errors.

    Raises:
        ValueError: If a number is not positive, there are no tasks, or `noise` does not fit the likelihood.

    Example:
        >>> scores = bnnp.evaluate(model, tasks, num_samples=20, seed=0)
        >>> len(scores.per_task)
        6
        >>> scores.names()[3:6]
        ['mae', 'rmse', 'crps']
    """
    import pandas as pd

    if not hasattr(model, "condition"):
        raise ValueError(f"model: got {model!r}, expected a model, as bnnp.BNNP(in_size=1, out_size=1)")
    if num_samples is not None:
        check_samples(num_samples)
    if noise is not None:
        check_positive("noise", noise, "as in 0.1")
    check_count("num_tasks", num_tasks, "whole number of tasks, as in 64")
    number = as_integer(seed)
    _check_columns(model, tasks)
    splits = _splits(tasks, num_tasks, context_share, context_count, child(number, _SPLIT))
    with ProgressBar(len(splits), enabled=progress, label="data sets") as bar:

        def score_one(index: int) -> dict[str, float]:
            scores = _score_one(model, splits[index], num_samples, noise, (number, index))
            bar.advance()
            return scores

        rows = in_parallel(score_one, range(len(splits)))
    return Scores(pd.DataFrame(rows, index=[split.target.name or str(i) for i, split in enumerate(splits)]))


def _check_columns(model: Any, tasks: Any) -> None:
    """Refuse tasks of a table whose columns, categories or classes are not those of the model's training."""
    columns, encodings = getattr(model, "columns", None), getattr(tasks, "encodings", None)
    if columns is None or encodings is None:
        return
    if encodings.classes and model.likelihood.real_valued:
        raise ValueError(f"tasks: got the labels {listed(encodings.classes)}, expected numbers as in training")
    if columns.encodings is None:
        return
    for what, given, trained in (
        ("x", encodings.names, columns.x_names),
        ("y", list(tasks.y_names), columns.y_names),
        ("y", list(encodings.classes), list(columns.encodings.classes)),
    ):
        if list(given) != list(trained):
            raise ValueError(
                f"{what}: got {listed(given)}, expected {listed(trained)} as in the model's training; read the table "
                "by bnnp.tasks.from_table(..., like=model)"
            )


def drawn_splits(tasks: TaskSource, num_tasks: int, seed: Seed = 0) -> Sequence[Split]:
    """The splits on which `evaluate` scores a model, where nothing is said of their contexts.

    Args:
        tasks: A source, of which tasks are drawn (all of a collection) and split at random, or its fixed splits.
        num_tasks: Number of tasks that are drawn.
        seed: Seed of the tasks and their splits, as given to `evaluate`.
    """
    return _splits(tasks, num_tasks, SHARE, None, child(as_integer(seed), _SPLIT))


def _score_one(
    model: AnyModel, split: Split, num_samples: int | None, noise: float | None, keys: tuple[int, int]
) -> dict[str, float]:
    """All scores of one task. `keys` are the seed and the number of the task."""
    number, index = keys
    choices = {} if num_samples is None else {"num_samples": num_samples}
    posterior = model.condition(split.context.x, split.context.y, seed=child(number, _CONDITION, index), **choices)
    predictive = posterior.predict(split.target.x)
    if noise is not None:
        predictive = with_noise(predictive, noise)
    by_itself = num_samples is None and isinstance(predictive, MixturePredictive) and not predictive.components.exact
    estimator = "integrated" if by_itself else None
    return score(predictive, split.target.y, seed=child(number, _OBSERVE, index), estimator=estimator)


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _splits(
    tasks: TaskSource | Sequence[Split], num_tasks: int, share: Any, count: Any, generator: torch.Generator
) -> Sequence[Split]:
    if not isinstance(tasks, TaskSource):
        if not isinstance(tasks, Sequence) or not all(isinstance(split, Split) for split in tasks):
            raise ValueError("tasks: expected a task source, or a list of bnnp.tasks.Split(context, target)")
        if len(tasks) == 0:
            raise ValueError("tasks: got none, expected at least one")
        empty = [split.target.name for split in tasks if len(split.target) == 0]
        if empty:
            raise ValueError(f"task {empty[0]!r}: got no target, expected at least one point to predict")
        return tasks
    if isinstance(tasks, Collection):
        if tasks.splits:
            return tasks.splits
        drawn = list(tasks.tasks)
    else:
        drawn = tasks.drawn(num_tasks, generator)
    size = context_size(share, count)
    return [random_split(task, size, generator) for task in drawn]
