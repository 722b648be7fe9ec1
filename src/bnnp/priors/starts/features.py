"""Hidden layers whose features are spread over the inputs of the training tasks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bnnp._core.random import child, normal
from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import AnyNetwork, run

NEIGHBOURS = 0.08
"""The density of inputs at a quantile is measured between the quantiles this much below and above it."""
LEAST_WIDTH = 0.02
"""Inputs are never taken to be denser than this share of their range."""
LEAST_UNITS = 3
"""With fewer units than this per input, units of the first layer bend in random directions of all inputs."""
WHITENING_FLOOR = 1e-3
"""Directions of the features whose variance is below this share of the largest one are not scaled up fully."""
BIAS = 0.5
"""Standard deviation of the biases of later hidden layers, whose inputs have unit variance."""


@dataclass(frozen=True)
class Shape:
    """What decides how rough functions of the features can be.

    Attributes:
        slope: Steepness of the first layer's units, for inputs of unit variance.
        density: How far units are steeper where inputs are dense: 0 for not at all, 1 for in proportion.
        relevance: How much each input moves the features of later hidden layers, between 0 and 1.
    """

    slope: float
    density: float
    relevance: tuple[float, ...]


def hidden_weights(
    network: AnyNetwork, x: Float[Tensor, "points x"], shape: Shape, seed: int
) -> list[Float[Tensor, "_d _out"]]:
    """Weights of all hidden layers, so that their features are spread over the inputs.

    First layer: each unit bends at a quantile of one input. Later hidden layers: the features that come from each input
    are whitened, weighted by the relevance of the input and mixed at random.

    Args:
        network: The network, a multilayer perceptron.
        x: Inputs of the training tasks, with mean 0 and variance 1 in each column that is not constant.
        shape: How rough the features are.
        seed: With the same seed, two shapes get the same random mixtures.
    """
    generator, weights = child(seed), []
    columns = [j for j in range(x.shape[1]) if float(x[:, j].std()) > 0] or [0]
    last = network.num_layers - 1
    owners = torch.zeros(0, dtype=torch.long)

    def outputs(layer: int, phi: Tensor) -> Tensor:
        nonlocal owners
        out = network.weight_shapes[layer][1]
        if layer == last:
            return phi.new_zeros(len(phi), out)
        if layer > 0:
            w = _mixture(phi, owners, shape.relevance, out, generator)
            owners = torch.zeros(out, dtype=torch.long)
        elif out >= LEAST_UNITS * len(columns):
            owners = torch.tensor([columns[unit % len(columns)] for unit in range(out)])
            w = _bends(x, owners, shape)
        else:
            owners = torch.zeros(out, dtype=torch.long)
            w = _bends_in_random_directions(x, out, shape.slope, generator)
        weights.append(w)
        return phi @ w

    run(network.program(x), outputs)
    return weights


def _bends(x: Float[Tensor, "points x"], owners: Tensor, shape: Shape) -> Float[Tensor, "d out"]:
    """Weights of units that bend at the quantiles of one input each, the one in `owners`, with alternating signs."""
    weights = x.new_zeros(x.shape[1] + 1, len(owners))
    for column in owners.unique().tolist():
        units, values = (owners == column).nonzero()[:, 0], x[:, column]
        levels = (torch.arange(len(units), dtype=x.dtype) + 0.5) / len(units)
        around = [torch.quantile(values, (levels + step).clamp(0, 1)) for step in (-NEIGHBOURS, 0.0, NEIGHBOURS)]
        width = (around[2] - around[0]).clamp(min=LEAST_WIDTH * float(values.max() - values.min()) or 1.0)
        signs = torch.where(torch.arange(len(units)) % 2 == 0, 1.0, -1.0).to(x)
        slopes = shape.slope * signs * (width.median() / width) ** shape.density
        weights[column, units], weights[-1, units] = slopes, -slopes * around[1]
    return weights


def _bends_in_random_directions(x: Tensor, units: int, slope: float, generator: torch.Generator) -> Tensor:
    """Weights of units that bend at random points, each in a random direction."""
    centres = x[torch.randint(len(x), (units,), generator=generator)]
    directions = normal((units, x.shape[1]), x, generator)
    slopes = slope * directions / directions.norm(dim=-1, keepdim=True)
    return torch.cat([slopes, -(slopes * centres).sum(-1, keepdim=True)], dim=-1).T


def _mixture(
    phi: Float[Tensor, "points d"],
    owners: Tensor,
    relevance: Sequence[float],
    out: int,
    generator: torch.Generator,
) -> Float[Tensor, "d out"]:
    """Weights that whiten the features of each input, weight them by relevance and mix them at random."""
    mean, d = phi.mean(0), phi.shape[1]
    root = phi.new_zeros(d, d)
    for column in owners.unique().tolist():
        units = (owners == column).nonzero()[:, 0]
        centred = (phi - mean)[:, units]
        values, vectors = torch.linalg.eigh(centred.mT @ centred / len(phi))
        floor = (WHITENING_FLOOR * values[-1]).clamp(min=torch.finfo(phi.dtype).tiny)
        block = (vectors / (values.clamp(min=0) + floor).sqrt()) @ vectors.mT
        root[units[:, None], units] = block * relevance[column] / math.sqrt(len(units))
    mixture = root @ normal((d, out), phi, generator)
    biases = BIAS * normal((out,), phi, generator)
    mixture = mixture / ((phi - mean) @ mixture).std().clamp(min=torch.finfo(phi.dtype).eps)
    mixture[-1] = biases - mean[:-1] @ mixture[:-1]
    return mixture
