"""The paper's synthetic processes (App. F). The defaults are its settings, and every constant is an argument."""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from numpy.typing import ArrayLike

from bnnp._core.arrays import as_columns
from bnnp._core.checks import is_number
from bnnp._core.ranges import Ranges
from bnnp._core.shapes import Float, Tensor
from bnnp.networks.perceptron import Network
from bnnp.tasks.exact import ExactPredictive, gaussian_process_posterior
from bnnp.tasks.source import Functions
from bnnp.tasks.task import Task

_JITTER = 1e-10
"""Added to the variance of drawn (not inferred) GP values: in floating point their covariance matrix is singular."""


@dataclass(frozen=True)
class Synthetic(Functions):
    """Functions of one input at uniform inputs with Gaussian noise.

    Args:
        noise: Standard deviation of the observations.
        low: Lower end of the range of inputs.
        high: Upper end of the range of inputs.
        points: The smallest and the largest size of a task.
    """

    noise: float
    low: float
    high: float
    points: tuple[int, int]

    def __post_init__(self):
        numbers = all(is_number(value) for value in (self.noise, self.low, self.high))
        if not numbers or self.noise < 0 or not self.low < self.high:
            raise ValueError(
                f"got noise={self.noise}, low={self.low}, high={self.high}; expected noise >= 0 and low < high"
            )
        if not isinstance(self.points, tuple | list) or not 2 <= self.points[0] <= self.points[-1]:
            raise ValueError(f"points: got {self.points}, expected a range of at least 2 points, as in (40, 100)")

    def ranges(self) -> Ranges:
        return replace(super().ranges(), x=((float(self.low), float(self.high)),))

    @abc.abstractmethod
    def values(self, x: Float[Tensor, "points 1"], generator: torch.Generator) -> Float[Tensor, "points 1"]:
        """Values of one random function at `x`, without noise."""

    def draw_one(self, generator: torch.Generator) -> Task:
        return self.draw_with_function(generator, torch.empty(0, 1, dtype=torch.float64))[0]

    def draw_with_function(
        self, generator: torch.Generator, inputs: Float[Tensor, "inputs 1"]
    ) -> tuple[Task, Float[Tensor, "inputs 1"]]:
        """A task, and the values of its function at other inputs, without noise."""
        n = int(torch.randint(self.points[0], self.points[1] + 1, (), generator=generator))
        x = self.low + (self.high - self.low) * torch.rand(n, 1, generator=generator, dtype=torch.float64)
        clean = self.values(torch.cat([x, inputs]), generator)
        noise = self.noise * torch.randn(n, 1, generator=generator, dtype=torch.float64)
        return Task(x, clean[:n] + noise), clean[n:]


@dataclass(frozen=True)
class Sawtooth(Synthetic):
    """`slope_sd e1 x + offset_sd e2 + height (remainder(x, period) - period/2)` with standard normal `e1, e2`."""

    period: float = 0.75
    height: float = 1.33
    slope_sd: float = 1 / 3
    offset_sd: float = 0.25

    def teeth(self, x: Tensor) -> Tensor:
        """The part of the function that is the same in every draw."""
        return self.height * (torch.remainder(x, self.period) - self.period / 2)

    def values(self, x: Tensor, generator: torch.Generator) -> Tensor:
        e1, e2 = torch.randn(2, generator=generator, dtype=torch.float64)
        return self.slope_sd * e1 * x + self.offset_sd * e2 + self.teeth(x)

    def oracle(self, x: ArrayLike | Tensor, y: ArrayLike | Tensor, x_new: ArrayLike | Tensor) -> ExactPredictive:
        """The exact predictive at `x_new`, given `x` and `y`. With fixed period and phase, the process is Gaussian."""

        def covariance(a: Tensor, b: Tensor) -> Tensor:
            return self.slope_sd**2 * a @ b.T + self.offset_sd**2

        return _oracle(self.teeth, covariance, self.noise, x, y, x_new)


