"""How training is judged: by tasks that were left out, each divided into known and unknown points several times."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from bnnp._core.columns import Columns
from bnnp._core.random import child
from bnnp.evaluation.scores import Scores, evaluate
from bnnp.models.base import MetaLearner
from bnnp.prediction import ExtrapolationWarning
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.split import ContextSize, random_split
from bnnp.tasks.task import Split, Task, stacked

LEAST_TASKS = 20
"""With fewer tasks there are none to judge training by."""
LEFT_OUT = (0.25, 64)
"""The share of the tasks that is left out to judge training by, and the largest number of them."""
DIVISIONS, SPLITS = 4, 64
"""How often each left-out task is divided into known and unknown points: the first number of times, or fewer so that
there are at most as many divisions as the second, and each task at least once."""


@dataclass(frozen=True, eq=False)
class Judgement:
    """How well a model predicts left-out tasks.

    Attributes:
        known: Scores of predictions from known points.
        alone: Scores of predictions without known points, which are those of the prior.
    """

    known: Scores
    alone: Scores

    def worth(self) -> float:
        """Log-density per point, averaged over both: a prior is used by itself too, and should be right by itself."""
        return (self.known["marginal_lppd"] + self.alone["marginal_lppd"]) / 2


@dataclass(frozen=True)
class LeftOut:
    """Tasks that were left out of the training.

    Attributes:
        splits: All divisions of the first task into known and unknown points, then those of the second, ...
        count: The number of tasks.
    """

    splits: list[Split]
    count: int

    @classmethod
    def of(cls, tasks: Sequence[Task], size: ContextSize, generator: torch.Generator) -> "LeftOut":
        """Divide tasks at random."""
        times = max(1, min(DIVISIONS, SPLITS // max(1, len(tasks))))
        return cls([random_split(task, size, generator) for task in tasks for _ in range(times)], len(tasks))

    def once(self) -> list[Split]:
        """One division of each task."""
        return self.splits[:: max(1, len(self.splits) // max(1, self.count))]

    def without_contexts(self) -> list[Split]:
        """One division of each task, of which no point is known."""
        return [Split(split.context.take(torch.arange(0)), split.target) for split in self.once()]

    def judge(self, model: MetaLearner, num_samples: int | None = None) -> Judgement:
        """Predict all tasks. Samples of the hidden layers are as many as each task needs, unless they are given."""
        known, alone = (scores_of(model, splits, num_samples) for splits in (self.splits, self.without_contexts()))
        return Judgement(known, alone)

    def gain(self, found: Judgement, before: Judgement, *, of_inference: bool = False) -> tuple[float, float]:
        """Mean gain in worth, and its standard error over tasks; of inference alone, from known points alone."""
        gains = self._by_task(found) - self._by_task(before)
        gains = gains[0] if of_inference else gains.mean(0)
        return float(gains.mean()), float(gains.std(ddof=1) / len(gains) ** 0.5) if len(gains) > 1 else np.inf

    def _by_task(self, judgement: Judgement) -> np.ndarray:
        """Log-density per point of every task, from known points and without them."""
        return np.stack([_densities(scores, self.count) for scores in (judgement.known, judgement.alone)])


def divided(tasks: TaskSource, size: ContextSize, seed: int) -> tuple[TaskSource, LeftOut]:
    """Tasks to learn from, and tasks to judge by: fresh ones from a source, some of a collection."""
    generator = child(seed, 9)
    if not isinstance(tasks, Collection):
        return tasks, LeftOut.of(tasks.drawn(LEFT_OUT[1], generator), size, generator)
    large = [task for task in range(len(tasks)) if len(tasks[task]) > 1]
    if len(tasks) < LEAST_TASKS or len(large) < 2:
        return tasks, LeftOut([], 0)
    chosen = set(
        np.array(large)[torch.randperm(len(large), generator=generator)].tolist()[
            : min(LEFT_OUT[1], int(LEFT_OUT[0] * len(large)))
        ]
    )
    rest = tuple(task for index, task in enumerate(tasks.tasks) if index not in chosen)
    columns = tasks.columns or Columns.of(*stacked(tasks.tasks), tasks.x_names, tasks.y_names, positive=tasks.positive)
    left_out = [tasks[index] for index in sorted(chosen)]
    return replace(tasks, tasks=rest, columns=columns), LeftOut.of(left_out, size, generator)


def scores_of(model: MetaLearner, left_out: Sequence[Split], num_samples: int | None = None) -> Scores:
    """Scores of left-out tasks, some of whose inputs may lie outside the range of the others.

    Args:
        model: The model.
        left_out: The tasks.
        num_samples: Samples of the hidden layers; by default as many as each task needs.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        return evaluate(model, left_out, num_samples=num_samples, seed=0)


def _densities(scores: Scores, count: int) -> np.ndarray:
    """Marginal log-densities of tasks, each the mean of its divisions; the column's name says how it was estimated."""
    frame = scores.per_task
    values = frame[[name for name in frame if name.startswith("marginal_lppd")]].to_numpy()
    return values[:, 0].reshape(count, -1).mean(1)
