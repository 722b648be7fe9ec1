"""The start of a prior as a random network whose features are spread over the inputs."""

import math
from dataclasses import dataclass

import torch

from bnnp._core.random import normal
from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import run
from bnnp.priors.base import Prior
from bnnp.priors.starts.base import Examples, Start

FIRST_SCALE = 0.02
"""Standard deviation of the first layer's weights."""
HIDDEN_SCALE = 0.1
"""Standard deviation that the uncertainty of later hidden weights gives to activations of unit size."""
WHITENING_FLOOR = 1e-3
"""Directions of the features whose variance is below this share of the largest one are not scaled up fully."""


@dataclass(frozen=True)
class Spread(Start):
    """Start a prior as a random network with little uncertainty in its features and much in its last layer.

    First layer: the mean weights let the activation of each unit bend at one of the inputs. Later hidden layers: the
    mean weights whiten the features and mix them at random, and the variances are small. Last layer: mean 0 and the
    variance that gives functions the scale of the data. Fixed entries of the prior stay as they are.

    Why: under the standard prior each sample has different features, so the last layer cannot learn what all tasks
    share. These features are smooth too, so training first learns to ignore all but smooth structure. Whitened features
    can represent sharp structure from the start.

    Args:
        slope: Steepness of the first layer's mean weights, for inputs of unit variance.
        uncertainty: Factor on the standard deviations of hidden weights.
        whitening_floor: The larger it is, the smoother are the features of hidden layers.

    Raises:
        ValueError: If an option is not a positive number.

    Example:
        >>> small = bnnp.BNNP(1, 1, hidden=(4,))
        >>> bnnp.start_prior(small, tasks, bnnp.starts.Spread(slope=8.0), seed=0)
        >>> small.prior.is_standard()
        False
    """

    slope: float = 4.0
    uncertainty: float = 1.0
    whitening_floor: float = WHITENING_FLOOR

    def __post_init__(self):
        for name, value in vars(self).items():
            if not (isinstance(value, int | float) and 0 < value < math.inf):
                raise ValueError(f"{name}: got {value!r}, expected a positive number, as in Spread({name}=2.0)")

    @torch.no_grad()
    def set(self, prior: Prior, examples: Examples, generator: torch.Generator) -> None:
        """Set means and variances of all layers, one after the other."""

        def outputs(layer: int, phi: Tensor) -> Tensor:
            mean, deviations = self._layer(layer, phi, prior, examples, generator)
            prior.assign_layer(layer, mean, deviations)
            return phi @ mean

        run(prior.network.program(examples.all_x()), outputs)

    def _layer(
        self, layer: int, phi: Tensor, prior: Prior, examples: Examples, generator: torch.Generator
    ) -> tuple[Float[Tensor, "d out"], Float[Tensor, "d out"]]:
        """Means and standard deviations of a layer's weights, given the features that enter it."""
        d, out = prior.network.weight_shapes[layer]
        if layer == prior.network.num_layers - 1:
            return phi.new_zeros(d, out), (examples.output_scale / feature_size(phi)).expand(d, out)
        if layer == 0:
            means = bends(examples.all_x(), out, self.slope, generator)
            return means, phi.new_full((d, out), self.uncertainty * FIRST_SCALE)
        means = whitening_mixture(phi, out, generator, self.whitening_floor)
        return means, phi.new_full((d, out), self.uncertainty * HIDDEN_SCALE / float(feature_size(phi)))


def feature_size(phi: Float[Tensor, "points d"]) -> Float[Tensor, ""]:
    """Root mean square norm of the features of a point."""
    return phi.square().sum(-1).mean().sqrt()


def bends(x: Float[Tensor, "points x"], units: int, slope: float, generator: torch.Generator) -> Float[Tensor, "d out"]:
    """Weights of units that bend at the inputs.

    For one input column, units bend at its quantiles with alternating slopes; for several, at random points in random
    directions.

    Args:
        x: The inputs.
        units: Number of units.
        slope: Steepness, for inputs of unit variance.
        generator: The generator of all random numbers.
    """
    if x.shape[1] == 1:
        levels = (torch.arange(units, dtype=x.dtype, device=x.device) + 0.5) / units
        centres = torch.quantile(x, levels, dim=0)
        directions = torch.where(torch.arange(units) % 2 == 0, 1.0, -1.0).to(x)[:, None]
    else:
        centres = x[torch.randint(len(x), (units,), generator=generator)]
        directions = normal((units, x.shape[1]), x, generator)
        directions = directions / directions.norm(dim=-1, keepdim=True)
    spread = x.std(0)
    slopes = slope * directions * torch.where(spread > 0, 1 / spread, 0.0)  # an input that is constant is ignored
    return torch.cat([slopes, -(slopes * centres).sum(-1, keepdim=True)], dim=-1).T


def whitening_mixture(
    phi: Float[Tensor, "points d"], out: int, generator: torch.Generator, floor: float = WHITENING_FLOOR
) -> Float[Tensor, "d out"]:
    """Weights that turn the features into uncorrelated activations of unit size, in random directions.

    Args:
        phi: The features.
        out: Number of activations.
        generator: The generator of all random numbers.
        floor: Directions whose variance is below this share of the largest one are not scaled up fully.
    """
    values, vectors = torch.linalg.eigh((phi.mT @ phi / len(phi)).double())
    root = (vectors / (values + floor * values[-1]).sqrt()) @ vectors.mT
    mixture = root.to(phi) @ normal((phi.shape[1], out), phi, generator)
    size = (phi @ mixture).std()
    return mixture / torch.where(size > 0, size, 1.0)  # all points are the same one where it is 0
