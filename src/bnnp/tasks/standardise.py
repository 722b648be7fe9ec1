"""Zero mean and unit variance for the model, the user's own units for the user."""

from collections.abc import Sequence

import torch
from torch import nn

from bnnp._core.shapes import Float, Tensor
from bnnp.tasks.task import Task


class Standardiser(nn.Module):
    """Shift and scale of every column, fitted on the training tasks and kept with the model. Starts as the identity."""

    x_shift: Tensor
    x_scale: Tensor
    y_shift: Tensor
    y_scale: Tensor

    def __init__(self, in_size: int, out_size: int):
        super().__init__()
        self.register_buffer("x_shift", torch.zeros(in_size))
        self.register_buffer("x_scale", torch.ones(in_size))
        self.register_buffer("y_shift", torch.zeros(out_size))
        self.register_buffer("y_scale", torch.ones(out_size))

    def fit(self, tasks: Sequence[Task], *, include_y: bool, names: Sequence[str] = ()) -> None:
        """Take mean and standard deviation from all points of all tasks together. A constant column is an error."""
        x = torch.cat([task.x for task in tasks])
        y = torch.cat([task.y for task in tasks])
        labels = list(names) or [f"x[{i}]" for i in range(x.shape[1])] + [f"y[{i}]" for i in range(y.shape[1])]
        for column, label in zip(torch.cat([x, y], dim=1).T, labels, strict=True):
            if column.min() == column.max():
                raise ValueError(
                    f"column {label}: got the value {column[0].item():g} in every row, expected one that varies; "
                    "a constant column cannot be standardised and teaches nothing, so leave it out"
                )
        self.x_shift.copy_(x.mean(0))
        self.x_scale.copy_(x.std(0))
        if include_y:
            self.y_shift.copy_(y.mean(0))
            self.y_scale.copy_(y.std(0))

    @staticmethod
    def of(tasks: Sequence[Task], names: Sequence[str] = ()) -> "Standardiser":
        """That of some tasks, in float64."""
        units = Standardiser(tasks[0].x.shape[1], tasks[0].y.shape[1]).double()
        units.fit(tasks, include_y=True, names=names)
        return units

    def take(self, units: "Standardiser", *, include_y: bool) -> None:
        """Take over the shifts and scales of another one."""
        self.x_shift.copy_(units.x_shift)
        self.x_scale.copy_(units.x_scale)
        if include_y:
            self.y_shift.copy_(units.y_shift)
            self.y_scale.copy_(units.y_scale)

    def is_identity(self) -> bool:
        shifts = bool(self.x_shift.any()) or bool(self.y_shift.any())
        return not shifts and bool((self.x_scale == 1).all()) and bool((self.y_scale == 1).all())

    def x(self, x: Float[Tensor, "*batch x"]) -> Float[Tensor, "*batch x"]:
        return (x - self.x_shift) / self.x_scale

    def y(self, y: Float[Tensor, "*batch y"]) -> Float[Tensor, "*batch y"]:
        return (y - self.y_shift) / self.y_scale

    def task(self, task: Task) -> Task:
        return Task(self.x(task.x), self.y(task.y), task.name)

    def undo_y(self, y: Float[Tensor, "*batch y"]) -> Float[Tensor, "*batch y"]:
        """In float64, so that a small variation about a large mean is not lost."""
        return y.double() * self.y_scale + self.y_shift
