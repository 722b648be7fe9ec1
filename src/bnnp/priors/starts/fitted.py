"""The start that fits the last layer to the tasks, on features that are spread over the inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from bnnp._core.random import as_integer, child
from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import features_of_layer
from bnnp.priors.base import Prior
from bnnp.priors.starts.base import Examples, Needs, Start
from bnnp.priors.starts.linear import LinearFit, Sums, fit_linear
from bnnp.priors.starts.spread import Spread, feature_size

UNCERTAINTY = 0.1
"""Uncertainty of hidden weights, as a share of that of the spread start: the fit needs features that vary little."""
SLOPES = (4.0, 8.0, 16.0)
"""The slopes of the first layer that are tried; the one whose features explain the tasks best is taken."""
FIRST_NOISE = 0.15
"""Noise at the beginning of a fit, as a share of the standard deviation of outputs."""


@dataclass(frozen=True)
class Fitted(Start):
    """Start with features that are spread over the inputs, and with a last layer that is fitted to the tasks.

    The features have little uncertainty. The last layer's Gaussian is fitted by steps in closed form, which takes
    seconds (`bnnp.priors.starts.linear`). Start the prior with it and hold the prior fixed at first: `docs/training.md`
    says why.

    Example:
        >>> small = bnnp.BNNP(1, 1, hidden=(4,))
        >>> bnnp.start_prior(small, tasks, bnnp.starts.Fitted(), seed=0)
        >>> small.prior.is_standard()
        False
        >>> small.set_prior_learnability(0).prior.learnability
        0.0
    """

    tasks = 256
    needs = Needs()

    @torch.no_grad()
    def set(self, prior: Prior, examples: Examples, generator: torch.Generator) -> None:
        """Set the hidden layers by the spread start of the best slope, and the last layer by the fit."""
        last, seed = prior.network.num_layers - 1, as_integer(generator)

        def fits(slope: float) -> list[LinearFit]:
            random = child(seed)  # the same features but for their steepness
            Spread(slope, UNCERTAINTY).set(prior, examples, random)
            return fit_units(prior, examples, *sampled_features(prior, last, examples, random))

        def misfit(slope: float) -> float:
            return sum((fit.noise / float(s)) ** 2 for fit, s in zip(fits(slope), examples.output_scale, strict=True))

        for unit, fit in enumerate(fits(min(SLOPES, key=misfit))):
            prior.assign_unit(last, unit, fit.mean, fit.covariance)


def fit_units(
    prior: Prior, examples: Examples, features: Sequence[Float[Tensor, "ways _n d"]], chosen: Tensor
) -> list[LinearFit]:
    """Fit a linear model to every output. Of several ways to make features, the first output chooses for all.

    Args:
        prior: The prior, which says whether weights are independent.
        examples: The tasks.
        features: Features of every task, for each way to make them.
        chosen: For each task, which way to make features it uses at first.
    """
    size = float(feature_size(torch.cat([phi[0] for phi in features])))
    fits: list[LinearFit] = []
    for unit, scale in enumerate(examples.output_scale.tolist()):
        sums = Sums.of(features, [y[:, unit] for y in examples.y])
        diagonal = prior.layer(0, []).is_diagonal
        fits.append(fit_linear(sums, (scale / size) ** 2, FIRST_NOISE * scale, chosen, diagonal=diagonal))
        features = [phi[way].unsqueeze(0) for phi, way in zip(features, fits[-1].chosen.tolist(), strict=True)]
        chosen = torch.zeros_like(chosen)
    return fits


def sampled_features(
    prior: Prior, layer: int, examples: Examples, generator: torch.Generator
) -> tuple[list[Float[Tensor, "1 _n d"]], Tensor]:
    """The features that enter a layer, with a new sample of the weights before it for every task.

    Returns:
        The features of every task, and a 0 per task: there is one way to make features.
    """
    weights = prior.sample(len(examples.x), seed=generator)[:layer]
    features = [
        features_of_layer(prior.network.program(x), [w[task] for w in weights]).unsqueeze(0)
        for task, x in enumerate(examples.x)
    ]
    return features, torch.zeros(len(examples.x), dtype=torch.long)
