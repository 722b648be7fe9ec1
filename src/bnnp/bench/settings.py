"""The settings in which the library is measured."""

from dataclasses import dataclass

import torch

from bnnp._core.random import child
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.bnnp import BNNP
from bnnp.models.enough import FIRST
from bnnp.tasks.task import SplitBatch, TaskBatch


@dataclass(frozen=True)
class Setting:
    """A training step, or a prediction of `points - context` targets.

    If `by_itself` is set, `condition` chooses the number of samples; `samples` is then the least that it takes.
    """

    name: str
    sizes: tuple[int, ...]
    prior: str
    fixed: bool
    samples: int
    tasks: int
    points: int
    context: int
    training: bool = True
    by_itself: bool = False

    def describe(self) -> str:
        """The setting in words."""
        what = "training step" if self.training else "prediction"
        tasks = (
            f"{self.tasks} task{'s' if self.tasks > 1 else ''} of {self.points} points, {self.context} of them context"
        )
        prior = f"{self.prior}{' fixed' if self.fixed else ''} prior"
        samples = "as many samples as needed" if self.by_itself else f"{self.samples} samples"
        return f"({self.name}) {what}, {list(self.sizes)}, {prior}, {samples}, {tasks}"

    def model(self, dtype: torch.dtype = torch.float32) -> BNNP:
        model = BNNP(
            self.sizes[0], self.sizes[-1], self.sizes[1:-1], prior=self.prior, likelihood=Gaussian(0.05), dtype=dtype
        )
        return model.set_prior_learnability(0) if self.fixed else model

    def batch(self, dtype: torch.dtype = torch.float32) -> SplitBatch:
        x = 4 * torch.rand(self.tasks, self.points, self.sizes[0], generator=child(0), dtype=torch.float64) - 2
        y = torch.sin(3 * x.sum(-1, keepdim=True) + torch.arange(self.sizes[-1]))
        mask = torch.ones(self.tasks, self.points, dtype=torch.bool)
        parts = (slice(0, self.context), slice(self.context, self.points))
        return SplitBatch(*(TaskBatch(x[:, p].to(dtype), y[:, p].to(dtype), mask[:, p]) for p in parts))


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting("a", (1, 64, 64, 1), "unitwise", False, 32, 5, 70, 21),
        Setting("b", (1, 20, 20, 1), "factorised", True, 8, 5, 30, 24),
        Setting("c", (1, 64, 64, 1), "unitwise", False, 1000, 1, 140, 40, training=False),
        Setting("d", (3, 64, 64, 64, 1), "unitwise", False, 24, 5, 875, 219),
        Setting("e", (1, 64, 64, 1), "unitwise", False, FIRST, 1, 140, 40, training=False, by_itself=True),
    )
}
"""(a) to (d) are the settings in which the authors' code was measured, (d) with one task there because five did not fit
into memory. (e) is a prediction as users get it by default."""
