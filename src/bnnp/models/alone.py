"""What the moments of a prediction do not say: samples and joint densities of one data set, when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from bnnp._core.shapes import Float, Tensor
from bnnp.prediction.mixture import Components
from bnnp.tasks.task import Task

if TYPE_CHECKING:
    from bnnp.models.amortised import AmortisedModel


@dataclass(frozen=True)
class Alone(Components):
    """The Gaussians over functions of one data set, which is conditioned by itself when they are asked for.

    Attributes:
        model: The model.
        task: The data set.
        x: Prepared inputs.
        samples: Weight samples.
        seed: The seed of the draws.
    """

    model: AmortisedModel
    task: Task
    x: Float[Tensor, "points x"]
    samples: int
    seed: int

    @cached_property
    def _components(self) -> Components:
        post = self.model.condition(self.task.x, self.task.y, num_samples=self.samples, seed=self.seed)
        return post.mixture_at(self.x).components

    @property
    def exact(self) -> bool:
        return self.model.network.num_layers == 1

    def functions(self) -> Float[Tensor, "samples points out"]:
        return self._components.functions()

    def log_density(
        self, y: Float[Tensor, "points out"], noise: Float[Tensor, "points out"], *, together: bool
    ) -> Float[Tensor, "samples _groups"]:
        return self._components.log_density(y, noise, together=together)
