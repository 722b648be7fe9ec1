"""Posteriors in the form of other packages: ArviZ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from bnnp._core.optional import optional_module
from bnnp._core.shapes import Tensor
from bnnp.inference.posterior import InferredPosterior
from bnnp.models.posterior import WeightPosterior
from bnnp.prediction.frames import observed_names
from bnnp.prediction.sampled import SampledPredictive
from bnnp.prediction.weights import WeightSamples

if TYPE_CHECKING:
    import xarray as xr


def to_arviz(post: WeightPosterior | InferredPosterior, x: ArrayLike | Tensor | None = None) -> xr.DataTree:
    """A posterior as a tree of labelled arrays, in the layout that ArviZ reads.

    It needs the package xarray (`pip install bnnp[data]`).

    The weights of layer 0 are `weights_0` with the axes `weights_0_in`, whose last entry is the bias, and
    `weights_0_out`. Outputs have the names of the user's columns, and all numbers but weights the user's units.

    Args:
        post: A posterior, as from `model.condition` or `bnnp.infer`.
        x: Inputs (points, in) to predict at, if any.

    Returns:
        A tree with the group `posterior`; `predictions` and `predictions_constant_data` at `x`; and, for a posterior of
        `model.condition`, `prior`, and at the known points, where the posterior still has them, `posterior_predictive`,
        `prior_predictive`, `log_likelihood`, `observed_data` and `constant_data`.

    Raises:
        ImportError: If xarray is not installed.
        ValueError: If the inputs do not fit the model.

    Example:
        >>> tree = bnnp.to_arviz(post, x_new)
        >>> sorted(tree.children)[:4]
        ['constant_data', 'log_likelihood', 'observed_data', 'posterior']
        >>> dict(tree["predictions"].sizes)
        {'chain': 1, 'draw': 20, 'new_point': 2}
    """
    xr = optional_module("xarray", "bnnp.to_arviz", "data")
    groups = {"posterior": _weights(post)}
    if isinstance(post, WeightPosterior):
        groups |= _of_model(post)
    if x is not None:
        predicted = post.predict_by_samples(x)
        groups["predictions"] = _observations(predicted, post, "new_point")
        groups["predictions_constant_data"] = _columns(post.columns.x_names, predicted.inputs, "new_point")
    return xr.DataTree.from_dict(groups)


def _of_model(post: WeightPosterior) -> dict[str, xr.Dataset]:
    """The groups that need the prior and the known points."""
    nothing = np.zeros((0, post.network.sizes[0])), np.zeros((0, post.likelihood.y_size(post.network.sizes[-1])))
    prior = post.model.condition(*nothing, num_samples=post.num_samples, seed=post.seed + 1)  # pyright: ignore
    groups = {"prior": _weights(prior)}
    known = post.known
    if known is None or not len(known):
        return groups
    predicted, before = post.predict_by_samples(known.x), prior.predict_by_samples(known.x)
    return {
        **groups,
        "posterior_predictive": _observations(predicted, post, "point"),
        "prior_predictive": _observations(before, prior, "point"),
        "log_likelihood": _log_likelihood(predicted, post, known.y.numpy()),
        "observed_data": _columns(observed_names(predicted), known.y.numpy(), "point"),
        "constant_data": _columns(post.columns.x_names, known.x.numpy(), "point"),
    }


def _weights(post: WeightSamples) -> xr.Dataset:
    arrays = {}
    for layer, weights in enumerate(post.weights):
        name = f"weights_{layer}"
        arrays[name] = (("chain", "draw", f"{name}_in", f"{name}_out"), _by_chain(weights.cpu().numpy(), post))
    return _numbered(arrays)


def _observations(predicted: SampledPredictive, post: WeightSamples, point: str) -> xr.Dataset:
    drawn = _by_chain(predicted.observations(), post)
    return _numbered(
        {name: (("chain", "draw", point), drawn[..., i]) for i, name in enumerate(observed_names(predicted))}
    )


def _log_likelihood(predicted: SampledPredictive, post: WeightSamples, y: np.ndarray) -> xr.Dataset:
    """One value per point: of all its outputs together, under their joined names."""
    terms = _by_chain(predicted.pointwise_log_prob(y).cpu().numpy(), post)
    return _numbered({"_".join(observed_names(predicted)): (("chain", "draw", "point"), terms)})


def _columns(names: Sequence[str], values: np.ndarray | None, point: str) -> xr.Dataset:
    assert values is not None
    return _numbered({name: ((point,), column) for name, column in zip(names, values.T, strict=True)})


def _numbered(arrays: Mapping[str, tuple[tuple[str, ...], np.ndarray]]) -> xr.Dataset:
    """A dataset whose axes are numbered from 0."""
    import xarray as xr

    found = xr.Dataset(dict(arrays))
    return found.assign_coords({axis: np.arange(size) for axis, size in found.sizes.items()})


def _by_chain(values: np.ndarray, post: WeightSamples) -> np.ndarray:
    """(samples, ...) as (chains, draws, ...)."""
    chains = post.chains if isinstance(post, InferredPosterior) else 1
    return values.reshape(chains, -1, *values.shape[1:])
