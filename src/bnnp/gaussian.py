r"""The one conjugate update that all inference in the library rests on.

One unit has a prior `w ~ N(mu, L L^T)` and sees features `phi (n x d)` and pseudo-observations `y (n)` with standard
deviations `s (n)`. Whitened, `w = mu + L v`, `A = diag(1/s) phi L` and `r = (y - phi mu)/s`, so that the prior of `v`
is `N(0, I)` and its posterior has precision `P = I + A^T A`. With `M = I + A A^T`, `v0 ~ N(0, I_d)`, `e ~ N(0, I_n)`:

    sample    v = P^-1 (v0 + A^T (r - e))               = v0 + A^T M^-1 (r - A v0 - e)
    mean      m = P^-1 A^T r                            = A^T M^-1 r
    KL          = (tr P^-1 - d + |m|^2 + logdet P)/2    = (tr M^-1 - n + |m|^2 + logdet M)/2
    evidence    = -(r^T M^-1 r + logdet M)/2              (up to the terms of the noise alone)

`weight_space` uses P, `function_space` uses M; `condition` takes the smaller. A point with `1/s = 0` drops out of every
quantity exactly, so padded batches are exact. All eigenvalues of P and M are at least 1: no jitter is needed, and none
is added. In float32 that argument fails once the largest eigenvalue approaches 1e7, and derivatives lose digits sooner,
so updates whose trace exceeds `FLOAT32_TRACE` are carried out in float64.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import wraps

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from bnnp._shapes import Float, Tensor

FLOAT32_TRACE = {"function_space": 1e5, "weight_space": 1e2}
"""Largest trace of `A^T A` that float32 serves in each form.

In function space derivatives are right to 1e-2 at that bound even for collinear features. In weight space those of the
prior's factor lose digits with the square of the trace: they are right to 1e-3 at its bound.
"""
NUMBERS_AT_ONCE = 2**20
"""Numbers in the arrays of one chunk of the heavy products: 4 MB in float32, about a core's own cache."""


class _TooLargeForFloat32(ArithmeticError):
    """A trace above `FLOAT32_TRACE`: the caller must go on in float64."""


class FactorisationError(ArithmeticError):
    """A posterior precision was not positive definite: its inputs were not finite, or the noise was far too small."""

    def __init__(self, message: str, task: int):
        super().__init__(message)
        self.task = task


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
        if self.is_diagonal:
            return self.factor * v
        return torch.einsum("uij,...uj->...ui", self.factor, v)

    def scale_transposed(self, v: Float[Tensor, "... units d"]) -> Float[Tensor, "... units d"]:
        """`L^T v` for each unit."""
        if self.is_diagonal:
            return self.factor * v
        return torch.einsum("uji,...uj->...ui", self.factor, v)

    def weights(self, v: Float[Tensor, "tasks samples units d"]) -> Float[Tensor, "tasks samples units d"]:
        return self.mean + self.scale(v)

    def whiten(self, weights: Float[Tensor, "tasks samples units d"]) -> Float[Tensor, "tasks samples units d"]:
        """The `v` with `w = mu + L v`."""
        centred = weights - self.mean
        if self.is_diagonal:
            return centred / self.factor
        return torch.linalg.solve_triangular(self.factor, centred.unsqueeze(-1), upper=False).squeeze(-1)

    def log_determinant(self) -> Float[Tensor, ""]:
        """`log |L|`, summed over units."""
        diagonal = self.factor if self.is_diagonal else self.factor.diagonal(dim1=-2, dim2=-1)
        return diagonal.log().sum()

    def to(self, dtype: torch.dtype) -> "UnitPrior":
        return UnitPrior(self.mean.to(dtype), self.factor.to(dtype))


@dataclass(frozen=True)
class Observations:
    """Pseudo-observations of the units and the inverse of their standard deviations; 0 marks a point that is absent."""

    y: Float[Tensor, "tasks y_samples units points"]
    inverse_noise: Float[Tensor, "tasks samples units points"]

    def to(self, dtype: torch.dtype) -> "Observations":
        return Observations(self.y.to(dtype), self.inverse_noise.to(dtype))


