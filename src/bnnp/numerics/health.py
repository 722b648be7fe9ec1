"""Whether matrices were far enough from singular for the precision they were solved in, and what happens if not."""

import math

import numpy as np
import torch

from bnnp._core.shapes import Float, Tensor

FLOAT32_HEALTH = 1e-4
"""Least share of its diagonal element that a pivot may keep in float32; below it digits are lost to cancellation."""
FLOAT64_HEALTH = 1e-12
"""The same for float64, beyond which there is no wider precision to go to."""

CURE = (
    "the noise is far too small beside what the prior expects of the function; use a larger noise, as in "
    "bnnp.Gaussian(1e-3), or a larger min_pseudo_noise, and join points with equal inputs into one"
)


class TooLargeForFloat32(ArithmeticError):
    """A precision too close to singular for float32: the caller must go on in float64."""


class FactorisationError(ArithmeticError):
    """A posterior precision was not positive definite: its inputs were not finite, or the noise was far too small.

    Args:
        message: What failed, and where.
        task: Index, in the batch, of the task that failed.

    Attributes:
        task: As given.

    Example:
        >>> try:
        ...     raise bnnp.FactorisationError("layer 1, task 3: not positive definite", task=3)
        ... except bnnp.FactorisationError as error:
        ...     print(error.task)
        3
    """

    def __init__(self, message: str, task: int):
        super().__init__(message)
        self.task = task

    def __reduce__(self) -> tuple[type, tuple[str, int]]:
        return type(self), (str(self), self.task)  # for errors of other processes


def check_health(health: Float[Tensor, "*rows"], batch: tuple[int, int, int] | None = None) -> None:
    """Refuse matrices that were not positive definite, and float32 where it is not accurate.

    Args:
        health: Of each matrix, as back ends give it.
        batch: Numbers of tasks, samples and units, if they are not the axes of `health`.

    Raises:
        TooLargeForFloat32: In float32, if one of them is too close to singular or not positive definite.
        FactorisationError: In float64, likewise.
    """
    if health.numel() > 0 and not is_healthy(float(health.min()), health.dtype):
        refuse(health, batch or (health.shape[0], health.shape[1], math.prod(health.shape[2:])))


def is_healthy(least: float, dtype: torch.dtype) -> bool:
    """Whether the least health is enough; NaN is not."""
    return least >= _least_health(dtype)


def refuse(health: Tensor, batch: tuple[int, int, int]) -> None:
    """Raise the error for matrices of which one is not healthy."""
    if health.dtype == torch.float32:
        raise TooLargeForFloat32
    bad = ~(health >= _least_health(health.dtype))
    raise not_positive_definite(tuple(int(i) for i in np.unravel_index(int(bad.flatten().nonzero()[0]), batch)))


def not_positive_definite(where: tuple[int, ...]) -> FactorisationError:
    """The error for the matrix of one task, sample and unit."""
    return FactorisationError(
        f"a posterior precision is not positive definite at index {where} of (tasks, samples, units), not in float64 "
        f"either; the data or parameters are not finite, or {CURE}",
        task=where[0],
    )


def _least_health(dtype: torch.dtype) -> float:
    return FLOAT32_HEALTH if dtype == torch.float32 else FLOAT64_HEALTH
