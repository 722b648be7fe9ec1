"""Predictions as a mixture of Gaussians, one per sample of the hidden layers: the last layer is integrated."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.checks import check_positive
from bnnp._core.columns import Columns
from bnnp._core.random import Seed, as_generator, normal
from bnnp._core.shapes import Float, Tensor
from bnnp._core.show import span
from bnnp.likelihoods.base import Likelihood
from bnnp.prediction.base import Predictive, as_numpy, checked_levels

NUMBERS_AT_ONCE = 2**22
"""Numbers (levels times components times points) that the root finder holds at once."""
MOST_STEPS = 4000
"""Steps of the root finder, enough to halve any distance of two numbers down to nothing."""


class Components(Protocol):
    """What the Gaussians of a mixture give beyond their moments, in the model's units.

    Attributes:
        exact: Whether the mixture is the exact posterior predictive: nothing was sampled.
    """

    @property
    def exact(self) -> bool: ...

    def functions(self) -> Float[Tensor, "samples points out"]:
        """One whole function drawn from each component."""
        ...

    def log_density(
        self, y: Float[Tensor, "points out"], noise: Float[Tensor, "points out"], *, together: bool
    ) -> Float[Tensor, "samples _groups"]:
        """Log-density of observations under every component.

        Args:
            y: The observations.
            noise: The standard deviation of their noise.
            together: Whether to give one value for all points (samples, 1), or one per point (samples, points).
        """
        ...


@dataclass(frozen=True, eq=False, repr=False)
class MixturePredictive(Predictive):
    """A mixture of Gaussians with equal weights, exact given the samples of the hidden layers.

    `post.predict(x)` gives it under a Gaussian likelihood.

    Attributes:
        means: Means of the function under every component, in the model's own units.
        variances: Variances of the function under every component, in the model's own units.
        noise: Standard deviation of the observation noise, in the model's own units.
        components: The Gaussians over whole functions, for samples and joint densities.
        likelihood: The likelihood of an observation.
        columns: Names, shifts and scales of the user's columns.
        inputs: The inputs of the predictions, in the user's units; None where they are not known.

    Example:
        >>> pred = post.predict(x_new)
        >>> isinstance(pred, bnnp.MixturePredictive), len(pred.means)
        (True, 20)
        >>> bool((pred.std > pred.function_std).all())
        True
        >>> pred.cdf(pred.quantile(0.9)).round(2).tolist()
        [[0.9], [0.9]]
    """

    means: Float[Tensor, "samples points out"]
    variances: Float[Tensor, "samples points out"]
    noise: Float[Tensor, "points out"]
    components: Components
    likelihood: Likelihood
    columns: Columns
    inputs: np.ndarray | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self.means.shape[1], self.means.shape[2]

    @property
    def device(self) -> torch.device:
        return self.means.device

    @property
    def mean(self) -> np.ndarray:
        if self.columns.positive:
            return self._of_positive(self.means, self.variances + self.noise.square())[0]
        return self._in_user_units(self.means.mean(0))

    @property
    def std(self) -> np.ndarray:
        if self.columns.positive:
            return self._of_positive(self.means, self.variances + self.noise.square())[1]
        return self._scaled((self._function_variance() + self.noise.square()).sqrt())

    @property
    def function_std(self) -> np.ndarray:
        if self.columns.positive:
            return self._of_positive(self.means, self.variances)[1]
        return self._scaled(self._function_variance().sqrt())

    def _function_variance(self) -> Tensor:
        return self.means.var(0, correction=0) + self.variances.mean(0)

    @property
    def samples(self) -> np.ndarray:
        return self._in_user_units(self.components.functions())

    def observations(self, seed: Seed = 0) -> np.ndarray:
        functions = self.components.functions()
        return self._in_user_units(functions + self.noise * normal(functions.shape, functions, as_generator(seed)))

    def cdf(self, y: ArrayLike | Tensor) -> np.ndarray:
        """Probability that a new observation is at most `y`, each output by itself.

        Args:
            y: Values (points, out).

        Returns:
            Probabilities (points, out).
        """
        scaled = (self.observed(y) - self.means) / self._spreads(noise=True)
        return as_numpy(torch.special.ndtr(scaled).mean(0))

    def quantile(self, q: float | Sequence[float], *, noise: bool = True, seed: Seed = 0) -> np.ndarray:
        """Quantiles of the mixture, by a root finder on its distribution function; shapes as in `Predictive.quantile`.

        Args:
            q: One level between 0 and 1, or several.
            noise: Whether to include the observation noise.
            seed: Not used: nothing is drawn.
        """
        levels = checked_levels(q)
        means, spreads = (as_numpy(values.flatten(1)) for values in (self.means, self._spreads(noise=noise)))
        found = _quantiles(levels.ravel(), means, spreads)
        values = torch.from_numpy(found.reshape(*levels.shape, *self.shape)).to(self.means)
        return self._in_user_units(values)

    def pointwise_log_prob(self, y: ArrayLike | Tensor) -> Float[Tensor, "samples points"]:
        values = self.observed(y)
        return self.components.log_density(values, self.noise, together=False) + self.columns.log_slope(values)

    def joint_log_prob(self, y: ArrayLike | Tensor) -> float:
        """Log predictive density of all observed points together: an average over samples of the hidden layers."""
        values = self.observed(y)
        terms = self.components.log_density(values, self.noise, together=True)[:, 0]
        return float(torch.logsumexp(terms, 0) - np.log(len(terms)) + self.columns.log_slope(values).sum())

    def with_noise(self, noise: float) -> "MixturePredictive":
        """The same predictions under another observation noise.

        Args:
            noise: Standard deviation of the noise, in the user's units; of the logarithm, for positive outputs.

        Raises:
            ValueError: If `noise` is not a positive number.
        """
        check_positive("noise", noise, "as in 0.1")
        return replace(self, noise=(noise / self.columns.y_scale.to(self.noise)).expand(self.noise.shape))

    def standard_components(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of an observation under every component, in the user's units.

        For positive outputs they are those of its logarithm.
        """
        means = self.means.double() * self.columns.y_scale + self.columns.y_shift
        return as_numpy(means), self._scaled(self._spreads(noise=True))

    def _spreads(self, *, noise: bool) -> Float[Tensor, "samples points out"]:
        return (self.variances + self.noise.square() if noise else self.variances).sqrt()

    def _described(self) -> dict[str, object]:
        noise = span(self._scaled(self.noise).flat)
        return {**super()._described(), "components": len(self.means), "noise (standard deviation)": noise}


