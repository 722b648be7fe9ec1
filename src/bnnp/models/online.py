"""Online learning: the last layer's posterior takes in new points by adding to its sums (paper, App. D)."""

from __future__ import annotations

from dataclasses import replace

import torch
from numpy.typing import ArrayLike

from bnnp._core.shapes import Tensor
from bnnp.models.draws import Draws
from bnnp.models.posterior import WeightPosterior
from bnnp.models.streaming import can_be_cut, check_can_be_cut, layer_noise, no_points, sums_over
from bnnp.numerics.gaussian import CAREFUL, NaturalParameters, UnitPrior, condition_on, log_density_at_sample
from bnnp.tasks.task import TaskBatch

POINTS_AT_ONCE = 1024


@torch.no_grad()
def update(post: WeightPosterior, x: ArrayLike | Tensor, y: ArrayLike | Tensor) -> WeightPosterior:
    """`post.update(x, y)`. Cost: `O(n d^2)` a sample and output for new points, `O(d^3)` for the new sample."""
    model = post.model
    check_can_be_cut(model, "update")
    task = model.checked_task(x, y)
    new = model.prepare(TaskBatch.of([task], device=model.device))
    before = post.forgetting_context()
    assert before.last is not None
    natural = before.last + _sums(post, new, post.points)
    layer, prior = model.network.num_layers - 1, last_prior(post)
    sample = model.named_update(layer, condition_on, prior, natural, layer_noise(model, _draws(post), layer))
    double = prior.to(CAREFUL)
    weights = model.prior.from_units(layer, (double.mean + sample.centred).to(model.dtype))[0]
    density = log_density_at_sample(double, sample, natural).sum(-1)[0]
    return replace(
        before,
        weights=[*post.weights[:-1], weights],
        layer_kl=[*post.layer_kl[:-1], sample.kl.sum(-1)[0].expand(post.num_samples)],
        layer_log_density=[*post.layer_log_density[:-1], density.expand(post.num_samples)],
        points=post.points + len(task),
        last=natural,
    )


@torch.no_grad()
def sums_of_last_layer(post: WeightPosterior) -> NaturalParameters:
    """The last layer's sums over all points that a posterior has seen."""
    if post.last is not None:
        return post.last
    assert post.context is not None
    layer = post.model.network.num_layers - 1
    return no_points(post.model, layer, post.num_samples) + _sums(post, post.context, 0)


def _sums(post: WeightPosterior, batch: TaskBatch, start: int) -> NaturalParameters:
    """What points add, the first of which has number `start`."""
    layer, prior = post.model.network.num_layers - 1, last_prior(post)
    earlier = [w.unsqueeze(0) for w in post.weights[:-1]]
    total = no_points(post.model, layer, post.num_samples)
    size = POINTS_AT_ONCE if can_be_cut(post.model) else max(1, batch.x.shape[1])
    for first in range(0, batch.x.shape[1], size):
        here = slice(first, first + size)
        part = TaskBatch(batch.x[:, here], batch.y[:, here], batch.mask[:, here])
        total = total + sums_over(post.model, layer, prior, earlier, part, _draws(post), start + first)
    return total


def last_prior(post: WeightPosterior) -> UnitPrior:
    """The prior of the last layer, given the samples of the others."""
    prior, whitened = post.model.prior, []
    if prior.couples_layers:
        for layer, w in enumerate(post.weights[:-1]):
            whitened.append(prior.layer(layer, whitened).whiten(prior.to_units(w.unsqueeze(0))))
    return prior.layer(post.model.network.num_layers - 1, whitened)


def _draws(post: WeightPosterior) -> Draws:
    return Draws(post.seed, range(post.num_samples), post.model.dtype, post.model.device)