@dataclass(frozen=True)
class GaussianProcess(Synthetic):
    """Draws of a zero-mean GP with squared-exponential covariance."""

    length_scale: float = 0.5
    output_scale: float = 1.0

    def covariance(self, a: Float[Tensor, "n 1"], b: Float[Tensor, "m 1"]) -> Float[Tensor, "n m"]:
        """Covariance of the function between inputs `a` and inputs `b`."""
        return self.output_scale**2 * squared_exponential(a, b, self.length_scale)

    def values(self, x: Tensor, generator: torch.Generator) -> Tensor:
        return self.output_scale * draw_gp(x, self.length_scale, generator)

    def oracle(self, x: ArrayLike | Tensor, y: ArrayLike | Tensor, x_new: ArrayLike | Tensor) -> ExactPredictive:
        """The exact predictive at `x_new`, given `x` and `y`."""
        return _oracle(torch.zeros_like, self.covariance, self.noise, x, y, x_new)


@dataclass(frozen=True)
class Heaviside(Synthetic):
    """The sign of a GP draw less its mean over the inputs: values -1 and +1. There is no exact predictive."""

    length_scale: float = 1.0

    def values(self, x: Tensor, generator: torch.Generator) -> Tensor:
        smooth = draw_gp(x, self.length_scale, generator)
        return torch.where(smooth > smooth.mean(), 1.0, -1.0).to(x.dtype)


@dataclass(frozen=True)
class BNNFunctions(Synthetic):
    """Functions of a network whose weights have the standard prior: mean 0, variance `1/(d_in + 1)`."""

    hidden: tuple[int, ...] = (64, 64)
    activation: str = "relu"
    network: Network = field(init=False)

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "network", Network((1, *self.hidden, 1), self.activation))

    def values(self, x: Tensor, generator: torch.Generator) -> Tensor:
        shapes = self.network.weight_shapes
        weights = [torch.randn(shape, generator=generator, dtype=x.dtype) / math.sqrt(shape[0]) for shape in shapes]
        return self.network(weights, x)


def squared_exponential(a: Float[Tensor, "n 1"], b: Float[Tensor, "m 1"], length_scale: float) -> Float[Tensor, "n m"]:
    """Squared-exponential covariance with variance 1 between inputs `a` and inputs `b`."""
    return torch.exp(-0.5 * ((a - b.T) / length_scale).square())


def draw_gp(x: Float[Tensor, "n 1"], length_scale: float, generator: torch.Generator) -> Float[Tensor, "n 1"]:
    """A draw of a zero-mean, unit-variance GP at `x`. `O(n^3)`."""
    return draw_from(squared_exponential(x, x, length_scale), generator)


def draw_from(covariance: Float[Tensor, "n n"], generator: torch.Generator) -> Float[Tensor, "n 1"]:
    """A draw of a Gaussian with mean 0. `O(n^3)`."""
    factor = torch.linalg.cholesky(covariance + _JITTER * torch.eye(len(covariance), dtype=covariance.dtype))
    return factor @ torch.randn(len(factor), 1, generator=generator, dtype=factor.dtype)


def _oracle(
    mean: Callable[[Tensor], Tensor],
    covariance: Callable[[Tensor, Tensor], Tensor],
    noise: float,
    x: ArrayLike | Tensor,
    y: ArrayLike | Tensor,
    x_new: ArrayLike | Tensor,
) -> ExactPredictive:
    context = Task.of(x, y)
    return gaussian_process_posterior(mean, covariance, noise, context.x, context.y, as_columns(x_new, "x_new"))


def sawtooth(*, noise: float = 0.05, low: float = -2.0, high: float = 2.0, points=(40, 100), **constants) -> Sawtooth:
    """Random tilted and shifted sawtooth functions of one input (paper, App. F).

    Args:
        noise: Standard deviation of the observations around the teeth.
        low: Lower end of the range of inputs.
        high: Upper end of the range of inputs.
        points: The smallest and the largest size of a task.
        **constants: `period` and `height` of the teeth, `slope_sd` of the tilt and `offset_sd` of the shift.

    Returns:
        The source of tasks. Its method `oracle(x, y, x_new)` gives the exact predictive.

    Raises:
        ValueError: If the noise is negative, or a range is not one.

    Example:
        >>> import torch
        >>> source = bnnp.tasks.sawtooth(points=(5, 5))
        >>> source.draw(2, torch.Generator().manual_seed(0))[0]
        Task(name: '', points: 5, inputs: 1, outputs: 1)
        >>> source.oracle(x, y, x_new).mean.shape
        torch.Size([2, 1])
    """
    return Sawtooth(noise, low, high, points, **constants)


