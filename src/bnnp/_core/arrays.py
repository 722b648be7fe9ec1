"""Checks a user's arrays and turns them into tensors."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.shapes import Float, Tensor

CURES = {
    "m": "durations; turn them into numbers first, as in hours",
    "M": "dates; turn them into numbers first, as in hours since the first one",
    "c": "complex numbers; give their parts as columns of their own",
    "U": "text; turn it into numbers first",
    "S": "bytes; turn them into numbers first",
    "V": "records; give their fields as columns",
}
"""What to do with values that are no numbers, though NumPy may convert them silently; by the letter of their kind."""


def as_columns(
    values: ArrayLike | Tensor, name: str, width: int | None = None, names: Sequence[str] = ()
) -> Float[Tensor, "points columns"]:
    """User data as a float64 matrix of finite numbers, one row per point. A vector becomes one column.

    Args:
        values: The data.
        name: What the data are, for errors.
        width: The number of columns that is expected; any number if None.
        names: Names of the columns that are expected. The columns of a data frame are put into this order.

    Raises:
        ValueError: If the shape does not fit, or a value is not a finite number.
    """
    array = _as_tensor(in_order(values, name, names), name)
    if array.ndim == 0:
        raise ValueError(f"{name}: got a single number, expected one row per point, as in [[0.1], [0.4]]")
    if array.ndim == 1:
        array = array.unsqueeze(-1) if width in (None, 1) or array.numel() == 0 else array
    if array.numel() == 0 and array.shape[0] == 0:
        array = array.reshape(0, width if width is not None else (array.shape[1] if array.ndim == 2 else 1))
    if array.ndim != 2:
        raise ValueError(f"{name}: got shape {tuple(array.shape)}, expected (points, columns)")
    if width is not None and array.shape[1] != width:
        raise ValueError(
            f"{name}: got {array.shape[1]} columns, expected {width}; pass the same columns as in training"
        )
    bad = (~torch.isfinite(array)).nonzero()
    if len(bad):
        row, column = bad[0].tolist()
        raise ValueError(
            f"{name}: got {array[row, column].item()} at row {row}, column {column} ({len(bad)} such values), "
            "expected finite numbers; remove or impute these rows"
        )
    return array


def column_names(values: Any) -> tuple[str, ...]:
    """The names of a data frame's columns, or of a series, where these are text; else none."""
    columns = getattr(values, "columns", None)
    names = [getattr(values, "name", None)] if columns is None else list(columns)
    texts = [name for name in names if isinstance(name, str)]
    return tuple(texts) if len(texts) == len(names) else ()


def in_order(values: Any, name: str, names: Sequence[str]) -> Any:
    """The columns of a data frame in the order of these names; anything else as it is.

    Raises:
        ValueError: If the frame has columns of other names.
    """
    found = column_names(values)
    if not names or not found or not hasattr(values, "columns") or found == tuple(names):
        return values
    if sorted(found) != sorted(names):
        raise ValueError(
            f"{name}: got the columns {', '.join(found)}, expected {', '.join(names)} as in training; choose or rename "
            "them, or pass an array"
        )
    return values[list(names)]


def _as_tensor(values: Any, name: str) -> Tensor:
    """A copy in float64: the user's data may change later."""
    try:
        if isinstance(values, Tensor):
            if values.is_complex():
                raise ValueError(f"{name}: expected numbers, got {CURES['c']}")
            return values.detach().cpu().to_dense().to(torch.float64, copy=True)
        return torch.from_numpy(_as_array(values, name))
    except (TypeError, OverflowError, RuntimeError) as error:
        raise ValueError(f"{name}: expected numbers, got something that is not a number ({error})") from None


def _as_array(values: Any, name: str) -> np.ndarray:
    try:
        array = np.ma.asarray(values) if isinstance(values, np.ma.MaskedArray) else np.asarray(values)
    except ValueError as error:  # rows of unequal length
        raise ValueError(f"{name}: expected numbers, got something that is not a number ({error})") from None
    if np.ma.is_masked(array):
        raise ValueError(f"{name}: expected numbers, got masked values; remove or impute these rows")
    if array.dtype.kind in CURES and array.size:
        raise ValueError(f"{name}: expected numbers, got something that is not a number: {CURES[array.dtype.kind]}")
    if array.dtype.kind == "O" and any(isinstance(cell, str | bytes | np.datetime64) for cell in array.flat):
        raise ValueError(f"{name}: expected numbers, got something that is not a number: {CURES['U']}")
    return np.array(array, dtype=np.float64)
