"""What a model says about new points: whole-function samples and everything that follows from them."""

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._random import Seed, as_generator
from bnnp._shapes import Float, Tensor
from bnnp._workers import in_parallel
from bnnp.functions import Function, functions_of
from bnnp.likelihoods import Categorical, Likelihood
from bnnp.network import AnyNetwork
from bnnp.tasks.standardise import Standardiser
from bnnp.tasks.task import as_columns

NUMBERS_AT_ONCE = 2**22
"""Activations held at once while predicting: 16 MB in float32, which stays in the cache of a large processor."""


@dataclass(frozen=True)
class Drawn:
    """Whole functions of a model that draws one point after the other, each given those before, in its own units.

    functions: their means;  observations: the points as they were drawn.
    log_prob: log-density of all points together, in the user's units, by the chain rule.
    """

    functions: Float[Tensor, "samples points _out"]
    observations: Float[Tensor, "samples points y"]
    log_prob: Callable[[ArrayLike | Tensor], float]


class Predictive(abc.ABC):
    """Predictions at new inputs, in the user's units. Arrays are NumPy.

    A leaf says what it is made of: `SampledPredictive` of whole-function samples, `MixturePredictive` of Gaussians.
    """

    likelihood: Likelihood
    standardiser: Standardiser

    @property
    @abc.abstractmethod
    def mean(self) -> np.ndarray:
        """Predictive mean (points, out); class probabilities for a categorical likelihood."""

    @property
    @abc.abstractmethod
    def std(self) -> np.ndarray:
        """Standard deviation of a new observation (points, out)."""

    @property
    @abc.abstractmethod
    def function_std(self) -> np.ndarray:
        """Standard deviation of the function itself, without observation noise (points, out)."""

    @property
    @abc.abstractmethod
    def samples(self) -> np.ndarray:
        """Function samples without observation noise (samples, points, out): each row is one coherent function."""

    @abc.abstractmethod
    def observations(self, seed: Seed = 0) -> np.ndarray:
        """Samples of new observations (samples, points, y): each function sample with its own noise."""

    @abc.abstractmethod
    def quantile(self, q: float | Sequence[float], *, noise: bool = True, seed: Seed = 0) -> np.ndarray:
        """Quantiles of a new observation, or of the function itself with `noise=False`.

        One `q` gives (points, out), several give (quantiles, points, out). Example: `pred.quantile([0.05, 0.95])`
        """

    @abc.abstractmethod
    def pointwise_log_prob(self, y: ArrayLike | Tensor) -> Float[Tensor, "samples points"]:
        """Log-density of every point under every sample, in the user's units, in float64."""

    @abc.abstractmethod
    def joint_log_prob(self, y: ArrayLike | Tensor) -> float:
        """Log predictive density of all observed points together."""

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """Points, and outputs of the network."""

    @property
    @abc.abstractmethod
    def device(self) -> torch.device: ...

    def interval(self, level: float, *, noise: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends (points, out) of the central interval for a new observation.

        With `noise=False`, the function itself. Example: `low, high = pred.interval(0.9)`
        """
        if not 0 < level < 1:
            raise ValueError(f"level: got {level}, expected a number between 0 and 1, as in 0.9")
        low, high = self.quantile([(1 - level) / 2, (1 + level) / 2], noise=noise)
        return low, high

    def log_prob(self, y: ArrayLike | Tensor) -> np.ndarray:
        """Log predictive density of each observed point by itself (points,)."""
        terms = self.pointwise_log_prob(y)
        return as_numpy(torch.logsumexp(terms, 0) - math.log(len(terms)))

    def observed(self, y: ArrayLike | Tensor) -> Float[Tensor, "points y"]:
        """A user's outputs at these inputs, in the model's units."""
        points, out = self.shape
        values = as_columns(y, "y", self.likelihood.y_size(out)).to(self.device)
        if len(values) != points:
            raise ValueError(f"y: got {len(values)} points, expected {points}, one for each input")
        self.likelihood.check(values)
        return self.standardiser.y(values) if self.likelihood.real_valued else values

    def _in_user_units(self, values: Tensor) -> np.ndarray:
        return as_numpy(self.standardiser.undo_y(values))

    def _scaled(self, values: Tensor) -> np.ndarray:
        return as_numpy(values * self.standardiser.y_scale)

    def _log_scale(self) -> Tensor:
        """By how much log-densities in the user's units are lower than in the model's."""
        return self.standardiser.y_scale.double().log().sum()


@dataclass(frozen=True)
class SampledPredictive(Predictive):
    """Everything from whole-function samples.

    outputs: the network's outputs for every weight sample, in the model's own units.
    drawn: where points of a sample are not independent given the outputs, what they are together.
    """

    outputs: Float[Tensor, "samples points out"]
    likelihood: Likelihood
    standardiser: Standardiser
    drawn: Drawn | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.outputs.shape[1], self.outputs.shape[2]

    @property
    def device(self) -> torch.device:
        return self.outputs.device

    @property
    @torch.no_grad()
    def mean(self) -> np.ndarray:
        return self._in_user_units(self.likelihood.mean(self.outputs).mean(0))

    @property
    @torch.no_grad()
    def std(self) -> np.ndarray:
        between = self.likelihood.mean(self.outputs).var(0, correction=0)
        return self._scaled((between + self.likelihood.variance(self.outputs).mean(0)).sqrt())

    @property
    @torch.no_grad()
    def function_std(self) -> np.ndarray:
        return self._scaled(self._functions().std(0, correction=0))

    @property
    @torch.no_grad()
    def samples(self) -> np.ndarray:
        return self._in_user_units(self._functions())

    def _functions(self) -> Tensor:
        return self.likelihood.mean(self.outputs) if self.drawn is None else self.drawn.functions

    @torch.no_grad()
    def observations(self, seed: Seed = 0) -> np.ndarray:
        if self.drawn is None:
            values = self.likelihood.sample(self.outputs, as_generator(seed))
        else:
            values = self.drawn.observations
        return self._in_user_units(values) if self.likelihood.real_valued else as_numpy(values)

    def quantile(self, q: float | Sequence[float], *, noise: bool = True, seed: Seed = 0) -> np.ndarray:
        """Quantiles of the samples; `seed` is that of their noise. `Predictive.quantile` has the shapes."""
        if isinstance(self.likelihood, Categorical):
            raise ValueError("quantile: class labels have no order; use `mean` for the class probabilities")
        return np.quantile(self.observations(seed) if noise else self.samples, checked_levels(q), axis=0)

    def joint_log_prob(self, y: ArrayLike | Tensor) -> float:
        """Log predictive density of all observed points together. Biased downwards, less so with more samples."""
        if self.drawn is not None:
            return self.drawn.log_prob(y)
        terms = self.pointwise_log_prob(y).sum(-1)
        return float(torch.logsumexp(terms, 0) - math.log(len(terms)))

    @torch.no_grad()
    def pointwise_log_prob(self, y: ArrayLike | Tensor) -> Float[Tensor, "samples points"]:
        terms = self.likelihood.log_prob(self.outputs.double(), self.observed(y))
        return terms - self._log_scale()


def checked_levels(q: float | Sequence[float]) -> np.ndarray:
    levels = np.asarray(q, dtype=float)
    if levels.size == 0 or not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError(f"q: got {q}, expected numbers between 0 and 1")
    return levels


class WeightSamples(abc.ABC):
    """Samples of the weights of a network, and what follows from them: predictions and functions.

    weights: every layer's samples (samples, d_in + 1, d_out), the last row being the bias.
    """

    weights: list[Float[Tensor, "samples _d _out"]]

    @property
    @abc.abstractmethod
    def network(self) -> AnyNetwork: ...

    @property
    @abc.abstractmethod
    def likelihood(self) -> Likelihood: ...

    @property
    @abc.abstractmethod
    def standardiser(self) -> Standardiser: ...

    @property
    def num_samples(self) -> int:
        return self.weights[0].shape[0]

    @abc.abstractmethod
    def predict(self, x: ArrayLike | Tensor) -> Predictive:
        """Predictions at new inputs (points, in).

        Example: `pred = post.predict(x_new)`; then `pred.mean`, `pred.std`, `pred.quantile([0.05, 0.95])`.
        """

    def predict_by_samples(self, x: ArrayLike | Tensor) -> SampledPredictive:
        """Predictions as the weight samples make them, every layer's: no part is integrated."""
        outputs = network_outputs(self.network, self.weights, self.prepared_inputs(x))
        return SampledPredictive(outputs, self.likelihood, self.standardiser)

    def prepared_inputs(self, x: ArrayLike | Tensor) -> Float[Tensor, "points x"]:
        """A user's inputs in the model's units and precision."""
        inputs = as_columns(x, "x", self.network.sizes[0]).to(self.weights[0].device)
        return self.standardiser.x(inputs).to(self.weights[0])

    def functions(self) -> list[Function]:
        """Functions drawn from the posterior, one per weight sample: `fs[0](x)` gives (n, out) in NumPy."""
        return functions_of(self.network, self.weights, self.standardiser, self.likelihood.mean)


def network_outputs(
    network: AnyNetwork, weights: Sequence[Float[Tensor, "samples _d _out"]], x: Float[Tensor, "points x"]
) -> Float[Tensor, "samples points y"]:
    """Outputs of every weight sample at every input, in chunks of points and samples that keep memory bounded."""
    widest = max(network.sizes) + 1
    outputs = x.new_empty(weights[0].shape[0], len(x), network.sizes[-1])

    def compute(some: slice, here: slice) -> Tensor:
        return network([w[some] for w in weights], x[here])

    return fill_in_blocks(outputs, compute, widest, whole_rows=network.mixes_points)


def fill_in_blocks(
    outputs: Float[Tensor, "samples points out"],
    compute: Callable[[slice, slice], Tensor],
    numbers: int,
    *,
    whole_rows: bool = False,
) -> Float[Tensor, "samples points out"]:
    """Fill outputs block by block with `compute(samples, points)`.

    numbers: that are held at once for one sample at one point;  whole_rows: all points of a sample at once.
    """
    count, n, _ = outputs.shape
    points = max(1, n if whole_rows else min(n, NUMBERS_AT_ONCE // numbers))
    samples = max(1, NUMBERS_AT_ONCE // (numbers * points))

    def fill(corner: tuple[int, int]) -> None:
        some, here = (slice(start, start + size) for start, size in zip(corner, (samples, points), strict=True))
        outputs[some, here] = compute(some, here)

    with torch.no_grad():
        in_parallel(fill, [(k, i) for k in range(0, count, samples) for i in range(0, n, points)])
    return outputs


def as_numpy(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()
