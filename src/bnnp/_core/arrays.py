"""Checks a user's arrays and turns them into tensors."""

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.shapes import Float, Tensor


def as_columns(values: ArrayLike | Tensor, name: str, width: int | None = None) -> Float[Tensor, "points columns"]:
    """User data as a float64 matrix of finite numbers, one row per point. A vector becomes one column.

    Args:
        values: The data.
        name: What the data are, for errors.
        width: The number of columns that is expected; any number if None.

    Raises:
        ValueError: If the shape is another one, or a value is not a finite number.
    """
    try:
        array = (
            values.detach().cpu()
            if isinstance(values, Tensor)
            else torch.from_numpy(np.array(values, dtype=np.float64))
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name}: expected numbers, got something that is not a number ({error})") from None
    array = array.to(torch.float64, copy=isinstance(values, Tensor))  # a copy: the user's data may change later
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
