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
"""Numbers (components times points) that the root finder holds at once."""


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

    @property
    def shape(self) -> tuple[int, int]:
        return self.means.shape[1], self.means.shape[2]

    @property
    def device(self) -> torch.device:
        return self.means.device

    @property
    def mean(self) -> np.ndarray:
        return self._in_user_units(self.means.mean(0))

    @property
    def std(self) -> np.ndarray:
        return self._scaled((self._function_variance() + self.noise.square()).sqrt())

    @property
    def function_std(self) -> np.ndarray:
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
        scaled = (self.observed(y) - self.means) / self.spreads(noise=True)
        return as_numpy(torch.special.ndtr(scaled).mean(0))

    def quantile(self, q: float | Sequence[float], *, noise: bool = True, seed: Seed = 0) -> np.ndarray:
        """Quantiles of the mixture, by a root finder on its distribution function; shapes as in `Predictive.quantile`.

        Args:
            q: One level between 0 and 1, or several.
            noise: Whether to include the observation noise.
            seed: Not used: nothing is drawn.
        """
        levels = checked_levels(q)
        means, spreads = (as_numpy(values.flatten(1)) for values in (self.means, self.spreads(noise=noise)))
        found = np.stack([_quantile(level, means, spreads) for level in levels.flat])
        return self.quantiles_in_user_units(found.reshape(*levels.shape, *self.shape))

    def quantiles_in_user_units(self, found: np.ndarray) -> np.ndarray:
        """Quantiles (*levels, points, out) that were found in the model's units."""
        return self._in_user_units(torch.from_numpy(found).to(self.means))

    def pointwise_log_prob(self, y: ArrayLike | Tensor) -> Float[Tensor, "samples points"]:
        return self.components.log_density(self.observed(y), self.noise, together=False) - self._log_scale()

    def joint_log_prob(self, y: ArrayLike | Tensor) -> float:
        """Log predictive density of all observed points together: an average over samples of the hidden layers."""
        values = self.observed(y)
        terms = self.components.log_density(values, self.noise, together=True)[:, 0]
        return float(torch.logsumexp(terms, 0) - np.log(len(terms)) - len(values) * self._log_scale())

    def with_noise(self, noise: float) -> "MixturePredictive":
        """The same predictions under another observation noise.

        Args:
            noise: Standard deviation of the noise, in the user's units.

        Raises:
            ValueError: If `noise` is not a positive number.
        """
        check_positive("noise", noise, "as in 0.1")
        return replace(self, noise=(noise / self.columns.y_scale.to(self.noise)).expand(self.noise.shape))

    def standard_components(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations of an observation under every component, in the user's units."""
        return self._in_user_units(self.means), self._scaled(self.spreads(noise=True))

    def spreads(self, *, noise: bool) -> Float[Tensor, "samples points out"]:
        """Standard deviations of an observation, or of the function, under every component, in the model's units."""
        return (self.variances + self.noise.square() if noise else self.variances).sqrt()

    def _described(self) -> dict[str, object]:
        noise = span(self._scaled(self.noise).flat)
        return {**super()._described(), "components": len(self.means), "noise (standard deviation)": noise}


def quantiles(predictions: Sequence[Predictive], levels: Sequence[float]) -> list[np.ndarray]:
    """`prediction.quantile(levels)` of many predictions: one run of the root finder for all mixtures of a size.

    Args:
        predictions: The predictions.
        levels: Several levels between 0 and 1.

    Returns:
        One array (levels, points, out) per prediction. It does not depend on the other predictions.
    """
    sizes: dict[int, dict[int, MixturePredictive]] = {}
    found: dict[int, np.ndarray] = {}
    for i, one in enumerate(predictions):
        if isinstance(one, MixturePredictive):
            sizes.setdefault(len(one.means), {})[i] = one
        else:
            found[i] = one.quantile(levels)
    for mixtures in sizes.values():
        means = np.concatenate([as_numpy(one.means.flatten(1)) for one in mixtures.values()], axis=1)
        spreads = np.concatenate([as_numpy(one.spreads(noise=True).flatten(1)) for one in mixtures.values()], axis=1)
        together = np.stack([_quantile(level, means, spreads) for level in levels])
        ends = np.cumsum([one.means[0].numel() for one in mixtures.values()])[:-1]
        for (i, one), part in zip(mixtures.items(), np.split(together, ends, axis=1), strict=True):
            found[i] = one.quantiles_in_user_units(part.reshape(len(levels), *one.shape))
    return [found[i] for i in range(len(predictions))]


def _quantile(level: float, means: np.ndarray, spreads: np.ndarray) -> np.ndarray:
    """Quantile of mixtures of Gaussians (components, mixtures) with equal weights.

    It lies between the least and the largest quantile of the components.
    """
    from scipy import special
    from scipy.optimize import elementwise

    if level in (0, 1):
        return np.full(means.shape[1], -np.inf if level == 0 else np.inf)
    at_once = max(1, NUMBERS_AT_ONCE // len(means))
    if means.shape[1] > at_once:
        parts = [slice(i, i + at_once) for i in range(0, means.shape[1], at_once)]
        return np.concatenate([_quantile(level, means[:, part], spreads[:, part]) for part in parts])
    of_components = means + special.ndtri(level) * spreads
    low, high = of_components.min(0), of_components.max(0)
    room = 1e-6 * (spreads.max(0) + np.abs(low) + np.abs(high)) + np.finfo(np.float64).tiny

    def excess(values: np.ndarray, column: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # far from a component without width
            scaled = (values - means[:, column]) / np.maximum(spreads[:, column], np.finfo(np.float64).tiny)
        total = np.cumsum(special.ndtr(scaled), axis=0)[-1]  # in one order, however many mixtures there are
        return total / len(means) - level

    found = elementwise.find_root(excess, (low - room, high + room), args=(np.arange(means.shape[1]),))
    if not found.success.all():
        raise ArithmeticError(f"the quantile {level} of {int((~found.success).sum())} points was not found")
    return found.x
