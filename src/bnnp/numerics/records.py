"""What an update takes and gives, for all units at once."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from bnnp._core.shapes import Bool, Float, Int, Tensor
from bnnp.numerics.solve import times_each

CAREFUL = torch.float64
"""Precision in which posteriors that users hold are solved for, and of sums over points; training has the model's."""


@dataclass(frozen=True)
class UnitPrior:
    """`N(mean_u, L_u L_u^T)` for each unit u; `factor` holds the diagonals or the lower triangles `L_u`."""

    mean: Float[Tensor, "tasks samples units d"]
    factor: Float[Tensor, "units d"] | Float[Tensor, "units d d"]

    @property
    def is_diagonal(self) -> bool:
        return self.factor.ndim == 2

    def scale(self, v: Float[Tensor, "... units d"]) -> Float[Tensor, "... units d"]:
        """`L v` for each unit."""
        return unit_products(self.factor, v)

    def scale_transposed(self, g: Float[Tensor, "... units d"]) -> Float[Tensor, "... units d"]:
        """`L^T g` for each unit: gradients by `L v`, as gradients by `v`."""
        return unit_products(self.factor if self.is_diagonal else self.factor.mT, g)

    @cached_property
    def covariance(self) -> Float[Tensor, "units d"] | Float[Tensor, "units d d"]:
        return self.factor.square() if self.is_diagonal else self.factor @ self.factor.mT

    @cached_property
    def whitener(self) -> Float[Tensor, "units d"] | Float[Tensor, "units d d"]:
        """`L^-1` for each unit."""
        if self.is_diagonal:
            return self.factor.reciprocal()
        eye = torch.eye(self.factor.shape[-1], dtype=self.factor.dtype, device=self.factor.device)
        return torch.linalg.solve_triangular(self.factor, eye.expand(self.factor.shape), upper=False)

    @cached_property
    def precision(self) -> Float[Tensor, "units d"] | Float[Tensor, "units d d"]:
        return self.whitener.square() if self.is_diagonal else self.whitener.mT @ self.whitener

    def weights(self, v: Float[Tensor, "tasks samples units d"]) -> Float[Tensor, "tasks samples units d"]:
        return self.mean + self.scale(v)

    def whiten(self, weights: Float[Tensor, "tasks samples units d"]) -> Float[Tensor, "tasks samples units d"]:
        """The `v` with `w = mu + L v`."""
        return _whitened(weights - self.mean, self.factor)

    @cached_property
    def log_determinants(self) -> Float[Tensor, "units"]:
        """`log |L|` of each unit."""
        diagonal = self.factor if self.is_diagonal else self.factor.diagonal(dim1=-2, dim2=-1)
        return diagonal.log().sum(-1)

    @torch.no_grad()
    def close_to_singular(self) -> Bool[Tensor, "units"]:
        """Units whose factor has a condition number above about 1e5, where float64 loses most digits of `Sigma^-1`."""
        double = self.to(torch.float64)
        return double.factor.flatten(1).norm(dim=1) * double.whitener.flatten(1).norm(dim=1) > 1e5

    def of_units(self, units: Int[Tensor, "some"]) -> "UnitPrior":
        return UnitPrior(self.mean[:, :, units], self.factor[units])

    def to(self, dtype: torch.dtype) -> "UnitPrior":
        if self.mean.dtype == self.factor.dtype == dtype:
            return self  # with its covariance, where that is known
        return UnitPrior(self.mean.to(dtype), self.factor.to(dtype))


@dataclass(frozen=True)
class Observations:
    """Pseudo-observations of the units and the inverse of their standard deviations; 0 marks a point that is absent."""

    y: Float[Tensor, "tasks y_samples units points"]
    inverse_noise: Float[Tensor, "tasks samples units points"]

    def of_units(self, units: Int[Tensor, "some"]) -> "Observations":
        return Observations(self.y[:, :, units], self.inverse_noise[:, :, units])

    def of_points(self, points: Int[Tensor, "some"]) -> "Observations":
        return Observations(self.y[..., points], self.inverse_noise[..., points])

    def to(self, dtype: torch.dtype) -> "Observations":
        return Observations(self.y.to(dtype), self.inverse_noise.to(dtype))


@dataclass(frozen=True)
class UpdateDraws:
    """The standard normal draws that one posterior sample is made of."""

    weights: Float[Tensor, "tasks samples units d"]
    points: Float[Tensor, "tasks samples units points"]

    def of_units(self, units: Int[Tensor, "some"]) -> "UpdateDraws":
        return UpdateDraws(self.weights[:, :, units], self.points[:, :, units])

    def to(self, dtype: torch.dtype) -> "UpdateDraws":
        return UpdateDraws(self.weights.to(dtype), self.points.to(dtype))


@dataclass(frozen=True)
class Update:
    """What conditioning gives: samples `w - mu`, the KL to the prior and the log evidence of the pseudo-observations.

    `log_evidence` leaves out `-sum log s - n log(2 pi)/2`, which depends on the noise alone.
    """

    centred: Float[Tensor, "tasks samples units d"]
    kl: Float[Tensor, "tasks kl_samples units"]
    log_evidence: Float[Tensor, "tasks kl_samples units"]
    factor: Float[Tensor, "units d"] | Float[Tensor, "units d d"]

    @property
    def whitened(self) -> Float[Tensor, "tasks samples units d"]:
        """The `v` with `w = mu + L v`."""
        return _whitened(self.centred, self.factor)

    def to(self, dtype: torch.dtype) -> "Update":
        return Update(self.centred.to(dtype), self.kl.to(dtype), self.log_evidence.to(dtype), self.factor.to(dtype))


def log_prior(v: Float[Tensor, "*batch units d"], prior: UnitPrior) -> Float[Tensor, "*batch units"]:
    """Log-density of the weights `mu + L v` of every unit."""
    normal = -0.5 * (v.square().sum(-1) + v.shape[-1] * math.log(2 * math.pi))
    return normal - prior.log_determinants.to(v.dtype)


def project(phi: Float[Tensor, "tasks phi_samples points d"], weights: Tensor) -> Float[Tensor, "tasks _ points units"]:
    """`phi w_u` for each unit; a mean that all tasks and samples share makes it one plain product."""
    return phi @ (weights[0, 0] if weights.shape[:2] == (1, 1) else weights).mT


def unit_products(
    matrix: Float[Tensor, "units d"] | Float[Tensor, "units d d"], v: Float[Tensor, "*batch units d"]
) -> Float[Tensor, "*batch units d"]:
    """A matrix per unit, or its diagonal, times a vector per unit."""
    if matrix.ndim == 2:
        return v * matrix  # in this order, with the numbers of `v` in the same order in memory
    return times_each(matrix, v)


def _whitened(centred: Float[Tensor, "*batch units d"], factor: Tensor) -> Float[Tensor, "*batch units d"]:
    if factor.ndim == 2:
        return centred / factor
    by_unit = centred.flatten(0, -3).permute(1, 2, 0)  # all vectors of a unit as columns: one solve per unit
    return torch.linalg.solve_triangular(factor, by_unit, upper=False).permute(2, 0, 1).reshape(centred.shape)


def with_missing(seen: Observations, mask: Tensor) -> Observations:
    """The same observations without the points where `mask` (tasks, points) is false."""
    return replace(seen, inverse_noise=seen.inverse_noise * mask[:, None, None, :])