@dataclass(frozen=True)
class UpdateNoise:
    """The standard normal draws that one posterior sample is made of."""

    weights: Float[Tensor, "tasks samples units d"]
    points: Float[Tensor, "tasks samples units points"]

    def to(self, dtype: torch.dtype) -> "UpdateNoise":
        return UpdateNoise(self.weights.to(dtype), self.points.to(dtype))


@dataclass(frozen=True)
class Update:
    """What conditioning gives: whitened samples, the KL to the prior and the log evidence of the pseudo-observations.

    `log_evidence` leaves out `-sum log s - n log(2 pi)/2`, which depends on the noise alone.
    """

    whitened: Float[Tensor, "tasks samples units d"]
    kl: Float[Tensor, "tasks kl_samples units"]
    log_evidence: Float[Tensor, "tasks kl_samples units"]

    def to(self, dtype: torch.dtype) -> "Update":
        return Update(self.whitened.to(dtype), self.kl.to(dtype), self.log_evidence.to(dtype))


@dataclass(frozen=True)
class NaturalParameters:
    """The likelihood's share of a posterior's natural parameters, about the prior mean; they add over data.

    precision: `phi^T diag(1/s^2) phi`;  shift: `phi^T diag(1/s^2) (y - phi mu)`;  square: `|r|^2`.
    """

    precision: Float[Tensor, "tasks samples units d d"]
    shift: Float[Tensor, "tasks samples units d"]
    square: Float[Tensor, "tasks samples units"]

    def __add__(self, other: "NaturalParameters") -> "NaturalParameters":
        return NaturalParameters(self.precision + other.precision, self.shift + other.shift, self.square + other.square)


def condition(
    prior: UnitPrior, phi: Float[Tensor, "tasks phi_samples points d"], seen: Observations, noise: UpdateNoise
) -> Update:
    """Sample every unit's posterior, by whichever form has the smaller matrix.

    Cost per task, sample and unit: `O(n d min(n, d))` for the matrix plus `O(min(n, d)^3)` for its inverse.
    """
    n, d = phi.shape[-2:]
    form = weight_space if n > d else function_space
    return form(prior, phi, seen, noise)


def _in_float64_where_needed(form: Callable[..., Update]) -> Callable[..., Update]:
    @wraps(form)
    def guarded(prior: UnitPrior, phi: Tensor, seen: Observations, noise: UpdateNoise) -> Update:
        try:
            return form(prior, phi, seen, noise)
        except _TooLargeForFloat32:
            double = torch.float64
            return form(prior.to(double), phi.to(double), seen.to(double), noise.to(double)).to(phi.dtype)

    return guarded


@_in_float64_where_needed
def function_space(
    prior: UnitPrior, phi: Float[Tensor, "tasks phi_samples points d"], seen: Observations, noise: UpdateNoise
) -> Update:
    """The update through `M = I + A A^T`, an n x n matrix a unit."""
    if phi.shape[-2] == 0:
        nothing = noise.weights.new_zeros(phi.shape[0], 1, noise.weights.shape[-2])
        return Update(noise.weights, nothing, nothing)
    inverse_noise = seen.inverse_noise
    covariance = prior.factor.square() if prior.is_diagonal else prior.factor @ prior.factor.mT
    inverse, log_determinant = _FunctionSpaceInverse.apply(covariance, phi, inverse_noise)  # pyright: ignore
    residual = (seen.y - _project(phi, prior.mean)) * inverse_noise
    solved = _apply(inverse, residual)
    drawn = residual - _project(phi, prior.scale(noise.weights)) * inverse_noise - noise.points
    correction = _back_project(phi, _apply(inverse, drawn) * inverse_noise)
    whitened = noise.weights + prior.scale_transposed(correction)
    quadratic = (solved * residual).sum(-1)
    excess_trace = (inverse.diagonal(dim1=-2, dim2=-1) - 1).sum(-1)
    # |m|^2 = a^T (M - I) a with a = M^-1 r
    kl = 0.5 * (excess_trace + quadratic - solved.square().sum(-1) + log_determinant)
    return Update(whitened, kl, -0.5 * (quadratic + log_determinant))


