"""A better place than the standard prior to start learning from."""

import torch

from bnnp._random import normal
from bnnp._shapes import Float, Tensor
from bnnp.network import run
from bnnp.priors.base import Prior

SLOPE = 4.0
"""Steepness of the first layer's mean weights, for inputs of unit variance."""
FIRST_SCALE = 0.02
"""Standard deviation of the first layer's weights."""
HIDDEN_SCALE = 0.1
"""Standard deviation that the uncertainty of later hidden weights gives to activations of unit size."""
WHITENING_FLOOR = 1e-3
"""Directions of the features with a smaller share of the largest variance than this are not brought up to size."""


@torch.no_grad()
def spread(
    prior: Prior, x: Float[Tensor, "points x"], output_scale: Float[Tensor, "out"], generator: torch.Generator
) -> None:
    """Start a prior as a random network with little uncertainty in its features and much in its last layer.

    First layer: each unit's mean weights put the place where its activation bends at one of the inputs. Later hidden
    layers: mean weights that whiten the features and mix them at random, small variances. Last layer: mean 0 and the
    variance that gives functions the scale of the data. Fixed entries of the prior stay as they are.

    Why: under the standard prior each sample has other features, so that the last layer cannot learn what all tasks
    share, and those features are smooth; training then first learns to ignore all but smooth structure. Whitened
    features can show sharp structure from the start.
    """
    last = prior.network.num_layers - 1

    def outputs(layer: int, phi: Tensor) -> Tensor:
        d, out = prior.network.weight_shapes[layer]
        size = phi.square().sum(-1).mean().sqrt()
        if layer == last:
            mean, scale = phi.new_zeros(d, out), (output_scale / size).expand(d, out)
        elif layer == 0:
            mean, scale = _bends(x, out, generator), phi.new_full((d, out), FIRST_SCALE)
        else:
            mean = _whitening_mixture(phi, out, generator)
            scale = phi.new_full((d, out), HIDDEN_SCALE / float(size))
        prior.assign_layer(layer, mean, scale)
        return phi @ mean

    run(prior.network.program(x), outputs)


def _bends(x: Float[Tensor, "points x"], units: int, generator: torch.Generator) -> Float[Tensor, "d out"]:
    """Weights of units that bend at the inputs: at quantiles with alternating slopes for one input column, at random
    points in random directions for several."""
    if x.shape[1] == 1:
        levels = (torch.arange(units, dtype=x.dtype, device=x.device) + 0.5) / units
        centres = torch.quantile(x, levels, dim=0)
        directions = torch.where(torch.arange(units) % 2 == 0, 1.0, -1.0).to(x)[:, None]
    else:
        centres = x[torch.randint(len(x), (units,), generator=generator)]
        directions = normal((units, x.shape[1]), x, generator)
        directions = directions / directions.norm(dim=-1, keepdim=True)
    slopes = SLOPE * directions / x.std(0)
    return torch.cat([slopes, -(slopes * centres).sum(-1, keepdim=True)], dim=-1).T


def _whitening_mixture(phi: Float[Tensor, "points d"], out: int, generator: torch.Generator) -> Float[Tensor, "d out"]:
    """Weights under which the features become uncorrelated activations of unit size, in random directions."""
    values, vectors = torch.linalg.eigh((phi.mT @ phi / len(phi)).double())
    root = (vectors / (values + WHITENING_FLOOR * values[-1]).sqrt()) @ vectors.mT
    mixture = root.to(phi) @ normal((phi.shape[1], out), phi, generator)
    return mixture / (phi @ mixture).std()
