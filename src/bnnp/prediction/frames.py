"""Predictions as tables and labelled arrays, under the names of the user's columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bnnp._core.columns import Columns
from bnnp._core.optional import optional_module
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.categorical import Categorical

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from bnnp.prediction.base import Predictive

QUANTILES = (0.05, 0.5, 0.95)
"""The quantiles that a table has by default."""


def frame(predictive: Predictive, quantiles: Sequence[float]) -> pd.DataFrame:
    """One row per point: its inputs, where they are known, and what is predicted."""
    import pandas as pd

    inputs = {} if predictive.inputs is None else dict(zip(_inputs(predictive), predictive.inputs.T, strict=True))
    return pd.DataFrame({**inputs, **prediction_columns(predictive, quantiles)})


def dataset(predictive: Predictive) -> xr.Dataset:
    """Moments and samples by point and output, with the inputs as coordinates."""
    xr = optional_module("xarray", "to_xarray", "data")
    coordinates: dict = {"output": output_names(predictive)}
    if predictive.inputs is not None:
        coordinates |= {name: ("point", x) for name, x in zip(_inputs(predictive), predictive.inputs.T, strict=True)}
    moments = {name: (("point", "output"), getattr(predictive, name)) for name in ("mean", "std", "function_std")}
    return xr.Dataset({**moments, "samples": (("sample", "point", "output"), predictive.samples)}, coordinates)


def output_names(predictive: Predictive) -> list[str]:
    """One name per output: that of the column, or one per class."""
    if isinstance(predictive.likelihood, Categorical):
        return prediction_names(predictive.likelihood, predictive.columns)
    return list(predictive.columns.y_names)


def observed_names(predictive: Predictive) -> list[str]:
    """One name per observed column: class labels have a single one."""
    return list(predictive.columns.y_names)


def prediction_columns(predictive: Predictive, quantiles: Sequence[float] = QUANTILES) -> dict[str, np.ndarray]:
    """The numbers that a table has of a prediction, by column."""
    names = prediction_names(predictive.likelihood, predictive.columns, quantiles)
    if isinstance(predictive.likelihood, Categorical):
        return dict(zip(names, predictive.mean.T, strict=True))
    levels = predictive.quantile(list(quantiles)) if len(quantiles) else ()
    numbers = np.stack([predictive.mean, predictive.std, *levels])
    return dict(zip(names, np.moveaxis(numbers, -1, 0).reshape(len(names), -1), strict=True))


def prediction_names(likelihood: Likelihood, columns: Columns, quantiles: Sequence[float] = QUANTILES) -> list[str]:
    """The names of the columns of `prediction_columns`."""
    if isinstance(likelihood, Categorical):
        given = columns.encodings.classes if columns.encodings is not None else ()
        return [f"{columns.y_names[0]}_is_{label}" for label in given or range(likelihood.num_classes)]
    kinds = ("mean", "std", *map(_quantile_name, quantiles))
    return [f"{name}_{kind}" for name in columns.y_names for kind in kinds]


def _quantile_name(level: float) -> str:
    """`q05` for 0.05, `q97.5` for 0.975."""
    whole, dot, rest = f"{100 * level:.6g}".partition(".")
    return f"q{whole.zfill(2)}{dot}{rest}"


def _inputs(predictive: Predictive) -> list[str]:
    return predictive.columns.x_names
