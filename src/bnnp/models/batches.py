"""The moments of predictions for data sets of one size, side by side: no bit of one depends on the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.models.layerwise import Turn, Updated, through_layers
from bnnp.numerics.gaussian import CAREFUL, Observations, UnitPrior, UpdateDraws
from bnnp.numerics.last_layer import LastLayer, condition_last_layer
from bnnp.numerics.side_by_side import sample_each
from bnnp.tasks.task import Task, TaskBatch

if TYPE_CHECKING:
    from bnnp.models.amortised import AmortisedModel

NUMBERS_AT_ONCE = 2**20
"""Weights of one layer in a batch, all samples and data sets together."""


def can_batch(model: AmortisedModel) -> bool:
    """Whether data sets can go side by side: layers and units are independent, and each point is seen by itself."""
    prior = model.prior
    free = not (prior.couples_layers or prior.couples_outputs or model.network.mixes_points)
    return free and model.can_integrate and model.inference.pointwise and not model.inference.sees_hidden


def batch_size(model: AmortisedModel, samples: int) -> int:
    """Data sets that go side by side."""
    return max(1, NUMBERS_AT_ONCE // (samples * max(d * out for d, out in model.network.weight_shapes)))


@dataclass(frozen=True, eq=False)
class Moments:
    """Of the function under every sample of the hidden layers, and the noise of observations, for one data set."""

    means: Float[Tensor, "samples points out"]
    variances: Float[Tensor, "samples points out"]
    noise: Float[Tensor, "points out"]


@dataclass(frozen=True, eq=False)
class _Update:
    """Samples a layer for all data sets, which share priors and draws."""

    dtype: torch.dtype
    priors: Mapping[int, UnitPrior]
    draws: Sequence[UpdateDraws]
    known: Sequence[Observations]

    def __call__(self, turn: Turn) -> Updated:
        prior, seen = self.priors[turn.index], self.known[turn.index]
        units = sample_each(prior, turn.features.to(CAREFUL), seen, self.draws[turn.index])
        return Updated(turn.of.from_units(turn.index, units.to(self.dtype)), lambda: prior.whiten(units))


@torch.no_grad()
def moments(
    model: AmortisedModel,
    priors: Mapping[int, UnitPrior],
    draws: Sequence[UpdateDraws],
    tasks: Sequence[Task],
    inputs: Sequence[Float[Tensor, "points x"]],
) -> list[Moments]:
    """Condition on data sets of one size and predict as many points of each.

    Args:
        model: A model for which `can_batch` holds.
        priors: The priors of all layers, in float64.
        draws: The draws of all layers, in float64.
        tasks: The data sets.
        inputs: Prepared inputs to predict at.

    Raises:
        FactorisationError: If one of them cannot be solved for in this way.
    """
    context = model.prepare(TaskBatch.of(tasks, device=model.device))
    known, last = _known(model, context), model.network.num_layers - 1
    update = _Update(model.dtype, priors, draws, known)
    turn = through_layers(model.network, model.prior, context.x, update, count=last, apart=True)
    found = []
    for i, x in enumerate(inputs):
        one = slice(i, i + 1)
        seen = Observations(known[last].y[one].clone(), known[last].inverse_noise[one].clone())
        layer = condition_last_layer(priors[last], turn.features[one].to(CAREFUL, copy=True), seen)
        found.append(_at(model, layer, [w[one].clone() for w in turn.weights], x))
    return found


def _at(model: AmortisedModel, layer: LastLayer, hidden: list[Tensor], x: Float[Tensor, "points x"]) -> Moments:
    """The moments of one data set at prepared inputs."""
    values = x.new_zeros(1, len(x), model.network.sizes[-1])
    target = TaskBatch(x.unsqueeze(0), values, torch.ones(values.shape[:2], dtype=torch.bool, device=x.device))
    points = model.observed(model.last_features(hidden, target), target).to(CAREFUL)
    means, variances = layer.means(points.phi), layer.variances(points.phi, points.seen.inverse_noise)
    return Moments(means[0].mT.contiguous(), variances[0].mT.contiguous(), model.noise_at(x).to(CAREFUL))


def _known(model: AmortisedModel, context: TaskBatch) -> list[Observations]:
    """The pseudo-observations of all layers, by inference networks that get one data set after the other."""
    parts: list[list[Observations]] = []
    for i in range(len(context)):
        one = TaskBatch(context.x[i : i + 1], context.y[i : i + 1], context.mask[i : i + 1])
        found, before = model.pseudo_observations_at_once(one), one.x.unsqueeze(1)
        layers = range(model.network.num_layers)
        parts.append([found[k] if k in found else model.pseudo_observations(k, one, before) for k in layers])
    return [
        Observations(torch.cat([p.y for p in layer]), torch.cat([p.inverse_noise for p in layer])).to(CAREFUL)
        for layer in zip(*parts, strict=True)
    ]
