"""The points of tasks as a linear model on features sees them, and sums over the points of each task."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bnnp._core.shapes import Float, Int, Tensor


@dataclass(frozen=True)
class TaskPoints:
    """The points of one task.

    Attributes:
        phi: Features.
        y: Outputs.
        log_noise: Logarithm of the noise of each point as a share of the common noise; None if it is the same.
    """

    phi: Float[Tensor, "_n d"]
    y: Float[Tensor, "_n out"]
    log_noise: Float[Tensor, "_n out"] | None = None

    def take(self, points: Int[Tensor, "_k"]) -> "TaskPoints":
        """Some of the points."""
        return TaskPoints(self.phi[points], self.y[points], None if self.log_noise is None else self.log_noise[points])

    def relative_noise(self) -> Float[Tensor, "_n out"]:
        """The noise of each point as a share of the common noise."""
        return torch.ones_like(self.y) if self.log_noise is None else self.log_noise.exp()

    def of_equal_noise(self) -> tuple[Float[Tensor, "_units _n d"], Float[Tensor, "out _n"]]:
        """Features and outputs, divided by the relative noise; features are the same for all outputs without it."""
        if self.log_noise is None:
            return self.phi.unsqueeze(0), self.y.mT
        precision = (-self.log_noise).exp().mT
        return precision.unsqueeze(-1) * self.phi, precision * self.y.mT


@dataclass(frozen=True)
class Sums:
    """All that a linear model needs of tasks: sums over the points of each, which are divided by the relative noise.

    Attributes:
        gram: Sums of `phi phi^T`; the same for all outputs where all points have the same noise.
        product: Sums of `phi y`, for each output.
        square: Sums of `y^2`, for each output.
        count: Numbers of points.
        log_noise: Sums of the logarithm of the relative noise, for each output.
    """

    gram: Float[Tensor, "tasks _units d d"]
    product: Float[Tensor, "tasks out d"]
    square: Float[Tensor, "tasks out"]
    count: Float[Tensor, "tasks"]
    log_noise: Float[Tensor, "tasks out"]

    @staticmethod
    def of(tasks: Sequence[TaskPoints]) -> "Sums":
        equal = [task.of_equal_noise() for task in tasks]
        noise = [torch.zeros_like(task.y) if task.log_noise is None else task.log_noise for task in tasks]
        return Sums(
            torch.stack([phi.mT @ phi for phi, _ in equal]),
            torch.stack([(y.unsqueeze(-2) @ phi)[:, 0] for phi, y in equal]),
            torch.stack([y.square().sum(-1) for _, y in equal]),
            torch.tensor([float(len(task.y)) for task in tasks], dtype=torch.float64),
            torch.stack([one.sum(0) for one in noise]),
        )