def _quantiles(levels: np.ndarray, means: np.ndarray, spreads: np.ndarray) -> np.ndarray:
    """Quantiles (levels, mixtures) of mixtures of Gaussians (components, mixtures) with equal weights."""
    from scipy import special

    at_once = max(1, NUMBERS_AT_ONCE // (len(levels) * len(means)))
    if means.shape[1] > at_once:
        parts = [slice(i, i + at_once) for i in range(0, means.shape[1], at_once)]
        return np.concatenate([_quantiles(levels, means[:, part], spreads[:, part]) for part in parts], axis=1)
    inner = (levels > 0) & (levels < 1)
    found = np.full((len(levels), means.shape[1]), np.where(levels == 0, -np.inf, np.inf)[:, None])
    columns = levels[inner][:, None, None]
    of_components = means + special.ndtri(columns) * spreads
    found[inner] = _roots(levels[inner][:, None], means, spreads, of_components.min(1), of_components.max(1))
    return found


def _roots(levels: np.ndarray, means: np.ndarray, spreads: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Where the distribution functions of mixtures reach their levels: Newton's method, kept between two bounds.

    A quantile lies between the least and the largest of the components, which are the first bounds. Where a step did
    not halve the error, the next one halves the distance of the bounds, so that the search ends for any mixture.
    """
    from scipy import special

    eps, tiny = np.finfo(np.float64).eps, np.finfo(np.float64).tiny
    spreads, before = np.maximum(spreads, tiny), np.inf
    width = np.sqrt(np.square(spreads).mean(0) + means.var(0))
    values = np.clip(means.mean(0) + special.ndtri(levels) * width, low, high)
    for _ in range(MOST_STEPS):
        with np.errstate(all="ignore"):  # far from a component without width
            scaled = (values[:, None] - means) / spreads
            excess = special.ndtr(scaled).mean(1) - levels
            newton = values - excess / ((np.exp(-0.5 * scaled**2) / spreads).mean(1) / np.sqrt(2 * np.pi))
        error, near = np.abs(excess), 8 * eps * np.abs(values) + tiny
        low, high = np.where(excess <= 0, values, low), np.where(excess >= 0, values, high)
        still = (np.abs(newton - values) <= near) & (error < 1e-9)
        settled = still | (high - low <= near) | (error <= 32 * eps * levels)
        if settled.all():
            return values
        inside = (newton > low) & (newton < high) & (error <= before / 2)
        values = np.where(settled, values, np.where(inside, newton, (low + high) / 2))
        before = error
    raise ArithmeticError(f"quantiles of {means.shape[1]} points were not found: their means or widths are not finite")
