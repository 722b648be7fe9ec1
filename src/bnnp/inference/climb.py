"""The one way to climb: evidence lower bounds, and log posterior densities, by Adam."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from bnnp._core.shapes import Float, Tensor
from bnnp.inference.target import Density
from bnnp.training.optimiser import set_gradients


@dataclass
class Climb:
    """Under way: the optimiser has its own memory, so that a step changes it in place.

    steps: how many are planned; the learning rate falls linearly from the first to the last.
    trace: the objectives of all data sets before every step.
    """

    parameters: Sequence[nn.Parameter]
    steps: int
    learning_rate: tuple[float, float]
    trace: list[Float[Tensor, "sets"]] = field(default_factory=list)

    def __post_init__(self):
        self.optimiser = torch.optim.Adam(self.parameters, lr=self.learning_rate[0], fused=True)

    def up(self, objective: Callable[[], Float[Tensor, "sets"]]) -> None:
        """A step that raises the sum of the objectives of all data sets, which Adam keeps apart."""
        value = objective()
        gradients = torch.autograd.grad(value.sum(), self.parameters, allow_unused=True)
        self.along(value.detach(), gradients)

    def along(self, value: Float[Tensor, "sets"], gradients: Sequence[Tensor | None]) -> None:
        """A step along given gradients."""
        done = len(self.trace)
        if not bool(torch.isfinite(value).all()):
            where = int((~torch.isfinite(value)).nonzero()[0])
            raise ArithmeticError(
                f"the objective is not finite at step {done}, data set {where}; a smaller learning rate than "
                f"{self.learning_rate[0]:g} may help"
            )
        first, last = self.learning_rate
        for group in self.optimiser.param_groups:
            group["lr"] = first + (last - first) * min(1.0, done / max(1, self.steps - 1))
        set_gradients(self.parameters, [None if gradient is None else -gradient for gradient in gradients])
        self.optimiser.step()
        self.trace.append(value)


def climb_density(
    density: Density,
    position: Float[Tensor, "sets samples size"],
    steps: int,
    learning_rate: tuple[float, float],
) -> Float[Tensor, "sets samples size"]:
    """Positions that are nearer to a mode of the density."""
    place = nn.Parameter(position.detach().clone())
    climb = Climb([place], steps, learning_rate)
    for _ in range(steps):
        value, gradient = density.value_and_gradient(place.detach())
        climb.along(value.sum(1), [gradient])
    return place.detach()
