"""Draws of a model's own prior as tasks, of which there is no end: inference can learn from them."""

from dataclasses import dataclass

import torch

from bnnp._core.random import normal
from bnnp._core.ranges import Ranges
from bnnp.models.evidence import WeightModel
from bnnp.tasks.source import TaskSource
from bnnp.tasks.task import Task


@dataclass(frozen=True, eq=False, repr=False)
class DrawsOfPrior(TaskSource):
    """Tasks whose outputs are drawn from the prior of a model with its noise, at the inputs of other tasks.

    Where there are few tasks, inference that learns from them learns them by heart; draws of the prior are new each
    time. The draws follow the model: if its prior or its noise changes, so do they.

    Attributes:
        model: A model with Gaussian noise.
        tasks: A task source, of which only the inputs are used.
    """

    model: WeightModel
    tasks: TaskSource

    def __repr__(self) -> str:
        return f"draws of the prior at the inputs of {self.tasks!r}"

    @property
    def in_size(self) -> int:
        return self.tasks.in_size

    @property
    def out_size(self) -> int:
        return self.tasks.out_size

    @torch.no_grad()
    def draw(self, count: int, generator: torch.Generator) -> list[Task]:
        """Draw tasks at random, as `TaskSource.draw`. Cost: one pass through the network per task."""
        return [self._redrawn(task, generator) for task in self.tasks.drawn(count, generator)]

    def ranges(self) -> Ranges:
        """The ranges of the columns of the tasks that give the inputs."""
        return self.tasks.ranges()

    def _redrawn(self, task: Task, generator: torch.Generator) -> Task:
        model = self.model
        x = model.columns.standardise_x(task.x.to(model.device)).to(model.dtype)
        function = model.prior.network(model.prior.sample(1, generator), x[None])[0]
        y = function + model.noise_at(x) * normal(function.shape, function, generator)
        return Task(task.x, model.columns.restore_y(y).cpu(), task.name)
