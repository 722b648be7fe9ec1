"""The user's columns: their names, and the shift and scale between the user's numbers and the model's."""

from collections.abc import Sequence

import torch
from torch import nn

from bnnp._core.shapes import Float, Tensor


class Columns(nn.Module):
    """Name, shift and scale of every column, taken from the training tasks and kept with the model.

    The model works with mean 0 and variance 1; the user works in the user's own units. Shifts start at 0 and scales at
    1.

    Args:
        in_size: Number of input columns.
        out_size: Number of outputs of the network.
        x_names: Names of the input columns; `x0`, `x1`, ... where not given.
        y_names: Names of the output columns; `y0`, `y1`, ... where not given.
    """

    x_shift: Tensor
    x_scale: Tensor
    y_shift: Tensor
    y_scale: Tensor

    def __init__(self, in_size: int, out_size: int, x_names: Sequence[str] = (), y_names: Sequence[str] = ()):
        super().__init__()
        self.x_names = list(x_names) or [f"x{i}" for i in range(in_size)]
        self.y_names = list(y_names) or [f"y{i}" for i in range(out_size)]
        self.register_buffer("x_shift", torch.zeros(in_size))
        self.register_buffer("x_scale", torch.ones(in_size))
        self.register_buffer("y_shift", torch.zeros(out_size))
        self.register_buffer("y_scale", torch.ones(out_size))

    def fit(self, x: Float[Tensor, "points x"], y: Float[Tensor, "points y"], *, include_y: bool = True) -> None:
        """Take the mean and standard deviation of every column.

        Args:
            x: Inputs of all points of all tasks.
            y: Outputs of the same points.
            include_y: Whether outputs are real values, which may be shifted and scaled.

        Raises:
            ValueError: If a column has the same value in every row.
        """
        for column, name in zip(torch.cat([x, y], dim=1).T, [*self.x_names, *self.y_names], strict=True):
            if column.min() == column.max():
                raise ValueError(
                    f"column {name}: got the value {column[0].item():g} in every row, expected one that varies; "
                    "a constant column cannot be standardised and teaches nothing, so leave it out"
                )
        self.x_shift.copy_(x.mean(0))
        self.x_scale.copy_(x.std(0))
        if include_y:
            self.y_shift.copy_(y.mean(0))
            self.y_scale.copy_(y.std(0))

    @staticmethod
    def of(
        x: Float[Tensor, "points x"],
        y: Float[Tensor, "points y"],
        x_names: Sequence[str] = (),
        y_names: Sequence[str] = (),
    ) -> "Columns":
        """The columns of some points, in float64.

        Args:
            x: Inputs of the points.
            y: Outputs of the points.
            x_names: Names of the input columns.
            y_names: Names of the output columns.

        Raises:
            ValueError: If a column has the same value in every row.
        """
        columns = Columns(x.shape[1], y.shape[1], x_names, y_names).double()
        columns.fit(x, y)
        return columns

    def take(self, other: "Columns", *, include_y: bool = True) -> None:
        """Take over the shifts and scales of other columns; those of outputs only with `include_y`."""
        self.x_shift.copy_(other.x_shift)
        self.x_scale.copy_(other.x_scale)
        if include_y:
            self.y_shift.copy_(other.y_shift)
            self.y_scale.copy_(other.y_scale)

    def is_identity(self) -> bool:
        """Whether the model sees the user's numbers unchanged."""
        shifts = bool(self.x_shift.any()) or bool(self.y_shift.any())
        return not shifts and bool((self.x_scale == 1).all()) and bool((self.y_scale == 1).all())

    def standardise_x(self, x: Float[Tensor, "*batch x"]) -> Float[Tensor, "*batch x"]:
        """The user's inputs as the model sees them."""
        return (x - self.x_shift) / self.x_scale

    def standardise_y(self, y: Float[Tensor, "*batch y"]) -> Float[Tensor, "*batch y"]:
        """The user's outputs as the model sees them."""
        return (y - self.y_shift) / self.y_scale

    def restore_y(self, y: Float[Tensor, "*batch y"]) -> Float[Tensor, "*batch y"]:
        """Outputs in the user's units, in float64, so that a small variation about a large mean is not lost."""
        return y.double() * self.y_scale + self.y_shift
