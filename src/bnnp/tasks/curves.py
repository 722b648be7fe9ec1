"""Smooth curves of many kinds: what `zoo:curves` has learned, for people with one data set."""

import math
from dataclasses import dataclass

import torch

from bnnp._core.shapes import Tensor
from bnnp.tasks.synthetic import Synthetic, draw_from, squared_exponential

LENGTHS = (0.25, 2.5)
"""Range of length scales, which are uniform in their logarithm."""
PERIODS = (0.75, 3.0)
"""Range of periods of the curves that have one, likewise."""


@dataclass(frozen=True)
class SmoothCurves(Synthetic):
    """Curves each of which has a smoothness of its own; half of them have a trend, a third repeat themselves."""

    def values(self, x: Tensor, generator: torch.Generator) -> Tensor:
        length, period, of_trend, of_wave = torch.rand(4, generator=generator, dtype=torch.float64).tolist()
        covariance = squared_exponential(x, x, _between(LENGTHS, length))
        if of_trend < 1 / 2:
            covariance = covariance + 0.25 * x @ x.T
        if of_wave < 1 / 3:
            covariance = covariance + torch.cos(2 * math.pi * (x - x.T) / _between(PERIODS, period))
        return draw_from(covariance, generator)


def curves(*, noise: float = 0.1, low: float = -3.0, high: float = 3.0, points=(20, 100)) -> SmoothCurves:
    """Smooth curves of one input, of many kinds: slow or fast, with a trend or without, some of them waves.

    Length scales lie between 0.25 and 2.5. Half of the curves have a trend on top, a third a wave with a period of 0.75
    to 3. So inputs are expected to have been scaled to the range, and outputs to a standard deviation of about 1.

    Args:
        noise: Standard deviation of the observations around the curve.
        low: Lower end of the range of inputs.
        high: Upper end of the range of inputs.
        points: The smallest and the largest size of a task.

    Returns:
        The source of tasks. Its exact predictive is a mixture over all kinds of curves, and is not given.

    Raises:
        ValueError: If the noise is negative, or a range is not one.

    Example:
        >>> import torch
        >>> source = bnnp.tasks.curves(points=(5, 5))
        >>> [len(task) for task in source.draw(3, torch.Generator().manual_seed(0))]
        [5, 5, 5]
    """
    return SmoothCurves(noise, low, high, points)


def _between(ends: tuple[float, float], share: float) -> float:
    low, high = ends
    return low * (high / low) ** share
