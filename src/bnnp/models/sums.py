"""Sums over points: all that a layer's posterior needs of its data (paper, sections 2.4 and App. C, D)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.models.draws import Draws
from bnnp.models.evidence import WeightModel
from bnnp.models.layerwise import Turn, Updated, arrive
from bnnp.numerics.gaussian import (
    CAREFUL,
    NaturalParameters,
    condition_on,
    log_density_at_sample,
    natural_parameters,
)
from bnnp.tasks.task import TaskBatch


def can_be_cut(model: WeightModel) -> bool:
    """Whether the points of a context do not see each other, so that its sums can be computed in parts."""
    return model.inference.pointwise and not model.network.mixes_points


def check_can_be_cut(model: WeightModel, what: str) -> None:
    """Refuse models in which the points of a context see each other.

    Args:
        model: The model.
        what: The argument or method, for the error message.

    Raises:
        ValueError: If the points of a context see each other.
    """
    if model.network.mixes_points:
        raise ValueError(
            f"{what}: points of a context attend to each other in this network, so that chunks of them have other "
            "activations than the whole; give the whole context to `condition`"
        )
    if not model.inference.pointwise:
        raise ValueError(
            f"{what}: the inference networks of an {type(model).__name__} let the points of a context attend to each "
            "other, so that chunks of them give another posterior than the whole (paper, section 2.6); give the whole "
            "context to `condition`, or use a BNNP"
        )


def sums_over(
    model: WeightModel, turn: Turn, batch: TaskBatch, draws: Callable[[Tensor], Float[Tensor, "tasks samples units n"]]
) -> NaturalParameters:
    """What points add to the natural parameters of a layer, given the weights of earlier layers.

    Args:
        model: The model.
        turn: The layer; the points of the turn itself are not used.
        batch: Prepared points, which go through the earlier layers here.
        draws: Gives the draws for these points from their features.
    """
    mean = turn.prior.mean
    points = model.evidence(arrive(model.network, model.prior, batch.x, turn.weights), batch)
    return natural_parameters(mean, points.phi, points.seen, draws(points.phi))


def sums_with_draws(model: WeightModel, turn: Turn, batch: TaskBatch, draws: Draws, start: int) -> NaturalParameters:
    """`sums_over` points of one data set; the first of them has number `start`."""
    stop = start + batch.x.shape[1]
    return sums_over(model, turn, batch, lambda _: model.layer_draws(draws, turn.index, start, stop).points)


def no_points(model: WeightModel, layer: int, samples: int) -> NaturalParameters:
    """The sums of a layer over no points."""
    units, size = model.prior.unit_shape(layer)
    shared = 1 if layer == 0 else samples  # all samples share the features of the first layer

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(1, *shape, dtype=CAREFUL, device=model.device)

    pairs = size * (size + 1) // 2
    return NaturalParameters(
        zeros(shared, pairs, units), zeros(shared, size, units), zeros(samples, size, units), zeros(shared, units)
    )


def conditioned_on(turn: Turn, sums: NaturalParameters, draws: Draws) -> Updated:
    """Sample a layer from its posterior given sums over its points, in float64.

    Args:
        turn: The layer.
        sums: The sums over all its points.
        draws: The normal draws behind the samples.
    """
    sample = condition_on(turn.prior, sums, draws.weights(turn.index, *turn.of.unit_shape(turn.index)))
    prior = turn.prior.to(CAREFUL)
    weights = turn.of.from_units(turn.index, (prior.mean + sample.centred).to(turn.of.dtype))
    density = log_density_at_sample(prior, sample, sums).sum(-1)
    return Updated(weights, lambda: sample.whitened, sample.kl.sum(-1), density, sums)


def no_inputs(model: WeightModel) -> Float[Tensor, "one zero x"]:
    """The inputs of an empty set of points, for walks through the layers without points."""
    return torch.empty(1, 0, model.in_size, dtype=model.dtype, device=model.device)
