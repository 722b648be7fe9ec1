r"""A linear mixed model on given features: what tasks have in common, what is their own, and the noise, in closed form.

Task t has outputs `y_t = phi_t (w + v_t) + e`. All tasks share `w ~ N(0, S_common)`; `v_t ~ N(0, S_own)` is their own,
and `e` is noise. Both covariances start as a power of the covariance of the features, so that two numbers each decide
about the size and the smoothness of functions. Everything here needs only sums over the points of each task, so that a
step costs `O(tasks d^3)`, however many points there are.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.priors.starts.sums import Sums

OWN, COMMON, OWN_SMOOTHNESS, COMMON_SMOOTHNESS, NOISE = range(5)
"""Columns of the parameters: log standard deviations of functions, their smoothness, and log noise."""
BELIEVED = torch.tensor([[-0.7, 0.0, 0.8, 0.8, -2.0], [1.5, 1.5, 0.5, 0.5, 2.0]], dtype=torch.float64)
"""Mean and standard deviation of the parameters before the data are seen, for outputs of unit variance."""
FIRST = torch.tensor([math.log(0.5), 0.0, 0.8, 0.8, math.log(0.2)], dtype=torch.float64)
"""Where fits of the parameters begin."""
LEAST_NOISE = 1e-4
"""Least noise, for outputs of unit variance. Where outputs are all but exact, a covariance that is free finds a smaller
one, with which weights cannot be inferred accurately in float64."""
LEAST_EIGENVALUE = 1e-6
"""Share of the largest eigenvalue that is added to each, so that powers stay finite."""


@dataclass(frozen=True)
class Freedom:
    """How far the covariance of what is a task's own may leave its two-number form.

    Attributes:
        pull: Strength of the pull back to that form, in tasks; None for no freedom.
        noise_held: Whether the noise stays where it was without freedom.
    """

    pull: float | None = None
    noise_held: bool = False


@dataclass(frozen=True)
class MixedModel:
    """The parameters of the model, for each output.

    Attributes:
        values: Variances of the features along the directions they are given in.
        theta: The five numbers of each output, as named at the top of this file.
        shape: A lower-triangular factor that multiplies that of the own covariance; the identity without freedom.
    """

    values: Float[Tensor, "d"]
    theta: Float[Tensor, "out 5"]
    shape: Float[Tensor, "out d d"]

    @staticmethod
    def first(values: Float[Tensor, "d"], outputs: int) -> "MixedModel":
        eye = torch.eye(len(values), dtype=torch.float64)
        return MixedModel(values, FIRST.expand(outputs, -1).clone(), eye.expand(outputs, -1, -1).clone())

    @property
    def noise(self) -> Float[Tensor, "out"]:
        """Standard deviation of the noise of each output."""
        return self.theta[:, NOISE].exp()

    def own_factor(self) -> Float[Tensor, "out d d"]:
        """A factor of the covariance of a task's own weights."""
        return self._root(OWN, OWN_SMOOTHNESS).unsqueeze(-1) * self.shape

    def common_root(self) -> Float[Tensor, "out d"]:
        """Standard deviations of the common weights."""
        return self._root(COMMON, COMMON_SMOOTHNESS)

    def _root(self, size: int, smoothness: int) -> Float[Tensor, "out d"]:
        relative = self.values / self.values.max() + LEAST_EIGENVALUE
        power = relative ** (self.theta[:, smoothness, None] - 1)
        return (power / (power * self.values).sum(-1, keepdim=True)).sqrt() * self.theta[:, size, None].exp()

    def evidence(self, sums: Sums) -> Float[Tensor, "out"]:
        """Log-density of all outputs of the tasks, per output column, with derivatives."""
        return _Evidence.apply(self.own_factor(), self.common_root(), self.theta[:, NOISE], sums)  # pyright: ignore

    def log_belief(self, pull: float | None) -> Float[Tensor, ""]:
        """Log-density of the parameters before the data are seen, up to a constant."""
        total = -0.5 * ((self.theta - BELIEVED[0]) / BELIEVED[1]).square().sum()
        if pull is None:
            return total
        eye = torch.eye(self.shape.shape[-1], dtype=self.shape.dtype).expand_as(self.shape)
        inverse = torch.linalg.solve_triangular(self.shape, eye, upper=False)
        return total - 0.5 * pull * (inverse.square().sum() - eye.sum() + _log_determinant(self.shape).sum())

    @torch.no_grad()
    def of_new_task(self, sums: Sums) -> tuple[Float[Tensor, "out d"], Float[Tensor, "out d d"]]:
        """Mean and covariance of the weights of a new task, given the tasks of the sums."""
        own, common = self.own_factor(), self.common_root()
        known = _Known.of(own, common, self.theta[:, NOISE], sums)
        covariance = common.unsqueeze(-1) * torch.cholesky_inverse(known.factor) * common.unsqueeze(-2)
        return common * known.common_mean, covariance + own @ own.mT

    @torch.no_grad()
    def of_tasks(self, sums: Sums) -> tuple[Float[Tensor, "tasks out d"], Float[Tensor, "tasks out d _k"]]:
        """Means of the weights of the tasks of the sums, and factors of their covariances."""
        own, common = self.own_factor(), self.common_root()
        known = _Known.of(own, common, self.theta[:, NOISE], sums)
        alone = torch.linalg.solve_triangular(known.own_factor, own.mT.expand_as(known.own_factor), upper=False).mT
        return known.weights(own, common), torch.cat([known.moved(own, common), alone], dim=-1)


