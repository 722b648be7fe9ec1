"""Units: the shift and scale between the user's numbers and the model's, one of each per column."""

from collections.abc import Sequence

import torch
from torch import nn

from bnnp._core.shapes import Float, Tensor


class Units(nn.Module):
    """Name, shift and scale of every column.

    The model works with mean 0 and variance 1; the user works in the user's own units. Shifts start at 0 and scales at
    1. Shifts and scales of positive outputs are those of their logarithms.

    Args:
        in_size: Number of input columns.
        out_size: Number of outputs of the network.
        x_names: Names of the input columns; `x0`, `x1`, ... where not given.
        y_names: Names of the output columns; `y0`, `y1`, ... where not given.

    Attributes:
        x_names: Names of the input columns.
        y_names: Names of the output columns.
        positive: Whether outputs are positive numbers, whose logarithms the model works with.
    """

    x_shift: Tensor
    x_scale: Tensor
    y_shift: Tensor
    y_scale: Tensor

    def __init__(self, in_size: int, out_size: int, x_names: Sequence[str] = (), y_names: Sequence[str] = ()):
        super().__init__()
        self.x_names = list(x_names) or [f"x{i}" for i in range(in_size)]
        self.y_names = list(y_names) or [f"y{i}" for i in range(out_size)]
        self.positive = False
        self.register_buffer("x_shift", torch.zeros(in_size))
        self.register_buffer("x_scale", torch.ones(in_size))
        self.register_buffer("y_shift", torch.zeros(out_size))
        self.register_buffer("y_scale", torch.ones(out_size))

    def given_names(self, which: str) -> Sequence[str]:
        """The names that the user gave to the columns "x" or "y"; empty if there are none but `x0`, `x1`, ..."""
        names = self.x_names if which == "x" else self.y_names
        return () if names == [f"{which}{i}" for i in range(len(names))] else names

    def fit(self, x: Float[Tensor, "points x"], y: Float[Tensor, "points y"], *, include_y: bool = True) -> None:
        """Take the mean and standard deviation of every column.

        An input that is the same everywhere becomes 0; its scale is its own size.

        Args:
            x: Inputs of all points of all tasks.
            y: Outputs of the same points.
            include_y: Whether outputs are real values, which may be shifted and scaled.

        Raises:
            ValueError: If an output has the same value in every row, or values of a column are too large or too close
                together for numbers of the model's precision.
        """
        for column, name in zip(y.T, self.y_names, strict=True):
            if column.min() == column.max():
                raise ValueError(
                    f"column {name}: got the value {column[0].item():g} in every row, expected one that varies; "
                    "a constant output teaches nothing"
                )
        self._set("x", self.x_names, x)
        if include_y:
            self.check_positive(y, "y")
            self._set("y", self.y_names, y.log() if self.positive else y)

    def _set(self, which: str, names: Sequence[str], values: Tensor) -> None:
        shift, scale = getattr(self, f"{which}_shift"), getattr(self, f"{which}_scale")
        mean, std = values.mean(0).to(shift), values.std(0).to(scale)
        constant = values.amin(0) == values.amax(0)
        mean = torch.where(constant, values[0].to(shift), mean)
        std = torch.where(constant, torch.where(mean == 0, 1.0, mean.abs()).to(scale), std)
        held = torch.isfinite(mean) & torch.isfinite(std) & (std > 0)
        for name, column, fine in zip(names, values.T, held.tolist(), strict=True):
            if not fine:
                raise ValueError(
                    f"column {name}: got values from {column.min().item():g} to {column.max().item():g}, whose mean "
                    f"and standard deviation {str(shift.dtype).removeprefix('torch.')} cannot hold, expected values in "
                    "units in which they are not so large or so close together; change the unit of this column"
                )
        shift.copy_(mean)
        scale.copy_(std)

    def take(self, other: "Units", *, include_y: bool = True) -> None:
        """Take over the shifts and scales of others; those of outputs only with `include_y`."""
        self.x_shift.copy_(other.x_shift)
        self.x_scale.copy_(other.x_scale)
        if include_y:
            self.y_shift.copy_(other.y_shift)
            self.y_scale.copy_(other.y_scale)
            self.positive = other.positive

    def is_identity(self) -> bool:
        """Whether the model sees the user's numbers unchanged."""
        shifts = bool(self.x_shift.any()) or bool(self.y_shift.any())
        return not shifts and bool((self.x_scale == 1).all()) and bool((self.y_scale == 1).all())

    def check_positive(self, y: Float[Tensor, "points y"], name: str, rows: Sequence[int] | None = None) -> None:
        """Refuse outputs that are not positive, if the model works with logarithms.

        Args:
            y: The numbers, in the user's units.
            name: What they are, for the error.
            rows: Numbers of the rows, for the error; 0, 1, ... if None.

        Raises:
            ValueError: If there is such a number; the message names its row and column.
        """
        bad = (~(y > 0)).nonzero() if self.positive else []
        if len(bad):
            row, column = bad[0].tolist()
            raise ValueError(
                f"{name}: got {y[row, column].item():g} at row {row if rows is None else rows[row]}, column "
                f"{self.y_names[column]!r}, expected positive numbers, whose logarithms the model works with; correct "
                "or remove this row, or train without positive=True"
            )

    def standardise_x(self, x: Float[Tensor, "*batch x"]) -> Float[Tensor, "*batch x"]:
        """The user's inputs as the model sees them."""
        return (x - self.x_shift) / self.x_scale

    def standardise_y(self, y: Float[Tensor, "*batch y"]) -> Float[Tensor, "*batch y"]:
        """The user's outputs as the model sees them."""
        return ((y.log() if self.positive else y) - self.y_shift) / self.y_scale

    def restore_x(self, x: Float[Tensor, "*batch x"]) -> Float[Tensor, "*batch x"]:
        """Inputs in the user's units, in float64."""
        return x.double() * self.x_scale + self.x_shift

    def restore_y(self, y: Float[Tensor, "*batch y"]) -> Float[Tensor, "*batch y"]:
        """Outputs in the user's units, in float64, so that a small variation about a large mean is not lost."""
        values = y.double() * self.y_scale + self.y_shift
        return values.exp() if self.positive else values

    def log_slope(self, y: Float[Tensor, "*batch y"]) -> Float[Tensor, "*batch"]:
        """How much higher the log-density of outputs is in the user's units, in float64, given them in the model's."""
        slope = -self.y_scale.double().log().expand(y.shape)
        return (slope - y.double() * self.y_scale - self.y_shift if self.positive else slope).sum(-1)
