"""Simulation-based calibration (Talts et al. 2018): is a way to infer right under its own prior?

Weights are drawn from the prior, data from the weights, and samples of the posterior from the data. If these follow the
true posterior, the rank of the value under the true weights, among the values under the samples, is uniform.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.arrays import as_columns
from bnnp._core.random import Seed, as_integer, child
from bnnp._core.shapes import Tensor
from bnnp.inference import Effort, Method, infer_many
from bnnp.likelihoods.base import Likelihood
from bnnp.networks.base import AnyNetwork
from bnnp.prediction.sampled import SampledPredictive
from bnnp.prediction.weights import WeightSamples
from bnnp.priors.base import Prior
from bnnp.tasks.task import Task

_WEIGHTS, _NOISE = range(2)
FEW = 0.01
"""A p-value below this, divided by the number of quantities, speaks against a method."""

Posteriors = Callable[[Sequence[Task]], Sequence[WeightSamples]]


@dataclass(frozen=True)
class Calibration:
    """ranks: (simulations, quantities), each from 0 to `num_samples`.  names: of the quantities."""

    ranks: np.ndarray
    num_samples: int
    names: tuple[str, ...]

    def histogram(self, bins: int = 10) -> np.ndarray:
        """Ranks in each of `bins` bins of equal width (quantities, bins); `bins` must divide `num_samples + 1`."""
        if (self.num_samples + 1) % bins:
            raise ValueError(f"bins: got {bins}, expected a divisor of {self.num_samples + 1}, the number of ranks")
        width = (self.num_samples + 1) // bins
        return np.stack([np.bincount(column // width, minlength=bins) for column in self.ranks.T])

    def p_values(self, bins: int = 10) -> np.ndarray:
        """For each quantity, how likely counts at least as uneven are if ranks are uniform (chi-squared test)."""
        from scipy import stats

        return stats.chisquare(self.histogram(bins), axis=1).pvalue

    def uniform(self, bins: int = 10) -> bool:
        """Whether nothing speaks against the method; false alarms: 1 %."""
        return bool((self.p_values(bins) > FEW / len(self.names)).all())


def simulation_based_calibration(
    prior: Prior,
    network: AnyNetwork,
    x: ArrayLike | Tensor,
    *,
    likelihood: Likelihood,
    method: str | Method | Posteriors = "nuts",
    simulations: int = 200,
    num_samples: int = 99,
    at: ArrayLike | Tensor | None = None,
    effort: Effort | None = None,
    seed: Seed = 0,
    progress: bool = False,
) -> Calibration:
    """Ranks of the function's values at the inputs `at`, and of the log-likelihood of the data.

    x: inputs of every simulated data set.  at: inputs at which the function is looked at; three of `x` if not given.
    method: as for `bnnp.infer`, or a function from data sets to posteriors, as
        `lambda sets: [model.condition(t.x, t.y, num_samples=99) for t in sets]` for the posterior of a trained model.
    effort: draws of a Markov chain hang together, which piles ranks up at both ends; `Effort(thin=...)` helps.

    All data sets are worked on at once. Example:
        found = simulation_based_calibration(model.prior, model.network, x, likelihood=model.likelihood, method="nuts")
        found.p_values(); plots.rank_histograms(found)
    """
    if simulations < 1 or num_samples < 1:
        raise ValueError(f"simulations and num_samples: got {simulations} and {num_samples}, expected positive numbers")
    number = as_integer(seed)
    inputs = as_columns(x, "x", network.sizes[0])
    looked_at = inputs[_spread(len(inputs))] if at is None else as_columns(at, "at", network.sizes[0])
    own = likelihood.for_outputs(network.sizes[-1]).to(prior.dtype)
    with torch.no_grad():
        truth = prior.sample(simulations, child(number, _WEIGHTS))
        scaled = prior.view.columns.standardise_x(inputs).to(truth[0])
        y = own.sample(network(truth, scaled.expand(simulations, *scaled.shape)), child(number, _NOISE))
        if own.real_valued:
            y = prior.view.columns.restore_y(y)
    sets = [Task(inputs, one.to(inputs.dtype)) for one in y]
    posteriors = (
        infer_many(
            prior,
            network,
            sets,
            method=method,
            likelihood=likelihood,
            num_samples=num_samples,
            effort=effort,
            seed=number,
            progress=progress,
        )
        if isinstance(method, str | Method)
        else method(sets)
    )
    ranks = []
    for i, (task, posterior) in enumerate(zip(sets, posteriors, strict=True)):
        if posterior.num_samples != num_samples:
            raise ValueError(f"method: got {posterior.num_samples} samples of a posterior, expected {num_samples}")
        true = _Known(posterior, [w[i : i + 1] for w in truth])
        ranks.append((_quantities(posterior, task, looked_at) < _quantities(true, task, looked_at)).sum(0))
    outputs = network.sizes[-1]
    names = [f"f{'' if outputs == 1 else k + 1}({_text(row)})" for row in looked_at for k in range(outputs)]
    return Calibration(np.stack(ranks), num_samples, (*names, "log-likelihood"))


class _Known(WeightSamples):
    """Given weights, in the place of a posterior's samples."""

    def __init__(self, like: WeightSamples, weights: list[Tensor]):
        self.like = like
        self.weights = weights

    @property
    def network(self) -> AnyNetwork:
        return self.like.network

    @property
    def likelihood(self) -> Likelihood:
        return self.like.likelihood

    @property
    def columns(self):
        return self.like.columns

    def predict(self, x: ArrayLike | Tensor) -> SampledPredictive:
        return self.predict_by_samples(x)


def _quantities(posterior: WeightSamples, task: Task, at: Tensor) -> np.ndarray:
    """(samples, quantities)."""
    values = posterior.predict_by_samples(at).outputs.flatten(1).double()
    likelihood = posterior.predict_by_samples(task.x).pointwise_log_prob(task.y).sum(1, keepdim=True)
    return torch.cat([values, likelihood], dim=1).numpy()


def _spread(count: int) -> list[int]:
    return sorted({0, count // 2, count - 1}) if count else []


def _text(row: Tensor) -> str:
    return ", ".join(f"{float(v):.2g}" for v in row)
