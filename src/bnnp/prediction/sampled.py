"""Predictions from whole-function samples."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.columns import Columns
from bnnp._core.random import Seed, as_generator
from bnnp._core.shapes import Float, Tensor
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.categorical import Categorical
from bnnp.prediction.base import Predictive, as_numpy, checked_levels


@dataclass(frozen=True, eq=False)
class DrawnInTurn:
    """Whole functions of a model that draws points in turn, each given those before, in the model's own units.

    Attributes:
        functions: The mean of every point given those before.
        observations: The points as they were drawn.
        log_prob: Gives the log-density of all points together, in the user's units, by the chain rule.
    """

    functions: Float[Tensor, "samples points _out"]
    observations: Float[Tensor, "samples points y"]
    log_prob: Callable[[ArrayLike | Tensor], float]


@dataclass(frozen=True, eq=False, repr=False)
class SampledPredictive(Predictive):
    """Predictions from whole-function samples, under any likelihood.

    Attributes:
        outputs: The network's outputs for every weight sample, in the model's own units.
        likelihood: The likelihood of an observation.
        columns: Names, shifts and scales of the user's columns.
        drawn: The whole functions as they were drawn, where points of a sample are not independent given the outputs.
        inputs: The inputs of the predictions, in the user's units; None where they are not known.

    Example:
        >>> pred = post.predict_by_samples(x_new)
        >>> isinstance(pred, bnnp.SampledPredictive)
        True
        >>> pred.samples.shape, pred.observations(seed=0).shape
        ((20, 2, 1), (20, 2, 1))
    """

    outputs: Float[Tensor, "samples points out"]
    likelihood: Likelihood
    columns: Columns
    drawn: DrawnInTurn | None = None
    inputs: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.outputs.shape[1], self.outputs.shape[2]

    @property
    def device(self) -> torch.device:
        return self.outputs.device

    @property
    @torch.no_grad()
    def mean(self) -> np.ndarray:
        if self.columns.positive:
            return self._of_positive(self.likelihood.mean(self.outputs), self.likelihood.variance(self.outputs))[0]
        return self._in_user_units(self.likelihood.mean(self.outputs).mean(0))

    @property
    @torch.no_grad()
    def std(self) -> np.ndarray:
        if self.columns.positive:
            return self._of_positive(self.likelihood.mean(self.outputs), self.likelihood.variance(self.outputs))[1]
        between = self.likelihood.mean(self.outputs).var(0, correction=0)
        return self._scaled((between + self.likelihood.variance(self.outputs).mean(0)).sqrt())

    @property
    @torch.no_grad()
    def function_std(self) -> np.ndarray:
        if self.columns.positive:
            return self._of_positive(self._functions(), torch.zeros_like(self._functions()))[1]
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
        """Quantiles of the samples. `Predictive.quantile` has the shapes.

        Args:
            q: One level between 0 and 1, or several.
            noise: Whether to include the observation noise.
            seed: Seed of the noise.

        Raises:
            ValueError: If a level is not between 0 and 1, or if outputs are class labels.
        """
        if isinstance(self.likelihood, Categorical):
            raise ValueError("quantile: class labels have no order; use `mean` for the class probabilities")
        return np.quantile(self.observations(seed) if noise else self.samples, checked_levels(q), axis=0)

    def joint_log_prob(self, y: ArrayLike | Tensor) -> float:
        """Log predictive density of all observed points together. It is biased downwards, less so with more samples."""
        if self.drawn is not None:
            return self.drawn.log_prob(y)
        terms = self.pointwise_log_prob(y).sum(-1)
        return float(torch.logsumexp(terms, 0) - math.log(len(terms)))

    @torch.no_grad()
    def pointwise_log_prob(self, y: ArrayLike | Tensor) -> Float[Tensor, "samples points"]:
        values = self.observed(y)
        terms = self.likelihood.log_prob(self.outputs.double(), values)
        return terms + self.columns.log_slope(values) if self.likelihood.real_valued else terms

    def _described(self) -> dict[str, object]:
        return {**super()._described(), "samples": len(self.outputs), "likelihood": type(self.likelihood).__name__}
