"""Maximisation of evidence lower bounds and of log posterior densities by Adam."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from bnnp._core.shapes import Float, Tensor
from bnnp.inference.target import Density
from bnnp.training.optimiser import set_gradients


@dataclass
class Climb:
    """An optimisation by Adam. A step changes the parameters and the optimiser in place.

    Attributes:
        parameters: The parameters.
        steps: Planned number of steps.
        learning_rate: First and last learning rate; it changes linearly between them.
        trace: The objectives of all data sets before every step.
    """

    parameters: Sequence[nn.Parameter]
    steps: int
    learning_rate: tuple[float, float]
    trace: list[Float[Tensor, "sets"]] = field(default_factory=list)

    def __post_init__(self):
        self.optimiser = torch.optim.Adam(self.parameters, lr=self.learning_rate[0], fused=True)

    def up(self, objective: Callable[[], Float[Tensor, "sets"]]) -> None:
        """One step up the sum of the objectives of all data sets; no entry of a parameter belongs to two data sets."""
        value = objective()
        gradients = torch.autograd.grad(value.sum(), self.parameters, allow_unused=True)
        self.along(value.detach(), gradients)

    def along(self, value: Float[Tensor, "sets"], gradients: Sequence[Tensor | None]) -> None:
        """One step along given gradients.

        Args:
            value: The objectives of all data sets before the step.
            gradients: The gradient of every parameter.

        Raises:
            ArithmeticError: If an objective is not finite.
        """
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
    """Positions after `steps` steps of Adam up the density."""
    place = nn.Parameter(position.detach().clone())
    climb = Climb([place], steps, learning_rate)
    for _ in range(steps):
        value, gradient = density.value_and_gradient(place.detach())
        climb.along(value.sum(1), [gradient])
    return place.detach()
