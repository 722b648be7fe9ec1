r"""One output as a warped function of a Gaussian variable, fitted to the values that the output takes.

`y = height act(slope g + place) + level` plus noise, with `g ~ N(0, 1)`. With `act = tanh` and a steep slope the output
has two levels; with `act = relu` it has a floor. All integrals over `g` are sums over a grid.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.priors.starts.minimise import minimise

GRID = torch.linspace(-4.5, 4.5, 91, dtype=torch.float64)
"""Values of `g` that integrals are summed over."""
STEP = float(GRID[1] - GRID[0])
"""The distance of two of them: what is known of `g` is never taken to be finer."""
MOST_SLOPE = 20.0
"""Largest slope: a steeper one would leave no gradient to learn by."""
LEAST_NOISE = 5e-3
"""Least noise, for an output of unit variance: exact ties would have none."""
MOST_VALUES = 800
"""Largest number of values that the warp is fitted to."""
BEGINNINGS = [
    (height, place, slope) for height in (1.0, -1.0) for place in (-1.0, 0.0, 1.0) for slope in (1.0, 4.0, 16.0)
]
"""Where fits begin: signs of the height, places and slopes."""
LEAST_PRECISION = 1e-3
"""An observation says at least so much of `g`; `g` itself has precision 1."""
WIDTH = 3.0
"""Standard deviation of the parameters before the data are seen, which keeps them finite."""

Activation = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Warp:
    """A fitted warp, for an output of unit variance.

    Attributes:
        activation: The activation.
        height: What the warped variable is multiplied by.
        level: What is added to it.
        place: Where on the activation `g = 0` lies.
        slope: How far `g` moves along the activation.
        noise: Standard deviation of the noise.
        gain: Mean log-density of the values less that of a Gaussian.
    """

    activation: Activation
    height: float
    level: float
    place: float
    slope: float
    noise: float
    gain: float

    def sites(
        self, y: Float[Tensor, "n"], mean: Float[Tensor, "n"], variance: Float[Tensor, "n"]
    ) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
        """What each output says of its `g`, as an observation: its value and the standard deviation of its noise.

        A Gaussian with the given mean and variance has, given this observation, the mean and variance that `g` has
        given the output.

        Args:
            y: The outputs.
            mean: What is known of every `g` beside its output: its mean.
            variance: Its variance.
        """
        parameters, root = torch.tensor(self._parameters(), dtype=y.dtype), variance.sqrt()
        g = mean.unsqueeze(-1) + root.unsqueeze(-1) * GRID
        given = _log_joint(self.activation, parameters, y, g).softmax(-1)
        centre = (given @ GRID).unsqueeze(-1)
        variance_left = (given * (GRID - centre).square()).sum(-1).clamp(min=STEP**2 / 12)
        precision = (1 / variance_left - 1).clamp(min=LEAST_PRECISION)
        return mean + root * centre[:, 0] / variance_left / precision, root * precision.rsqrt()

    def _parameters(self) -> list[float]:
        share = self.slope / MOST_SLOPE
        noise = math.log(self.noise - LEAST_NOISE)
        return [self.height, self.level, self.place, math.log(share / (1 - share)), noise]


def fit_warp(y: Float[Tensor, "n"], activation: Activation) -> Warp:
    """The warp of highest likelihood for values of unit variance, each taken by itself. Some seconds at most.

    Args:
        y: The values of an output.
        activation: The activation of the units that warp.
    """
    some = y[torch.linspace(0, len(y) - 1, min(len(y), MOST_VALUES)).long()]

    def loss(vector: np.ndarray) -> tuple[float, np.ndarray]:
        leaf = torch.from_numpy(vector).clone().requires_grad_()
        with torch.enable_grad():
            value = _misfit(activation, leaf, some)
        (slope,) = torch.autograd.grad(value, leaf)
        return value.item(), slope.numpy()

    fits = [
        minimise(loss, np.array([height, 0.0, place, math.log(slope / (MOST_SLOPE - slope)), math.log(0.3)]))
        for height, place, slope in BEGINNINGS
    ]
    height, level, place, slope, noise = (float(number) for number in min(fits, key=lambda fit: fit[1])[0])
    found = torch.tensor([height, level, place, slope, noise], dtype=y.dtype)
    density = float(_log_joint(activation, found, some).logsumexp(-1).mean())
    gaussian = -0.5 * float((math.log(2 * math.pi) + some.square()).mean())
    steep = MOST_SLOPE / (1 + math.exp(-slope))
    return Warp(activation, height, level, place, steep, LEAST_NOISE + math.exp(noise), density - gaussian)


def _misfit(activation: Activation, parameters: Float[Tensor, "5"], y: Float[Tensor, "n"]) -> Float[Tensor, ""]:
    """Minus the log-density of all values and of the parameters."""
    return -_log_joint(activation, parameters, y).logsumexp(-1).sum() + 0.5 * (parameters / WIDTH).square().sum()


def _log_joint(
    activation: Activation, parameters: Float[Tensor, "5"], y: Float[Tensor, "n"], g: Float[Tensor, "*n g"] = GRID
) -> Float[Tensor, "n g"]:
    """Log-density of each value together with each point of the grid, at which the variable has the value in `g`."""
    height, level, place, slope, noise = parameters
    warped = height * activation(MOST_SLOPE * slope.sigmoid() * g + place) + level
    scale = LEAST_NOISE + noise.exp()
    size = scale.log() + math.log(2 * math.pi) - math.log(STEP)
    return -0.5 * (((y.unsqueeze(-1) - warped) / scale).square() + GRID.square()) - size