@_in_float64_where_needed
def weight_space(
    prior: UnitPrior, phi: Float[Tensor, "tasks phi_samples points d"], seen: Observations, noise: UpdateNoise
) -> Update:
    """The update through `P = I + A^T A`, a d x d matrix a unit."""
    natural = natural_parameters(prior.mean, phi, seen)
    gram = whitened_precision(prior, natural.precision)
    _refuse_large(gram, "weight_space")
    inverse, log_determinant = inverse_of_one_plus(gram)
    shift = prior.scale_transposed(natural.shift)
    drawn = noise.weights + shift - prior.scale_transposed(_back_project(phi, noise.points * seen.inverse_noise))
    mean = _apply(inverse, shift)
    excess_trace = (inverse.diagonal(dim1=-2, dim2=-1) - 1).sum(-1)
    kl = 0.5 * (excess_trace + mean.square().sum(-1) + log_determinant)
    quadratic = natural.square - (shift * mean).sum(-1)
    return Update(_apply(inverse, drawn), kl, -0.5 * (quadratic + log_determinant))


def natural_parameters(
    mean: Float[Tensor, "mean_tasks mean_samples units d"],
    phi: Float[Tensor, "tasks phi_samples points d"],
    seen: Observations,
) -> NaturalParameters:
    """What a set of points adds to the natural parameters of every unit. `O(n d^2)` a unit."""
    precision = phi.mT.unsqueeze(-3) @ (seen.inverse_noise.square().unsqueeze(-1) * phi.unsqueeze(-3))
    residual = (seen.y - _project(phi, mean)) * seen.inverse_noise
    return NaturalParameters(precision, _back_project(phi, residual * seen.inverse_noise), residual.square().sum(-1))


def posterior_moments(
    prior: UnitPrior, natural: NaturalParameters
) -> tuple[Float[Tensor, "tasks samples units d"], Float[Tensor, "tasks samples units d d"]]:
    """Mean and covariance of every unit's posterior, in full. For inspection: sampling needs neither."""
    inverse, _ = inverse_of_one_plus(whitened_precision(prior, natural.precision))
    mean = prior.mean + prior.scale(_apply(inverse, prior.scale_transposed(natural.shift)))
    factor = torch.diag_embed(prior.factor) if prior.is_diagonal else prior.factor
    return mean, factor @ inverse @ factor.mT


def whitened_precision(
    prior: UnitPrior, precision: Float[Tensor, "tasks samples units d d"]
) -> Float[Tensor, "tasks samples units d d"]:
    """`L^T C L` for each unit."""
    if prior.is_diagonal:
        return precision * prior.factor.unsqueeze(-1) * prior.factor.unsqueeze(-2)
    return prior.factor.mT @ precision @ prior.factor


def inverse_of_one_plus(
    gram: Float[Tensor, "*batch m m"],
) -> tuple[Float[Tensor, "*batch m m"], Float[Tensor, "*batch"]]:
    """`(I + gram)^-1` and `log |I + gram|`, with derivatives that are products with the inverse."""
    inverse, log_determinant = _InverseOfOnePlus.apply(gram)  # pyright: ignore[reportGeneralTypeIssues]
    return inverse, log_determinant


class _InverseOfOnePlus(torch.autograd.Function):
    """Differentiating through the factorisation would cost several times the factorisation itself."""

    @staticmethod
    def forward(ctx, gram: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        inverse, log_determinant = _invert(gram.clone())
        ctx.save_for_backward(inverse)
        return inverse, log_determinant

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_inverse: Tensor, grad_log_determinant: Tensor) -> Tensor:  # pyright: ignore
        (inverse,) = ctx.saved_tensors
        product = inverse @ grad_inverse @ inverse
        return grad_log_determinant[..., None, None] * inverse - product


