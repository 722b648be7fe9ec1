"""The contract of a prediction at new inputs."""

import abc
import copy
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.arrays import as_columns
from bnnp._core.checks import is_number
from bnnp._core.columns import Columns
from bnnp._core.random import Seed
from bnnp._core.shapes import Float, Tensor
from bnnp._core.show import Shown, listed
from bnnp.likelihoods.base import Likelihood
from bnnp.prediction.frames import QUANTILES, dataset, frame
from bnnp.prediction.lognormal import moments

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr


class Predictive(Shown, abc.ABC):
    """Predictions at new inputs, in the user's units, as NumPy arrays.

    `SampledPredictive` makes them from whole-function samples, `MixturePredictive` from a mixture of Gaussians.

    Attributes:
        likelihood: The likelihood of an observation.
        columns: Names, shifts and scales of the user's columns.
        inputs: The inputs (points, in) of the predictions, in the user's units; None where they are not known.

    Example:
        >>> pred = post.predict(x_new)
        >>> isinstance(pred, bnnp.Predictive)
        True
        >>> pred.mean.shape, pred.std.shape, pred.samples.shape
        ((2, 1), (2, 1), (20, 2, 1))
        >>> pred.quantile([0.05, 0.95]).shape
        (2, 2, 1)
        >>> pred.log_prob([0.8, 0.9]).shape
        (2,)
    """

    likelihood: Likelihood
    columns: Columns
    inputs: np.ndarray | None

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
        """Samples of new observations (samples, points, y): each function sample with its own noise.

        Args:
            seed: Seed of the noise.
        """

    @abc.abstractmethod
    def quantile(self, q: float | Sequence[float], *, noise: bool = True, seed: Seed = 0) -> np.ndarray:
        """Quantiles of a new observation, or of the function itself.

        Args:
            q: One level between 0 and 1, or several.
            noise: Whether to include the observation noise.
            seed: Seed of the noise, where it is drawn.

        Returns:
            An array (points, out) for one level, (levels, points, out) for several.

        Raises:
            ValueError: If a level is not between 0 and 1, or if outputs are class labels.

        Example:
            >>> post.predict(x_new).quantile([0.05, 0.95]).shape
            (2, 2, 1)
        """

    @abc.abstractmethod
    def pointwise_log_prob(self, y: ArrayLike | Tensor) -> Float[Tensor, "samples points"]:
        """Log-density of every observed point under every sample, in the user's units, in float64.

        Args:
            y: Observed outputs (points, out).
        """

    @abc.abstractmethod
    def joint_log_prob(self, y: ArrayLike | Tensor) -> float:
        """Log predictive density of all observed points together, in the user's units.

        Args:
            y: Observed outputs (points, out).
        """

    @property
    @abc.abstractmethod
    def shape(self) -> tuple[int, int]:
        """Number of points, and number of outputs of the network."""

    @property
    @abc.abstractmethod
    def device(self) -> torch.device:
        """Device of the predictions."""

    def interval(self, level: float, *, noise: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """The central interval of a new observation, or of the function itself.

        Args:
            level: Probability of the interval, between 0 and 1.
            noise: Whether to include the observation noise.

        Returns:
            The lower and the upper ends (points, out).

        Raises:
            ValueError: If `level` is not between 0 and 1.

        Example:
            >>> low, high = post.predict(x_new).interval(0.9)
            >>> bool((low < high).all())
            True
        """
        if not (is_number(level) and 0 < level < 1):
            raise ValueError(f"level: got {level!r}, expected a number between 0 and 1, as in 0.9")
        low, high = self.quantile([(1 - level) / 2, (1 + level) / 2], noise=noise)
        return low, high

    def to_frame(self, quantiles: Sequence[float] = QUANTILES) -> "pd.DataFrame":
        """The predictions as a data frame, one row per point, in the user's units and under the user's names.

        Args:
            quantiles: Levels between 0 and 1 of the quantiles of a new observation; there are none for class labels.

        Returns:
            A frame with the inputs and, for every output, its mean, standard deviation and quantiles; for class
            labels, the probability of every class.

        Raises:
            ValueError: If a level is not between 0 and 1.

        Example:
            >>> list(post.predict(x_new).to_frame(quantiles=[0.1, 0.9]))
            ['x0', 'y0_mean', 'y0_std', 'y0_q10', 'y0_q90']
        """
        return frame(self, quantiles)

    def to_xarray(self) -> "xr.Dataset":
        """The predictions as labelled arrays, in the user's units. Needs the package xarray (`pip install bnnp[data]`).

        Returns:
            A dataset of `mean`, `std`, `function_std` (point, output) and `samples` (sample, point, output); its
            coordinates are the names of the outputs and the inputs of every point.

        Raises:
            ImportError: If xarray is not installed.

        Example:
            >>> found = post.predict(x_new).to_xarray()
            >>> dict(found.sizes)
            {'point': 2, 'output': 1, 'sample': 20}
            >>> found["mean"].sel(output="y0")["x0"].values
            array([0.5, 2. ])
        """
        return dataset(self)

    def at(self, x: Float[Tensor, "points x"]) -> Self:
        """The same predictions, with the inputs that they are for, in the user's units.

        They keep the units and the noise of now: a training that goes on changes those of the model.
        """
        record: Any = self
        learned = any(True for _ in self.likelihood.parameters())
        likelihood = copy.deepcopy(self.likelihood) if learned else self.likelihood
        return replace(record, inputs=as_numpy(x), columns=copy.deepcopy(self.columns), likelihood=likelihood)

    def log_prob(self, y: ArrayLike | Tensor) -> np.ndarray:
        """Log predictive density of each observed point by itself, in the user's units.

        Args:
            y: Observed outputs (points, out).

        Returns:
            One value per point (points,).

        Raises:
            ValueError: If `y` does not have one row per input.
        """
        terms = self.pointwise_log_prob(y)
        return as_numpy(torch.logsumexp(terms, 0) - math.log(len(terms)))

    def observed(self, y: ArrayLike | Tensor) -> Float[Tensor, "points y"]:
        """A user's outputs at these inputs, checked and in the model's units.

        Raises:
            ValueError: If `y` does not have one row per input, or does not suit the likelihood.
        """
        points, out = self.shape
        width, names = self.likelihood.y_size(out), self.columns.given_names("y")
        values = as_columns(y, "y", width, names if len(names) == width else ()).to(self.device)
        if len(values) != points:
            raise ValueError(f"y: got {len(values)} points, expected {points}, one for each input")
        self.likelihood.check(values)
        self.columns.check_positive(values, "y")
        return self.columns.standardise_y(values) if self.likelihood.real_valued else values

    def _in_user_units(self, values: Tensor) -> np.ndarray:
        return as_numpy(self.columns.restore_y(values))

    def _scaled(self, values: Tensor) -> np.ndarray:
        return as_numpy(values * self.columns.y_scale)

    def _of_positive(self, means: Tensor, variances: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Mean and standard deviation of positive outputs whose logarithms have a mixture of normals."""
        scale = self.columns.y_scale.double()
        mean, deviation = moments(means.double() * scale + self.columns.y_shift, variances.double() * scale.square())
        return as_numpy(mean), as_numpy(deviation)

    def _described(self) -> dict[str, object]:
        return {"shape (points, outputs)": self.shape, "outputs": listed(self.columns.y_names)}


def checked_levels(q: float | Sequence[float]) -> np.ndarray:
    """The levels as an array, or a `ValueError` if one is not between 0 and 1."""
    given = np.asarray(q)
    if given.dtype == bool or given.ndim > 1:
        raise ValueError(f"q: got {q}, expected a number between 0 and 1, or a list of them")
    levels = as_columns(np.atleast_1d(given), "q").numpy().reshape(given.shape)
    if levels.size == 0 or not ((levels >= 0) & (levels <= 1)).all():
        raise ValueError(f"q: got {q}, expected numbers between 0 and 1")
    return levels


def as_numpy(values: Tensor) -> np.ndarray:
    """The tensor as a NumPy array."""
    return values.detach().cpu().numpy()
