"""Starts for functions that one unit of the last hidden layer makes best."""

import math
from dataclasses import dataclass

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.priors.base import Prior
from bnnp.priors.starts.base import Examples, Needs, Start
from bnnp.priors.starts.fitted import FIRST_NOISE, fit_units, sampled_features
from bnnp.priors.starts.linear import fit_censored
from bnnp.priors.starts.spread import Deciding, Spread, feature_size

SATURATED = 20.0
"""Standard deviation of the input of a unit that decides between two levels: its tanh is mostly near -1 or 1."""
RIDGE = 1e-4
"""Ridge that keeps weights small, as a share of the mean square feature."""
AT_FLOOR = 0.03
"""Outputs up to this height rest at their floor, as a share of their standard deviation."""


@dataclass(frozen=True)
class Switch(Start):
    """Start with one unit per output that decides between two levels, and jumps as the tasks do.

    The unit is close to the sign of a Gaussian function `f`. If signs at two inputs have correlation c, then `f` has
    correlation `sin(pi c / 2)` there (the arcsine law), so a linear model of the tasks determines `f`.

    Example:
        >>> bnnp.starts.Switch()
        Switch()
    """

    tasks = 256
    needs = Needs(activation="tanh", hidden=1)
    deciding = SATURATED

    @torch.no_grad()
    def set(self, prior: Prior, examples: Examples, generator: torch.Generator) -> None:
        layer = prior.network.num_layers - 2
        Spread().set_with(Deciding(SATURATED), prior, examples, generator)
        features, ways = sampled_features(prior, layer, examples, generator)
        some = torch.cat([phi[0] for phi in features])
        some = some[torch.randperm(len(some), generator=generator)[:400].to(some.device)].double().cpu()
        gram = some.mT @ some
        ridge = RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
        to_weights = torch.linalg.solve(gram + ridge, some.mT)
        for unit, fit in enumerate(fit_units(prior, examples, features, ways)):
            signs = some @ (fit.covariance + torch.outer(fit.mean, fit.mean)) @ some.mT
            sizes = signs.diagonal().sqrt()
            wanted = torch.sin(math.pi / 2 * signs / sizes / sizes.unsqueeze(-1))
            covariance = _nearest_covariance(to_weights @ wanted @ to_weights.mT)
            prior.assign_unit(layer, unit, fit.mean.new_zeros(len(fit.mean)), SATURATED**2 * covariance)


@dataclass(frozen=True)
class Floor(Start):
    """Start with one unit per output that is above 0 where a task is above its lowest value.

    The input of the unit is observed there; elsewhere it is only known to be below 0.

    Args:
        whitening_floor: As in `Spread`; functions that rest at a floor are smooth where they leave it.

    Example:
        >>> bnnp.starts.Floor()
        Floor(whitening_floor=0.03)
    """

    whitening_floor: float = 0.03
    tasks = 256
    needs = Needs(activation="relu", hidden=1)

    @torch.no_grad()
    def set(self, prior: Prior, examples: Examples, generator: torch.Generator) -> None:
        layer = prior.network.num_layers - 2
        scale, lowest = examples.output_scale, torch.cat(examples.y).min(0).values
        deciding = Deciding(2.0, lowest)
        Spread(whitening_floor=self.whitening_floor).set_with(deciding, prior, examples, generator)
        features, _ = sampled_features(prior, layer, examples, generator)
        size = float(feature_size(torch.cat([phi[0] for phi in features])))
        variance, diagonal = (deciding.input_scale / size) ** 2, prior.layer(0, []).is_diagonal
        for unit in range(len(scale)):
            above = [(y[:, unit] - lowest[unit]) / scale[unit] for y in examples.y]
            fit = fit_censored(features, above, AT_FLOOR, variance, FIRST_NOISE, generator, diagonal=diagonal)
            prior.assign_unit(layer, unit, fit.mean, fit.covariance)


def _nearest_covariance(matrix: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """The matrix with its negative eigenvalues raised to a small positive one."""
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=1e-6 * float(values[-1]))) @ vectors.mT
