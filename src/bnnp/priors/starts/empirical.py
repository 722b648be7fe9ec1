"""The start that is fitted to the tasks in closed form: empirical Bayes on features that are spread over the inputs."""

from dataclasses import dataclass

import torch

from bnnp._core.random import as_integer
from bnnp.numerics.bends import bends_over, in_units
from bnnp.priors.base import Prior
from bnnp.priors.starts.base import Examples, SmoothNoise, Start
from bnnp.priors.starts.freedom import most_freedom
from bnnp.priors.starts.search import Search
from bnnp.priors.starts.seen import Seen


@dataclass(frozen=True)
class Empirical(Start):
    """Start with the prior that the tasks themselves suggest, found in closed form.

    The hidden layers have features that are spread over the inputs, and little uncertainty. Their inference networks
    start with so large a pseudo-noise that known points move them by next to nothing: what networks say that have
    learned nothing is wrong, and with many points it would count. The last layer is that of a
    linear mixed model on these features: it has a mean, which is what tasks have in common, and a covariance, which is
    how they differ. How rough the features are, which inputs matter and how large the noise is are chosen by the
    evidence of the tasks. How far the covariance leaves a simple form is chosen by tasks that are left out in turn:
    with few tasks it stays simple.

    Labels are taken as numbers, which is close to their log-odds where no class is certain.

    Cost: some seconds for up to 128 tasks, of which the fit looks at no more.

    Example:
        >>> small = bnnp.BNNP(1, 1, hidden=(8, 8))
        >>> bnnp.start_prior(small, tasks, bnnp.starts.Empirical(), seed=0)
        >>> small.prior.is_standard()
        False
    """

    tasks = 128
    silences_inference = True

    @torch.no_grad()
    def set(self, prior: Prior, examples: Examples, generator: torch.Generator) -> SmoothNoise | None:
        """Set the hidden layers and the last layer, and give the noise that goes with them."""
        seen = Seen.of(examples)
        if not seen.outputs:
            return None
        search = Search(prior.network, seen, as_integer(generator), prior.layer(0, []).is_diagonal)
        fitted = search.best()
        bends, coefficients = bends_over(seen.x[0], []), seen.y[0].new_zeros(0, len(seen.outputs))
        if examples.noise_may_vary:
            fitted, bends, coefficients = search.with_varied_noise(fitted) or (fitted, bends, coefficients)
        model, sums = most_freedom(fitted.tasks, fitted.model, seen.held)
        mean, covariance = fitted.in_weights(*model.of_new_task(sums))
        noise_at = torch.cat([model.noise * task.relative_noise() for task in fitted.tasks])
        seen.assign(prior, prior.network, fitted.hidden, mean, covariance, noise_at)
        noise = examples.output_scale.double().cpu().clone()
        noise[seen.outputs] = model.noise * seen.y_scale
        varies = noise.new_zeros(len(bends), len(noise))
        varies[:, seen.outputs] = coefficients
        return SmoothNoise(noise, in_units(bends, seen.x_shift, seen.x_scale), varies)
