"""A prior as a random network whose features are spread over the inputs: a better place than the standard prior to
start learning from."""

from dataclasses import dataclass

import torch

from bnnp._core.random import normal
from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import run
from bnnp.priors.base import Prior

SLOPE = 4.0
"""Steepness of the first layer's mean weights, for inputs of unit variance."""
FIRST_SCALE = 0.02
"""Standard deviation of the first layer's weights."""
HIDDEN_SCALE = 0.1
"""Standard deviation that the uncertainty of later hidden weights gives to activations of unit size."""
BESIDE_DECIDING = 0.003
"""Standard deviation of the last layer's weights beside a deciding unit, as a share of the data's scale."""
WHITENING_FLOOR = 1e-3
"""Directions of the features with a smaller share of the largest variance than this are not brought up to size."""


@dataclass(frozen=True)
class Deciding:
    """One unit of the last hidden layer for each output, which the output follows.

    input_scale: standard deviation of what comes into the unit, from random weights.
    from_lowest: outputs are the data's lowest value and what the unit adds to it; else the unit around zero.
    """

    input_scale: float
    from_lowest: bool


@dataclass(frozen=True)
class Examples:
    """Tasks that a start looks at, in the model's units.

    output_scale: standard deviation of the network's outputs; 1 where outputs are labels.
    """

    x: list[Float[Tensor, "_n x"]]
    y: list[Float[Tensor, "_n y"]]
    output_scale: Float[Tensor, "out"]

    def all_x(self) -> Float[Tensor, "points x"]:
        return torch.cat(self.x)


@torch.no_grad()
def spread(
    prior: Prior,
    x: Float[Tensor, "points x"],
    output_scale: Float[Tensor, "out"],
    generator: torch.Generator,
    *,
    slope: float = SLOPE,
    uncertainty: float = 1.0,
    whitening_floor: float = WHITENING_FLOOR,
    deciding: Deciding | None = None,
    lowest: Float[Tensor, "out"] | None = None,
) -> None:
    """Start a prior as a random network with little uncertainty in its features and much in its last layer.

    First layer: each unit's mean weights put the place where its activation bends at one of the inputs. Later hidden
    layers: mean weights that whiten the features and mix them at random, small variances. Last layer: mean 0 and the
    variance that gives functions the scale of the data. Fixed entries of the prior stay as they are.

    Why: under the standard prior each sample has other features, so that the last layer cannot learn what all tasks
    share, and those features are smooth; training then first learns to ignore all but smooth structure. Whitened
    features can show sharp structure from the start.

    deciding: for functions that a single unit makes best, as those that jump between two levels or rest at a lowest
    one. All units alike, as in the standard prior, make sums of many such functions, which are smooth; training does
    not find out of that.

    x, output_scale, lowest: inputs, standard deviation and lowest value of outputs, in the model's units.
    slope, uncertainty: steepness of the first layer, and a factor of the standard deviations of hidden weights.
    whitening_floor: the larger, the smoother the features of hidden layers.
    """
    last = prior.network.num_layers - 1

    def outputs(layer: int, phi: Tensor) -> Tensor:
        d, out = prior.network.weight_shapes[layer]
        size = phi.square().sum(-1).mean().sqrt()
        if layer == last:
            mean, scale = phi.new_zeros(d, out), (output_scale / size).expand(d, out)
        elif layer == 0:
            mean, scale = bends(x, out, slope, generator), phi.new_full((d, out), uncertainty * FIRST_SCALE)
        else:
            mean = whitening_mixture(phi, out, generator, whitening_floor)
            scale = phi.new_full((d, out), uncertainty * HIDDEN_SCALE / float(size))
        if deciding is not None and layer == last - 1:
            mean[:, : len(output_scale)] = 0.0
            scale[:, : len(output_scale)] = deciding.input_scale / float(size)
        elif deciding is not None and layer == last:
            mean[range(out), range(out)] = output_scale
            if deciding.from_lowest:
                assert lowest is not None
                mean[-1] = lowest
            scale = (BESIDE_DECIDING * output_scale).expand(d, out)
        prior.assign_layer(layer, mean, scale)
        return phi @ mean

    run(prior.network.program(x), outputs)


def bends(x: Float[Tensor, "points x"], units: int, slope: float, generator: torch.Generator) -> Float[Tensor, "d out"]:
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
    slopes = slope * directions / x.std(0)
    return torch.cat([slopes, -(slopes * centres).sum(-1, keepdim=True)], dim=-1).T


def whitening_mixture(
    phi: Float[Tensor, "points d"], out: int, generator: torch.Generator, floor: float = WHITENING_FLOOR
) -> Float[Tensor, "d out"]:
    """Weights under which the features become uncorrelated activations of unit size, in random directions."""
    values, vectors = torch.linalg.eigh((phi.mT @ phi / len(phi)).double())
    root = (vectors / (values + floor * values[-1]).sqrt()) @ vectors.mT
    mixture = root.to(phi) @ normal((phi.shape[1], out), phi, generator)
    return mixture / (phi @ mixture).std()