class _FunctionSpaceInverse(torch.autograd.Function):
    """`M^-1` and `log |M|` with `M = I + D phi Sigma phi^T D`, `D = diag(1/s)`, for every unit.

    The features times the covariances of all units are one large product; it and its derivative are made in chunks
    that stay in the cache, and never kept. Derivatives are products with the inverse:
    `E = dM = g log|M| M^-1 - M^-1 G M^-1`, and then `dSigma = phi^T D E D phi`, `dphi = 2 D E D phi Sigma` and
    `dD = 2 diag(E (M - I)) / D`.
    """

    @staticmethod
    def forward(ctx, covariance: Tensor, phi: Tensor, inverse_noise: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore
        tasks, samples, n, d = phi.shape
        units = covariance.shape[0]
        scale = inverse_noise.expand(tasks, samples, units, n).reshape(-1, units, n)
        rows = phi.reshape(-1, n, d)
        matrix = phi.new_empty(len(rows), units, n, n)
        for part in _chunks(len(rows), n * units * d):
            spread = _times_covariance(rows[part], covariance)  # (rows, n, units, d)
            gram = spread.flatten(1, 2) @ rows[part].mT
            torch.mul(gram.view(-1, n, units, n).transpose(1, 2), scale[part].unsqueeze(-1), out=matrix[part])
            matrix[part] *= scale[part].unsqueeze(-2)
        matrix = matrix.view(tasks, samples, units, n, n)
        _refuse_large(matrix, "function_space")
        inverse, log_determinant = _invert(matrix)
        ctx.save_for_backward(covariance, phi, inverse_noise, inverse)
        return inverse, log_determinant

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_inverse: Tensor, grad_log_determinant: Tensor):  # pyright: ignore
        covariance, phi, inverse_noise, inverse = ctx.saved_tensors
        tasks, samples, n, d = phi.shape
        units = covariance.shape[0]
        scale = inverse_noise.expand(tasks, samples, units, n).reshape(-1, units, n)
        rows, inverses = phi.reshape(-1, n, d), inverse.view(-1, units, n, n)
        grad_inverses = grad_inverse.reshape(-1, units, n, n)
        grad_logs = grad_log_determinant.reshape(-1, units)
        grad_covariance = torch.zeros_like(covariance)
        grad_rows, grad_scale = torch.empty_like(rows), torch.empty_like(scale)
        for part in _chunks(len(rows), n * units * d):
            left = inverses[part] @ grad_inverses[part]
            grad_matrix = grad_logs[part][..., None, None] * inverses[part] - left @ inverses[part]
            grad_matrix = 0.5 * (grad_matrix + grad_matrix.mT)
            # diag(E (M - I)) = diag(g I - M^-1 G) - diag(E), for the symmetric part of G
            excess = grad_logs[part].unsqueeze(-1) - _diagonal(0.5 * (left + inverses[part] @ grad_inverses[part].mT))
            excess = excess - _diagonal(grad_matrix)
            grad_scale[part] = torch.where(scale[part] > 0, 2 * excess / scale[part], 0)
            grad_gram = grad_matrix * scale[part].unsqueeze(-1) * scale[part].unsqueeze(-2)
            pulled = (grad_gram.transpose(1, 2).reshape(-1, n * units, n) @ rows[part]).view(-1, units * d)
            flat = rows[part].reshape(-1, d)
            if covariance.ndim == 2:
                per_unit = pulled.view(-1, units, d)
                grad_covariance += (per_unit * flat.unsqueeze(1)).sum(0)
                grad_rows[part] = 2 * (per_unit * covariance).sum(1).view(-1, n, d)
            else:
                grad_covariance += (flat.T @ pulled).view(d, units, d).transpose(0, 1)
                grad_rows[part] = (2 * (pulled @ covariance.reshape(units * d, d))).view(-1, n, d)
        grad_noise = grad_scale.view(tasks, samples, units, n).sum_to_size(inverse_noise.shape)
        return grad_covariance, grad_rows.view(phi.shape), grad_noise


