"""A better place than the standard prior to start learning from."""

import math

import torch

from bnnp._random import normal
from bnnp._shapes import Float, Tensor
from bnnp.priors.base import Prior
from bnnp.priors.learnable import GaussianUnits

SLOPE = 2.0
SCALE = 0.15


def spread_first_layer(prior: Prior, inputs: Float[Tensor, "points x"], generator: torch.Generator) -> None:
    """Start the learnable first-layer prior with its kinks spread over the inputs.

    Each unit's mean weights put the place where its activation bends at one of the inputs: evenly spaced quantiles with
    alternating slopes for one input column, random points and directions for several. Fixed entries stay as they are.
    Why: from the standard prior, whose bends crowd around 0, training first learns to ignore all but smooth structure.
    """
    d, units = prior.network.weight_shapes[0]
    if d == 2:
        levels = (torch.arange(units, dtype=inputs.dtype) + 0.5) / units
        centres = torch.quantile(inputs, levels, dim=0)
        directions = torch.where(torch.arange(units) % 2 == 0, 1.0, -1.0).to(inputs)[:, None]
    else:
        centres = inputs[torch.randint(len(inputs), (units,), generator=generator)]
        directions = normal((units, d - 1), inputs, generator)
        directions = directions / directions.norm(dim=-1, keepdim=True)
    slopes = SLOPE * directions
    means = torch.cat([slopes, -(slopes * centres).sum(-1, keepdim=True)], dim=-1).flatten()
    block = prior.blocks[0]  # its first entries are the first layer's, whatever the prior's structure
    assert isinstance(block, GaussianUnits)
    _assign_first(block.mean, means)
    _assign_first(block.log_scale, torch.full_like(means, math.log(SCALE)))


def _assign_first(parameter, values: Float[Tensor, "count"]) -> None:
    flat = parameter.value.detach().clone().flatten()
    flat[: len(values)] = values.to(flat)
    parameter.assign(flat.reshape(parameter.value.shape))