def heaviside(
    *, noise: float = 0.01, low: float = -5.0, high: float = 5.0, points=(40, 100), length_scale: float = 1.0
) -> Heaviside:
    """Functions of one input with the values -1 and +1: the sign of a Gaussian process draw (paper, App. F).

    Args:
        noise: Standard deviation of the observations around -1 and +1.
        low: Lower end of the range of inputs.
        high: Upper end of the range of inputs.
        points: The smallest and the largest size of a task.
        length_scale: Length scale of the Gaussian process.

    Returns:
        The source of tasks.

    Raises:
        ValueError: If the noise is negative, or a range is not one.

    Example:
        >>> import torch
        >>> (task,) = bnnp.tasks.heaviside(noise=0.0).draw(1, torch.Generator().manual_seed(0))
        >>> sorted(set(task.y.flatten().tolist()))
        [-1.0, 1.0]
    """
    return Heaviside(noise, low, high, points, length_scale)


def gp(
    *,
    noise: float = 0.05,
    low: float = -5.0,
    high: float = 5.0,
    points=(40, 100),
    length_scale: float = 0.5,
    output_scale: float = 1.0,
) -> GaussianProcess:
    """Gaussian process functions of one input, with squared-exponential covariance (paper, App. F).

    Args:
        noise: Standard deviation of the observations around the function.
        low: Lower end of the range of inputs.
        high: Upper end of the range of inputs.
        points: The smallest and the largest size of a task.
        length_scale: Length scale of the covariance.
        output_scale: Standard deviation of the function at each input.

    Returns:
        The source of tasks, whose `oracle(x, y, x_new)` is the exact predictive.

    Raises:
        ValueError: If the noise is negative, or a range is not one.

    Example:
        >>> import torch
        >>> source = bnnp.tasks.gp(points=(5, 5), length_scale=1.0)
        >>> [len(task) for task in source.draw(3, torch.Generator().manual_seed(0))]
        [5, 5, 5]
        >>> source.oracle(x, y, x_new).mean.shape
        torch.Size([2, 1])
    """
    return GaussianProcess(noise, low, high, points, length_scale, output_scale)


def bnn(
    *,
    noise: float = 0.1,
    low: float = -4.0,
    high: float = 4.0,
    points=(40, 100),
    hidden: tuple[int, ...] = (64, 64),
    activation: str = "relu",
) -> BNNFunctions:
    """Functions of one input from a Bayesian neural network with its standard prior (paper, App. F).

    Args:
        noise: Standard deviation of the observations around the network's output.
        low: Lower end of the range of inputs.
        high: Upper end of the range of inputs.
        points: The smallest and the largest size of a task.
        hidden: Units of each hidden layer.
        activation: Name of the activation, as in `bnnp.Network`.

    Returns:
        The source of tasks.

    Raises:
        ValueError: If the noise is negative, a range is not one, or no activation has this name.

    Example:
        >>> import torch
        >>> source = bnnp.tasks.bnn(points=(5, 5), hidden=(20, 20))
        >>> [len(task) for task in source.draw(3, torch.Generator().manual_seed(0))]
        [5, 5, 5]
        >>> source.network.sizes
        (1, 20, 20, 1)
    """
    return BNNFunctions(noise, low, high, points, tuple(hidden), activation)


SOURCES: dict[str, Callable[..., Synthetic]] = {"sawtooth": sawtooth, "heaviside": heaviside, "gp": gp, "bnn": bnn}
"""The synthetic sources by name, for the command line."""
