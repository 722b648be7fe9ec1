"""The user's columns: what is kept of them with a model, and the checks of numbers that a user gives for them."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.arrays import as_columns, column_names
from bnnp._core.cells import Column
from bnnp._core.encodings import Encodings
from bnnp._core.frames import as_pandas, is_frame
from bnnp._core.ranges import Ranges
from bnnp._core.shapes import Bool, Float, Tensor
from bnnp._core.units import Units


class ExtrapolationWarning(UserWarning):
    """Some inputs of a prediction lie outside the range of the training inputs.

    Example:
        >>> issubclass(bnnp.ExtrapolationWarning, UserWarning)
        True
    """


class Columns(Units):
    """The user's columns: their units, and what is needed to read and check the numbers that a user gives.

    All is taken from the training tasks and kept with the model. Arguments are those of `Units`.

    Attributes:
        task_name: Name of the column that told the training tasks apart; None where there was none.
        ranges: The smallest and the largest values of all columns in training; None where these are not known.
        encodings: How the columns of the user's tables became these numbers; None where numbers were given.
    """

    def __init__(self, in_size: int, out_size: int, x_names: Sequence[str] = (), y_names: Sequence[str] = ()):
        super().__init__(in_size, out_size, x_names, y_names)
        self.task_name: str | None = None
        self.ranges: Ranges | None = None
        self.encodings: Encodings | None = None

    @staticmethod
    def of(
        x: Float[Tensor, "points x"],
        y: Float[Tensor, "points y"],
        x_names: Sequence[str] = (),
        y_names: Sequence[str] = (),
        *,
        positive: bool = False,
    ) -> "Columns":
        """The columns of some points, in float64.

        Args:
            x: Inputs of the points.
            y: Outputs of the points.
            x_names: Names of the input columns.
            y_names: Names of the output columns.
            positive: Whether outputs are positive numbers, whose logarithms the model works with.

        Raises:
            ValueError: If an output has the same value in every row.
        """
        columns = Columns(x.shape[1], y.shape[1], x_names, y_names).double()
        columns.positive = positive
        columns.fit(x, y)
        return columns

    def inputs(self, x: ArrayLike | Tensor, name: str = "x") -> Float[Tensor, "points x"]:
        """A user's inputs as checked numbers, in the user's units.

        Args:
            x: Inputs (points, in). The columns of a data frame are put into the order of training.
            name: What they are, for errors.

        Raises:
            ValueError: If these are not the columns of training, or numbers that the model can hold.
        """
        numbers, strange = self._encoded(x)
        values = as_columns(numbers, name, len(self.x_names), self.given_names("x"))
        self.check_size(values.to(self.x_shift.device), "x", name)
        if strange.any():
            warnings.warn(
                f"{name}: {int(strange.sum())} of {len(values)} rows have an empty cell or a category that training "
                "did not have; the mean of training is taken for it",
                ExtrapolationWarning,
                stacklevel=4,
            )
        return values

    def _encoded(self, x: Any) -> tuple[Any, np.ndarray]:
        """A frame with the columns of the user's tables as numbers, and which rows have a cell unlike any of training.

        Anything else is given back as it is.
        """
        encodings, nothing = self.encodings, np.zeros(0, dtype=bool)
        if encodings is None or not is_frame(x) or list(column_names(x)) == self.x_names != encodings.tables_names:
            return x, nothing
        if sorted(column_names(x)) != sorted(encodings.tables_names):
            return x, nothing  # `as_columns` says what is wrong
        frame = as_pandas(x)
        return encodings.numbers(lambda name: Column.of(frame.loc[:, name], name, np.arange(len(frame))))

    def outputs(self, y: ArrayLike | Tensor, *, real_valued: bool, name: str = "y") -> Float[Tensor, "points y"]:
        """A user's outputs as checked numbers, in the user's units.

        Args:
            y: Outputs (points, out). The columns of a data frame are put into the order of training.
            real_valued: Whether outputs are shifted and scaled.
            name: What they are, for errors.

        Raises:
            ValueError: If these are not the columns of training, or numbers that the model can hold.
        """
        labels = self.encodings is not None and self.encodings.classes and np.asarray(y).dtype.kind not in "biuf"
        values = as_columns(self._label_numbers(y) if labels else y, name, len(self.y_names), self.given_names("y"))
        if real_valued:
            self.check_size(values.to(self.y_shift.device), "y", name)
        return values

    def _label_numbers(self, y: Any) -> np.ndarray:
        """Class labels as 0, 1, ..."""
        cells = np.asarray(y, dtype=object).reshape(-1)
        assert self.encodings is not None
        return self.encodings.labels(Column(self.y_names[0], cells, np.arange(len(cells))))

    @property
    def tables_names(self) -> list[str]:
        """The names of the input columns in the user's tables."""
        return self.x_names if self.encodings is None else self.encodings.tables_names

    def check_size(
        self, values: Float[Tensor, "points columns"], which: str, name: str, rows: Sequence[int] | None = None
    ) -> None:
        """Refuse numbers whose fourth power, in the model's units, overflows in the model's precision.

        Args:
            values: The numbers, in the user's units.
            which: "x" or "y".
            name: What they are, for the error.
            rows: Numbers of the rows, for the error; 0, 1, ... if None.

        Raises:
            ValueError: If there is such a number; the message names its row and column.
        """
        names = self.x_names if which == "x" else self.y_names
        if which == "y":
            self.check_positive(values, name, rows)
        standardised = self.standardise_x(values) if which == "x" else self.standardise_y(values)
        largest = torch.finfo(self.x_shift.dtype).max ** 0.25
        bad = (~(standardised.abs() <= largest)).nonzero()
        if len(bad):
            row, column = bad[0].tolist()
            raise ValueError(
                f"{name}: got {values[row, column].item():g} at row {row if rows is None else rows[row]}, column "
                f"{names[column]!r}, expected numbers that are not so far from those of training: in the model's units "
                f"it is {standardised[row, column].item():.2g}, and the model holds numbers up to {largest:.2g}; "
                "correct or remove this row"
            )

    def outside(self, x: ArrayLike | Tensor) -> Bool[Tensor, "points"]:
        """Which inputs lie outside the range of the training inputs, or have a cell unlike any of training.

        Args:
            x: Inputs (points, in), in the user's units.

        Returns:
            One value per point.

        Example:
            >>> trained = bnnp.load("zoo:sawtooth")
            >>> trained.columns.outside([0.0, 3.0]).tolist()
            [False, True]
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)
            values, strange = self.inputs(x), torch.from_numpy(self._encoded(x)[1])
        far = torch.zeros(len(values), dtype=torch.bool) if self.ranges is None else self.ranges.outside(values)
        return far | strange if len(strange) else far

    def warn_outside(self, x: Float[Tensor, "points x"]) -> None:
        """Warn if an input lies outside the range of the training inputs."""
        if self.ranges is not None and bool(self.ranges.outside(x).any()):
            warnings.warn(
                f"x: some inputs lie outside the range of the training inputs ({self.ranges.of_inputs(self.x_names)}); "
                "predictions there may be wrong however small their std is; model.columns.outside(x) says which",
                ExtrapolationWarning,
                stacklevel=4,
            )

    def record(self) -> dict[str, Any]:
        """Names and ranges as plain values, for a file."""
        record: dict[str, Any] = {"x": self.x_names, "y": self.y_names}
        if self.task_name is not None:
            record["task"] = self.task_name
        if self.ranges is not None:
            record["ranges"] = self.ranges.record()
        if self.positive:
            record["positive"] = True
        if self.encodings is not None:
            record["encodings"] = self.encodings.record()
        return record

    def take_record(self, record: Mapping[str, Any]) -> None:
        """Take over what `record` gave; files of earlier versions have the names only.

        Raises:
            ValueError: If the names or ranges do not fit the model.
        """
        names = {which: [str(name) for name in record[which]] for which in ("x", "y")}
        if [len(names["x"]), len(names["y"])] != [len(self.x_names), len(self.y_names)]:
            raise ValueError("names of columns do not fit the model")
        self.x_names, self.y_names = names["x"], names["y"]
        self.task_name = str(record["task"]) if "task" in record else None
        self.positive = bool(record.get("positive", False))
        if "ranges" in record:
            self.ranges = Ranges.of_record(record["ranges"], len(self.x_names), len(self.y_names))
        self.encodings = Encodings.of_record(record["encodings"], self.x_names) if "encodings" in record else None