@dataclass(frozen=True)
class _Known:
    """What tasks say of all weights. Own weights are divided by their factor, common ones by their deviations.

    Attributes:
        own_factor: Cholesky factor of the precision of each task's own weights, given the common ones.
        own_mean: Their means if the common ones were 0.
        transfer: By how much these means fall with the common weights.
        factor: Cholesky factor of the precision of the common weights.
        common_mean: Their means.
        misfit: `y^T K^-1 y`, where `K` is the covariance of all outputs.
    """

    own_factor: Float[Tensor, "tasks out d d"]
    own_mean: Float[Tensor, "tasks out d"]
    transfer: Float[Tensor, "tasks out d d"]
    factor: Float[Tensor, "out d d"]
    common_mean: Float[Tensor, "out d"]
    misfit: Float[Tensor, "out"]

    @staticmethod
    def of(own: Tensor, common: Tensor, log_noise: Tensor, sums: Sums) -> "_Known":
        """Two steps of elimination: the weights of each task, then the common ones."""
        v, eye = (2 * log_noise).exp()[:, None], torch.eye(own.shape[-1], dtype=own.dtype)
        gram = own.mT @ sums.gram / v.unsqueeze(-1)
        factor, seen = torch.linalg.cholesky(gram @ own + eye), (own.mT @ sums.product.unsqueeze(-1))[..., 0] / v
        across = gram * common.unsqueeze(-2)
        transfer = torch.cholesky_solve(across, factor)
        mean = torch.cholesky_solve(seen.unsqueeze(-1), factor)[..., 0]
        alone = common.unsqueeze(-1) * sums.gram.sum(0) * common.unsqueeze(-2) / v.unsqueeze(-1)
        common_factor = torch.linalg.cholesky(eye + alone - (across.mT @ transfer).sum(0))
        shift = common * sums.product.sum(0) / v - (across.mT @ mean.unsqueeze(-1)).sum(0)[..., 0]
        common_mean = torch.cholesky_solve(shift.unsqueeze(-1), common_factor)[..., 0]
        misfit = sums.square.sum(0) / v[:, 0] - (seen * mean).sum((0, -1)) - (shift * common_mean).sum(-1)
        return _Known(factor, mean, transfer, common_factor, common_mean, misfit)

    @cached_property
    def root(self) -> Float[Tensor, "out d d"]:
        """A factor of the covariance of the common weights."""
        eye = torch.eye(self.factor.shape[-1], dtype=self.factor.dtype)
        return torch.linalg.solve_triangular(self.factor, eye.expand_as(self.factor), upper=False).mT

    @cached_property
    def own(self) -> Float[Tensor, "tasks out d"]:
        """Means of each task's own weights."""
        return self.own_mean - (self.transfer @ self.common_mean.unsqueeze(-1))[..., 0]

    def weights(self, own: Tensor, common: Tensor) -> Float[Tensor, "tasks out d"]:
        """Means of each task's weights, common and own together."""
        return common * self.common_mean + (own @ self.own.unsqueeze(-1))[..., 0]

    def moved(self, own: Tensor, common: Tensor) -> Float[Tensor, "tasks out d d"]:
        """How these means move with the common weights, which are uncertain."""
        return common.unsqueeze(-1) * self.root - own @ (self.transfer @ self.root)


class _Evidence(torch.autograd.Function):
    """The log-evidence. Its derivatives are those of the expected log-density of weights and outputs (Fisher)."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, common: Tensor, log_noise: Tensor, sums: Sums) -> Tensor:
        known = _Known.of(own, common, log_noise, sums)
        ctx.save_for_backward(*_slopes(known, own, common, log_noise, sums))
        spread = _log_determinant(known.own_factor).sum(0) + _log_determinant(known.factor)
        size = sums.count.sum() * (math.log(2 * math.pi) + 2 * log_noise) + 2 * sums.log_noise.sum(0)
        return -0.5 * (known.misfit + spread + size)

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor | None, ...]:
        (weight,), (own, common, log_noise) = weights, ctx.saved_tensors
        return weight[:, None, None] * own, weight[:, None] * common, weight * log_noise, None


def _slopes(
    known: _Known, own: Tensor, common: Tensor, log_noise: Tensor, sums: Sums
) -> tuple[Float[Tensor, "out d d"], Float[Tensor, "out d"], Float[Tensor, "out"]]:
    """Derivatives of the evidence by the factor of own weights, the deviations of common ones, and the log-noise."""
    tasks, d, v = len(sums.count), own.shape[-1], (2 * log_noise).exp()
    eye, m, z = torch.eye(d, dtype=own.dtype), known.common_mean, known.own
    own_covariance, uncertain = torch.cholesky_inverse(known.own_factor), known.transfer @ known.root
    second = own_covariance.sum(0) + (uncertain @ uncertain.mT).sum(0) + torch.einsum("toi,toj->oij", z, z)
    by_own = torch.linalg.solve_triangular(own.mT, second - tasks * eye, upper=True)
    by_common = (m.square() + known.root.square().sum(-1) - 1) / common
    gram, weights, moved = sums.gram, known.weights(own, common), known.moved(own, common)
    fitted = (gram @ weights.unsqueeze(-1))[..., 0]
    misfit = (
        sums.square.sum(0)
        + (weights * (fitted - 2 * sums.product)).sum((0, -1))
        + (moved * (gram @ moved)).sum((0, -2, -1))
    )
    doubt = tasks * d - own_covariance.diagonal(dim1=-2, dim2=-1).sum((0, -1))
    return by_own, by_common, misfit / v + doubt - sums.count.sum()


def _log_determinant(factor: Float[Tensor, "*batch d d"]) -> Float[Tensor, "*batch"]:
    """Log-determinant of `factor factor^T`."""
    return 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
