"""The data sets to learn from, the one to predict, and training data sets that are left out to choose settings by."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

import bnnp
from bnnp._core.random import child
from bnnp.tasks.source import Collection, collect
from bnnp.tasks.split import context_size, random_split
from bnnp.tasks.task import Split

LEFT_OUT = {"abalone": (0, 1), "paul15": (0, 5), "invented": (0, 1)}
"""The training data sets that are left out in turn: both sexes, and two of the ten clusters."""
TEST_SHARE = 0.25
"""The share of a left-out data set that is context, as it is of the test."""


@dataclass(frozen=True)
class Data:
    """In standard columns; errors times `y_scale` are in the original ones."""

    training: Collection
    test: Split
    y_scale: float


def load(data: str, points_share: float = 1.0) -> Data:
    if data == "invented":
        training, test = _invented()
        y_scale = 1.0
    else:
        loader = {"abalone": bnnp.tasks.abalone, "paul15": bnnp.tasks.paul15}[data]
        training, test = loader("train").standardised(), loader("test").standardised()
        assert training.columns is not None
        y_scale = float(training.columns.y_scale[0])
    return Data(replace(training, points_share=points_share), test.splits[0], y_scale)


def load_left_out(data: str, points_share: float = 1.0) -> Sequence[Data]:
    """For each training data set that is left out: the others to learn from, and itself as the one to predict."""
    whole = load(data, points_share)
    found = []
    for place in LEFT_OUT[data]:
        rest = tuple(task for index, task in enumerate(whole.training.tasks) if index != place)
        test = random_split(whole.training.tasks[place], context_size(TEST_SHARE), child(0, place))
        found.append(Data(replace(whole.training, tasks=rest), test, whole.y_scale))
    return found


def divided_training(data: Data) -> list[Split]:
    """The training data sets, divided as the test is."""
    size = context_size(TEST_SHARE)
    return [random_split(task, size, child(1, place)) for place, task in enumerate(data.training.tasks)]


def _invented() -> tuple[Collection, Collection]:
    """Noisy sums of three features, for trying out."""
    random = torch.Generator().manual_seed(0)
    tasks = []
    for number in range(3):
        x = torch.randn(24, 3, generator=random, dtype=torch.float64)
        y = x.sum(1, keepdim=True) / 2 + 0.1 * torch.randn(24, 1, generator=random, dtype=torch.float64)
        tasks.append(bnnp.tasks.Task(x, y, f"invented {number}"))
    split = Split(tasks[2].take(torch.arange(8)), tasks[2].take(torch.arange(8, 24)))
    return collect(tasks[:2], standardise=False), collect(tasks[2:], standardise=False, splits=[split])
