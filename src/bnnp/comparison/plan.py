"""Who is left out when, and what is known of them: the same for all methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bnnp._core.columns import Columns
from bnnp.tasks.source import Collection
from bnnp.tasks.task import Split, Task, stacked

KNOWN = 1 / 3
"""The share of its points that is known of a task that is left out."""


@dataclass(frozen=True)
class Plan:
    """Folds of tasks, and the contexts of every task.

    Attributes:
        folds: The names of the tasks that each fold leaves out.
        contexts: By the name of a task, the places of the points that are known of it, for one or more contexts.
    """

    folds: Sequence[Sequence[str]]
    contexts: dict[str, list[list[int]]]

    @staticmethod
    def drawn(tasks: Collection, folds: int, contexts: int, seed: int) -> Plan:
        """Folds and contexts at random; a task of one point teaches, but is not left out.

        Raises:
            ValueError: If there are fewer tasks than folds.
        """
        large = [task for task in tasks.tasks if len(task) > 1]
        if folds < 2:
            raise ValueError(f"folds: got {folds}, expected 2 or more")
        if len(large) < folds:
            raise ValueError(f"folds: got {folds} for {len(large)} data sets, expected at most as many folds")
        random = np.random.default_rng(seed)
        order = [large[place].name for place in random.permutation(len(large))]
        chosen = {task.name: [_known(len(task), random) for _ in range(contexts)] for task in large}
        return Plan([order[fold::folds] for fold in range(folds)], chosen)

    def parts(self, tasks: Collection, fold: int) -> tuple[list[Task], list[Split]]:
        """The tasks to learn from and the divided tasks to predict, standardised by those to learn from."""
        out = set(self.folds[fold])
        known = [task for task in tasks.tasks if task.name not in out]
        units = Columns.of(*stacked(known), tasks.x_names, tasks.y_names)
        splits = [
            _split(task.standardised(units), places)
            for task in tasks.tasks
            if task.name in out
            for places in self.contexts[task.name]
        ]
        return [task.standardised(units) for task in known if len(task) > 1], splits


def _known(points: int, random: np.random.Generator) -> list[int]:
    count = min(points - 1, max(1, round(KNOWN * points)))
    return sorted(random.permutation(points)[:count].tolist())


def _split(task: Task, places: Sequence[int]) -> Split:
    known = torch.zeros(len(task), dtype=torch.bool)
    known[list(places)] = True
    return Split(task.take(known), task.take(~known))
