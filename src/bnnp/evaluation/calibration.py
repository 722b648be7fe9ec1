"""Simulation-based calibration (Talts et al. 2018): is a method of inference right under its own prior?

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
from bnnp._core.show import Shown, listed
from bnnp.inference import Effort, Method, infer_many
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.gaussian import at_points
from bnnp.networks.base import AnyNetwork
from bnnp.prediction.sampled import SampledPredictive
from bnnp.prediction.weights import WeightSamples
from bnnp.priors.base import Prior
from bnnp.tasks.task import Task

_WEIGHTS, _NOISE = range(2)
FEW = 0.01
"""A p-value below this number, divided by the number of quantities, is evidence against a method."""

Posteriors = Callable[[Sequence[Task]], Sequence[WeightSamples]]


@dataclass(frozen=True, eq=False, repr=False)
class Calibration(Shown):
    """Ranks of true values among posterior samples. They are uniform if the method is right.

    Args:
        ranks: Ranks (simulations, quantities), each from 0 to `num_samples`.
        num_samples: Samples per posterior.
        names: Names of the quantities.

    Example:
        >>> found = bnnp.evaluation.Calibration(np.arange(100)[:, None] % 10, num_samples=9, names=("f(0)",))
        >>> found.histogram(bins=5).tolist()
        [[20, 20, 20, 20, 20]]
    """

    ranks: np.ndarray
    num_samples: int
    names: tuple[str, ...]

    def histogram(self, bins: int = 10) -> np.ndarray:
        """Counts of ranks in bins of equal width.

        Args:
            bins: Number of bins; it must divide `num_samples + 1`.

        Returns:
            Counts (quantities, bins).

        Raises:
            ValueError: If `bins` does not divide the number of ranks.
        """
        if (self.num_samples + 1) % bins:
            raise ValueError(f"bins: got {bins}, expected a divisor of {self.num_samples + 1}, the number of ranks")
        width = (self.num_samples + 1) // bins
        return np.stack([np.bincount(column // width, minlength=bins) for column in self.ranks.T])

    def p_values(self, bins: int = 10) -> np.ndarray:
        """For each quantity, the probability of counts at least this uneven under uniform ranks (chi-squared test)."""
        from scipy import stats

        return stats.chisquare(self.histogram(bins), axis=1).pvalue

    def uniform(self, bins: int = 10) -> bool:
        """Whether no test finds evidence against the method. A right method fails in about 1 % of cases."""
        return bool((self.p_values(bins) > FEW / len(self.names)).all())

    def _described(self) -> dict[str, object]:
        return {"simulations": len(self.ranks), "samples": self.num_samples, "quantities": listed(self.names)}


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

    The method works on all data sets at once. Draws of one Markov chain depend on each other, so that too many ranks
    lie at both ends; `effort=Effort(thin=...)` helps.

    Args:
        prior: The prior of the simulated weights, which the method also infers under.
        network: The network.
        x: Inputs of every simulated data set.
        likelihood: The distribution of simulated data given the network's outputs.
        method: As for `bnnp.infer`, or a function from data sets to posteriors, as
            `lambda sets: [model.condition(t.x, t.y, num_samples=99) for t in sets]` for a trained model.
        simulations: Number of simulated data sets.
        num_samples: Samples of each posterior.
        at: Inputs at which the function's values are ranked; by default three of `x`.
        effort: How much work goes into the inference.
        seed: Seed of all draws.
        progress: Whether to show a progress bar.

    Returns:
        The ranks, with their histogram and a test of uniformity. `bnnp.plots.rank_histograms` draws them.

    Raises:
        ValueError: If a number is not positive, or posteriors have another number of samples.

    Example:
        >>> parts = model.prior, model.network
        >>> choices = {"method": "ensemble", "effort": bnnp.inference.Effort(steps=2)}
        >>> calibrate = bnnp.evaluation.simulation_based_calibration
        >>> found = calibrate(*parts, x, likelihood=model.likelihood, simulations=3, num_samples=4, **choices)
        >>> found.ranks.shape, found.names
        ((3, 4), ('f(-1)', 'f(0)', 'f(1)', 'log-likelihood'))
    """
    if simulations < 1 or num_samples < 1:
        raise ValueError(f"simulations and num_samples: got {simulations} and {num_samples}, expected positive numbers")
    number = as_integer(seed)
    inputs = as_columns(x, "x", network.sizes[0])
    looked_at = inputs[_first_middle_last(len(inputs))] if at is None else as_columns(at, "at", network.sizes[0])
    truth, sets = _simulated(prior, network, likelihood, inputs, simulations, number)
    if isinstance(method, str | Method):
        choices = {"likelihood": likelihood, "effort": effort, "seed": number, "progress": progress}
        posteriors = infer_many(prior, network, sets, method=method, num_samples=num_samples, **choices)
    else:
        posteriors = method(sets)
    for found in {posterior.num_samples for posterior in posteriors} - {num_samples}:
        raise ValueError(f"method: got {found} samples of a posterior, expected {num_samples}")
    return Calibration(_ranks(posteriors, truth, sets, looked_at), num_samples, _names(looked_at, network.sizes[-1]))


@torch.no_grad()
def _simulated(
    prior: Prior, network: AnyNetwork, likelihood: Likelihood, inputs: Tensor, simulations: int, seed: int
) -> tuple[list[Tensor], list[Task]]:
    """Weights from the prior, and a data set in the user's units from each."""
    own = likelihood.for_outputs(network.sizes[-1]).to(prior.dtype)
    truth = prior.sample(simulations, child(seed, _WEIGHTS))
    scaled = prior.view.columns.standardise_x(inputs).to(truth[0])
    y = at_points(own, scaled).sample(network(truth, scaled.expand(simulations, *scaled.shape)), child(seed, _NOISE))
    if own.real_valued:
        y = prior.view.columns.restore_y(y)
    return truth, [Task(inputs, one.to(inputs.dtype)) for one in y]


def _ranks(posteriors: Sequence[WeightSamples], truth: list[Tensor], sets: list[Task], looked_at: Tensor) -> np.ndarray:
    """Ranks of the true weights' quantities among those of each posterior's samples (simulations, quantities)."""
    ranks = []
    for i, (task, posterior) in enumerate(zip(sets, posteriors, strict=True)):
        true = _Known(posterior, [w[i : i + 1] for w in truth])
        ranks.append((_quantities(posterior, task, looked_at) < _quantities(true, task, looked_at)).sum(0))
    return np.stack(ranks)


class _Known(WeightSamples):
    """Known weights in the form of a posterior's samples."""

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
    """The ranked quantities of every weight sample (samples, quantities)."""
    values = posterior.predict_by_samples(at).outputs.flatten(1).double()
    likelihood = posterior.predict_by_samples(task.x).pointwise_log_prob(task.y).sum(1, keepdim=True)
    return torch.cat([values, likelihood], dim=1).cpu().numpy()


def _first_middle_last(count: int) -> list[int]:
    return sorted({0, count // 2, count - 1}) if count else []


def _names(at: Tensor, outputs: int) -> tuple[str, ...]:
    """Names of the quantities: outputs at each input, and the log-likelihood."""
    values = [f"f{'' if outputs == 1 else k + 1}({_text(row)})" for row in at for k in range(outputs)]
    return (*values, "log-likelihood")


def _text(row: Tensor) -> str:
    return ", ".join(f"{float(v):.2g}" for v in row)