def _times_covariance(rows: Float[Tensor, "rows n d"], covariance: Tensor) -> Float[Tensor, "rows n units d"]:
    """`phi Sigma_u` for all units at once."""
    if covariance.ndim == 2:
        return rows.unsqueeze(2) * covariance
    units, d, _ = covariance.shape
    product = rows.reshape(-1, d) @ covariance.transpose(0, 1).reshape(d, units * d)
    return product.view(*rows.shape[:2], units, d)


def _refuse_large(gram: Tensor, form: str) -> None:
    """Refuse float32 where it is not accurate."""
    if gram.dtype == torch.float32 and gram.numel() > 0:
        trace = _diagonal(gram.detach()).sum(-1).amax()
        if bool(trace > FLOAT32_TRACE[form]):
            raise _TooLargeForFloat32


def _chunks(count: int, numbers_each: int) -> list[slice]:
    size = max(1, NUMBERS_AT_ONCE // max(1, numbers_each))
    return [slice(start, start + size) for start in range(0, count, size)]


def _diagonal(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1)


def _invert(gram: Float[Tensor, "*batch m m"]) -> tuple[Float[Tensor, "*batch m m"], Float[Tensor, "*batch"]]:
    """`(I + gram)^-1` and `log |I + gram|`; overwrites `gram`.

    LAPACK takes small matrices one by one on one core, so the batch is shared out over as many threads as torch uses.
    """
    size = gram.shape[-1]
    _diagonal(gram).add_(1)
    flat = gram.reshape(-1, size, size)
    identity = torch.eye(size, dtype=gram.dtype, device=gram.device)
    inverse, log_determinant = torch.empty_like(flat), gram.new_empty(len(flat))

    def work(part: slice) -> int:
        factor, info = torch.linalg.cholesky_ex(flat[part])
        if info.any():
            return part.start + int(info.nonzero()[0])
        half = torch.linalg.solve_triangular(factor, identity.expand(factor.shape), upper=False)
        torch.bmm(half.mT, half, out=inverse[part])
        log_determinant[part] = 2 * _diagonal(factor).log().sum(-1)
        return -1

    parts = _chunks(len(flat), 8 * size * size)
    threads = torch.get_num_threads() if gram.device.type == "cpu" else 1
    if threads > 1 and len(parts) > 1:
        with ThreadPoolExecutor(threads) as pool:
            failed = max(pool.map(work, parts))
    else:
        failed = max((work(part) for part in parts), default=-1)
    if failed >= 0:
        where = tuple(int(i) for i in np.unravel_index(failed, gram.shape[:-2]))
        raise FactorisationError(
            f"a posterior precision of size {size} is not positive definite at index {where} of "
            "(tasks, samples, units); the data or parameters are not finite, or the pseudo-noise is too small for "
            f"{str(gram.dtype).removeprefix('torch.')}",
            task=where[0],
        )
    return inverse.view(gram.shape), log_determinant.view(gram.shape[:-2])


def _project(phi: Float[Tensor, "tasks phi_samples points d"], w: Tensor) -> Tensor:
    """`phi w_u`: weights (..., units, d) to values (..., units, points)."""
    return w @ phi.mT


def _back_project(phi: Float[Tensor, "tasks phi_samples points d"], values: Tensor) -> Tensor:
    """`phi^T values_u`: values (..., units, points) to weights (..., units, d)."""
    return values @ phi


def _apply(matrix: Tensor, vectors: Tensor) -> Tensor:
    """A matrix a unit times a vector a unit; one matrix may serve all samples."""
    if matrix.shape[1] == 1:
        return torch.einsum("tuij,tsuj->tsui", matrix[:, 0], vectors)
    return (matrix @ vectors.unsqueeze(-1)).squeeze(-1)


def with_missing(seen: Observations, mask: Tensor) -> Observations:
    """The same observations without the points where `mask` (tasks, points) is false."""
    return replace(seen, inverse_noise=seen.inverse_noise * mask[:, None, None, :])
