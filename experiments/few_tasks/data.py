"""The data sets to learn from, and the one to predict."""

from dataclasses import dataclass, replace

import torch

import bnnp
from bnnp.tasks.source import Collection, collect
from bnnp.tasks.task import Split


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
