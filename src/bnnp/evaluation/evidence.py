"""The log marginal likelihood of a data set under a prior, and how far an approximate posterior is from the true one.

Three estimators. Plain Monte Carlo averages the likelihood over the prior; it needs no approximation, and fails where
the data are informative, since no draw comes near the posterior. Importance sampling draws from an approximate
posterior whose density is known. Tempered sequential Monte Carlo goes from the prior to the posterior in steps. Each
estimate says whether it can be trusted.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from bnnp._core.random import Seed, as_generator
from bnnp._core.shapes import Float, Tensor
from bnnp.inference.target import Target
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.posterior import WeightPosterior
from bnnp.numerics.densities import log_normaliser
from bnnp.numerics.gaussian import CAREFUL, log_prior
from bnnp.numerics.last_layer import condition_last_layer
from bnnp.tasks.task import TaskBatch

FEW_EFFECTIVE = 100
"""An estimate from fewer effective draws cannot be trusted."""
LARGE_ERROR = 1.0
"""An estimate with a larger standard error, in nats, cannot be trusted: its bias downwards is about as large."""


@dataclass(frozen=True)
class LogEvidence:
    """An estimate of `log p(y)`, in nats and in the units of the data.

    Attributes:
        value: The estimate.
        standard_error: Its standard error by the delta method; too small where `effective` is small.
        effective: Kish's effective number of draws.
    """

    value: float
    standard_error: float
    effective: float

    @property
    def doubt(self) -> str:
        """The reason not to trust the estimate; empty if there is none."""
        if not self.effective >= FEW_EFFECTIVE:
            return f"{self.effective:.1f} effective draws"
        return "" if self.standard_error <= LARGE_ERROR else f"a standard error of {self.standard_error:.1f} nats"

    @property
    def trustworthy(self) -> bool:
        """Whether there is no reason for doubt."""
        return not self.doubt

    def __str__(self) -> str:
        warning = "" if self.trustworthy else f"; NOT to be trusted: {self.doubt}"
        return f"{self.value:.2f} ± {self.standard_error:.2f}{warning}"


@dataclass(frozen=True)
class Divergence:
    """`KL(q || p(w | y))`: the log evidence minus the evidence lower bound, in nats.

    Attributes:
        value: The estimate.
        standard_error: Its standard error.
        doubt: The reason not to trust the estimate; empty if there is none.
    """

    value: float
    standard_error: float
    doubt: str = ""

    def __str__(self) -> str:
        return f"{self.value:.2f} ± {self.standard_error:.2f}" + (
            f"; NOT to be trusted: {self.doubt}" if self.doubt else ""
        )


def divergence(evidence: LogEvidence, bound: float, bound_error: float) -> Divergence:
    """How far an approximation with this evidence lower bound is from the true posterior.

    Args:
        evidence: The log evidence, as from `by_tempering(target)`.
        bound: The evidence lower bound, as from `post.diagnostics.bound`.
        bound_error: Its standard error.

    Returns:
        The divergence, with its standard error.
    """
    value, error = evidence.value - bound, math.hypot(evidence.standard_error, bound_error)
    doubt = ""
    if not evidence.trustworthy:
        doubt = f"the evidence has {evidence.doubt}"
    elif value < -3 * error:
        doubt = "it is negative, so that the evidence is underestimated"
    return Divergence(value, error, doubt)


@dataclass(frozen=True)
class _Sums:
    """Running sums of weights `exp(a)`, relative to the largest so far."""

    largest: float = -math.inf
    total: float = 0.0
    squares: float = 0.0
    count: int = 0

    def with_more(self, log_weights: Float[Tensor, "draws"]) -> "_Sums":
        log_weights = log_weights.double()
        largest = max(self.largest, float(log_weights.max()))
        if largest == -math.inf:
            return replace(self, count=self.count + len(log_weights))
        before = math.exp(self.largest - largest) if self.count and self.largest > -math.inf else 0.0
        weights = (log_weights - largest).exp()
        return _Sums(
            largest,
            self.total * before + float(weights.sum()),
            self.squares * before**2 + float(weights.square().sum()),
            self.count + len(log_weights),
        )

    def estimate(self, shift: float = 0.0) -> LogEvidence:
        if self.total == 0:
            return LogEvidence(-math.inf, math.nan, 0.0)
        effective = self.total**2 / self.squares
        variance = max(0.0, self.count / effective - 1) / self.count  # of the mean of the weights, relative to it
        return LogEvidence(self.largest + math.log(self.total / self.count) + shift, math.sqrt(variance), effective)


@torch.no_grad()
def by_monte_carlo(
    target: Target, samples: int = 1_000_000, *, seed: Seed = 0, advance: Callable[[int], None] = lambda _: None
) -> LogEvidence:
    """`log (1/S) sum_s p(y | w_s)` over draws from the prior. Memory does not grow with `samples`.

    Args:
        target: The posterior of one data set.
        samples: Number of draws.
        seed: Seed of the draws.
        advance: Called with the number of new draws, for a progress bar.

    Returns:
        The log evidence.
    """
    check_one(target)
    generator = as_generator(seed)
    widest = max(target.network.sizes) + 1
    at_once = max(1, 2**22 // (widest * max(1, target.data.x.shape[1])))
    sums = _Sums()
    while sums.count < samples:
        count = min(at_once, samples - sums.count)
        position = target.draw_prior(count, generator)
        sums = sums.with_more(target.log_likelihood(position).sum(-1)[0])
        advance(count)
    return sums.estimate(change_of_units(target))


@torch.no_grad()
def by_importance(target: Target, posterior: WeightPosterior) -> LogEvidence:
    """From the samples of a BNNP's posterior and their densities (the bound of importance-weighted autoencoders).

    Its expectation lies below the truth and rises towards it with the number of samples. With a Gaussian likelihood the
    last layer is integrated: the samples are those of the hidden layers, and their weights are more equal.

    Args:
        target: The posterior of one data set.
        posterior: A BNNP's posterior for the same data set.

    Returns:
        The log evidence.
    """
    check_one(target)
    return _Sums().with_more(log_weights(target, posterior)).estimate(change_of_units(target))


@torch.no_grad()
def log_weights(target: Target, posterior: WeightPosterior) -> Float[Tensor, "samples"]:
    """Importance weights of the samples of a BNNP's posterior towards the exact one, in the model's units.

    Args:
        target: The posterior of one data set.
        posterior: A BNNP's posterior for the same data set.

    Returns:
        Their logarithms, up to a constant; with a Gaussian likelihood those of the hidden layers' samples.
    """
    if isinstance(target.likelihood, Gaussian):
        return _log_weights_of_hidden_layers(target, posterior)
    weights = [w.unsqueeze(0) for w in posterior.weights]
    raw = replace(target, whitened=False)
    return raw.log_density(raw.position_of(weights))[0].double() - posterior.log_prob().double()


def _log_weights_of_hidden_layers(target: Target, posterior: WeightPosterior) -> Float[Tensor, "samples"]:
    """`log p(W_h) + log p(y | W_h) - log q(W_h | y)`, with the last layer integrated."""
    assert isinstance(target.likelihood, Gaussian)
    hidden, whitened = [w.unsqueeze(0) for w in posterior.weights[:-1]], []
    log_ratio = posterior.weights[0].new_zeros(posterior.num_samples, dtype=CAREFUL)
    for layer, w in enumerate(hidden):
        prior = target.prior.layer(layer, whitened)
        whitened.append(prior.whiten(target.prior.to_units(w)))
        density = log_prior(whitened[-1].to(CAREFUL), prior.to(CAREFUL)).sum(-1)[0]
        log_ratio = log_ratio + density - posterior.layer_log_density[layer]
    model, data = posterior.model, target.data
    points = model.observed(model.last_features(hidden, data), data, target.likelihood.noise_at(data.x)).to(CAREFUL)
    last = condition_last_layer(target.prior.layer(len(hidden), whitened).to(CAREFUL), points.phi, points.seen)
    constant = log_normaliser(points.seen.inverse_noise).sum()
    return log_ratio + last.log_evidence.sum(-1)[0] - constant


def repeated(target: Target, repeats: int) -> TaskBatch:
    """The data set of a target, `repeats` times."""
    data = target.data
    return TaskBatch(*(part.expand(repeats, *part.shape[1:]) for part in (data.x, data.y, data.mask)))


def change_of_units(target: Target) -> float:
    """The log-density of outputs in the user's units minus that in the model's units."""
    if not target.likelihood.real_valued:
        return 0.0
    return float((target.prior.view.columns.log_slope(target.data.y) * target.data.mask).sum())


def check_one(target: Target) -> None:
    """Raise `ValueError` unless the target is the posterior of a single data set."""
    if target.sets != 1:
        raise ValueError(f"target: got {target.sets} data sets, expected one")
