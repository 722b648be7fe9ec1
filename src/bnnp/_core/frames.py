"""Data frames of every kind, by narwhals: pandas, polars, Arrow."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from bnnp._core.optional import optional_module

if TYPE_CHECKING:
    import pandas as pd

OTHERS = ("polars", "pyarrow", "modin", "cudf")
"""Packages whose frames are welcome beside those of pandas."""


def is_frame(values: Any) -> bool:
    """Whether this is a data frame. Nothing is imported to find out."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(values, pandas.DataFrame):
        return True
    return type(values).__module__.split(".")[0] in OTHERS and hasattr(values, "columns")


def as_pandas(values: Any) -> pd.DataFrame:
    """A data frame as one of pandas.

    Raises:
        ImportError: If the frame is of another kind and narwhals is not installed.
        ValueError: If the frame has not been computed yet.
    """
    import pandas as pd

    if isinstance(values, pd.DataFrame):
        return values
    nw = optional_module("narwhals", "a frame that is not of pandas", "tables")
    try:
        return nw.from_native(values, eager_only=True).to_pandas()
    except TypeError as error:
        raise ValueError(f"table: got {type(values).__name__}, expected a frame that is computed ({error})") from None


def like(frame: pd.DataFrame, other: Any) -> Any:
    """A data frame of pandas as one of the same kind as another, if that is a frame."""
    import pandas as pd

    if isinstance(other, pd.DataFrame) or not is_frame(other):
        return frame
    import narwhals as nw

    backend = nw.from_native(other, eager_only=True).implementation
    return nw.from_dict({name: frame[name].to_numpy() for name in frame}, backend=backend).to_native()
