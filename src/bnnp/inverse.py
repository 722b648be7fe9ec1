"""Solves with the posterior precisions of all units, in chunks that stay in the cache, with closed-form derivatives.

Arrays have the units last, which is how large products give them and what `kernels.py` wants.
"""

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from bnnp import kernels, lapack
from bnnp._shapes import Float, Tensor

FLOAT32_HEALTH = 1e-4
"""Least share of its diagonal element that a pivot may keep in float32; below it digits are lost to cancellation."""
NUMBERS_AT_ONCE = 2**20
"""Numbers in the largest array of one chunk: 4 MB in float32, which the caches of two cores hold."""


class TooLargeForFloat32(ArithmeticError):
    """A precision too close to singular for float32: the caller must go on in float64."""


class FactorisationError(ArithmeticError):
    """A posterior precision was not positive definite: its inputs were not finite, or the noise was far too small."""

    def __init__(self, message: str, task: int):
        super().__init__(message)
        self.task = task


def solve_in_function_space(
    covariance: Float[Tensor, "units d"] | Float[Tensor, "units d d"],
    phi: Float[Tensor, "tasks samples points d"],
    inverse_noise: Float[Tensor, "tasks noise_samples points units"],
    right: Float[Tensor, "tasks samples points columns units"],
) -> tuple[
    Float[Tensor, "tasks samples points columns units"],
    Float[Tensor, "tasks samples units"],
    Float[Tensor, "tasks samples units"],
]:
    """`M^-1 right`, `log |M|` and `tr M^-1 - n` for every unit: `M = I + D phi Sigma phi^T D`, `D = diag(1/s)`."""
    return _FunctionSpaceSolve.apply(covariance, phi, inverse_noise, right)  # pyright: ignore


def solve_in_weight_space(
    precision: Float[Tensor, "units d"] | Float[Tensor, "units d d"],
    phi: Float[Tensor, "tasks samples points d"],
    inverse_noise: Float[Tensor, "tasks noise_samples points units"],
    right: Float[Tensor, "tasks samples d columns units"],
) -> tuple[
    Float[Tensor, "tasks samples d columns units"],
    Float[Tensor, "tasks samples units"],
    Float[Tensor, "tasks samples units"],
]:
    """`Q^-1 right`, `log |Q|` and `tr(Lambda Q^-1) - d` for every unit: `Q = Lambda + phi^T D^2 phi`."""
    return _WeightSpaceSolve.apply(precision, phi, inverse_noise, right)  # pyright: ignore


class _FunctionSpaceSolve(torch.autograd.Function):
    """The features times the covariances of all units are one large product; it is made in chunks and never kept.

    With solutions `X = M^-1 B`, gradients `G` of `X`, `g` of `log |M|` and `t` of the trace, and `H = M^-1 G`:
    `dB = H` and `E = dM = g M^-1 - t M^-2 - (H X^T + X H^T)/2`. From `E`, `dSigma = phi^T D E D phi`,
    `dphi = 2 D E D phi Sigma` and `dD = 2 diag(E (M - I)) / D`, where `E M` needs no product with `M`, since `M X = B`
    and `M H = G`.
    """

    @staticmethod
    def forward(ctx, covariance: Tensor, phi: Tensor, inverse_noise: Tensor, right: Tensor):  # pyright: ignore
        batch = (*phi.shape[:2], covariance.shape[0])
        rows, scale, columns = _rows(phi), _rows_of_noise(inverse_noise, batch), _rows(right)
        (count, n, d), units = rows.shape, covariance.shape[0]
        inverse = phi.new_empty(count, n * (n + 1) // 2, units)
        solution = torch.empty_like(columns)
        log_determinant, excess_trace, health = phi.new_empty(3, count, units)

        back_end = _back_end(n, phi.device)
        for part in _chunks(count, n * units * max(n, d)):
            spread = _times_covariance(rows[part], covariance)  # (rows, n, units, d)
            gram = (rows[part] @ spread.flatten(1, 2).mT).view(-1, n, n, units)
            outputs = (inverse, solution, log_determinant, excess_trace, health)
            back_end.invert_scaled(gram, scale[part], columns[part], *(output[part] for output in outputs))
        _check(health, batch)
        ctx.save_for_backward(covariance, rows, scale, columns, inverse, solution)
        ctx.shapes = phi.shape, inverse_noise.shape, batch
        return solution.view(right.shape), log_determinant.view(batch), excess_trace.view(batch)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_solution: Tensor, grad_log: Tensor, grad_trace: Tensor):  # pyright: ignore
        covariance, rows, scale, columns, inverse, solution = ctx.saved_tensors
        phi_shape, noise_shape, batch = ctx.shapes
        grads, logs, traces = _rows(grad_solution), _rows(grad_log), _rows(grad_trace)
        (count, n, d), units = rows.shape, covariance.shape[0]
        grad_rows, grad_scale, grad_right = torch.empty_like(rows), torch.empty_like(scale), torch.empty_like(columns)
        grad_covariance = torch.zeros_like(covariance)

        back_end = _back_end(n, rows.device)
        for part in _chunks(count, n * units * max(n, d)):
            given = (inverse, scale, columns, solution, grads, logs, traces)
            grad_gram = rows.new_empty(len(rows[part]), n, n, units)
            back_end.differentiate_scaled(*(x[part] for x in given), grad_gram, grad_scale[part], grad_right[part])
            pulled = (grad_gram.view(-1, n, n * units).mT @ rows[part]).view(-1, units, d)
            flat = rows[part].reshape(-1, d)
            if covariance.ndim == 2:
                grad_covariance += (pulled * flat.unsqueeze(1)).sum(0)
                grad_rows[part] = 2 * (pulled * covariance).sum(1).view(-1, n, d)
            else:
                grad_covariance += (flat.T @ pulled.flatten(1)).view(d, units, d).transpose(0, 1)
                grad_rows[part] = (2 * (pulled.flatten(1) @ covariance.reshape(units * d, d))).view(-1, n, d)
        grad_noise = grad_scale.view(*batch[:2], n, units).sum_to_size(noise_shape)
        return grad_covariance, grad_rows.view(phi_shape), grad_noise, grad_right.view(grad_solution.shape)


class _WeightSpaceSolve(torch.autograd.Function):
    """The weighted Gram matrices of all units are one product of the weights with all `phi_i phi_j`, each pair once.

    With `X`, `G`, `g`, `t`, `H` as in function space, `dB = H`, `E = dQ = g Q^-1 - t Q^-1 Lambda Q^-1
    - (H X^T + X H^T)/2` and `dLambda = E + t Q^-1`. No derivative multiplies `E` by `Q`, which float32 would not bear.
    """

    @staticmethod
    def forward(ctx, precision: Tensor, phi: Tensor, inverse_noise: Tensor, right: Tensor):  # pyright: ignore
        batch = (*phi.shape[:2], precision.shape[0])
        rows, scale, columns = _rows(phi), _rows_of_noise(inverse_noise, batch), _rows(right)
        (count, n, d), units = rows.shape, precision.shape[0]
        prior = lapack.packed((torch.diag_embed(precision) if precision.ndim == 2 else precision).unsqueeze(0))[0]
        prior = prior.contiguous()
        inverse = phi.new_empty(count, d * (d + 1) // 2, units)
        solution = torch.empty_like(columns)
        log_determinant, excess_trace, health = phi.new_empty(3, count, units)

        back_end = _back_end(d, phi.device)
        for part in _chunks(count, max(n, units) * d * (d + 1) // 2):
            torch.bmm(back_end.pair_products(rows[part]).mT, scale[part].square(), out=inverse[part])
            outputs = (inverse, columns, solution, log_determinant, excess_trace, health)
            back_end.invert_added(prior, *(output[part] for output in outputs))
        _check(health, batch)
        ctx.save_for_backward(prior, rows, scale, inverse, solution)
        ctx.shapes = precision.shape, phi.shape, inverse_noise.shape, batch
        return solution.view(right.shape), log_determinant.view(batch), excess_trace.view(batch)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_solution: Tensor, grad_log: Tensor, grad_trace: Tensor):  # pyright: ignore
        prior, rows, scale, inverse, solution = ctx.saved_tensors
        prior_shape, phi_shape, noise_shape, batch = ctx.shapes
        grads, logs, traces = _rows(grad_solution), _rows(grad_log), _rows(grad_trace)
        (count, n, d), (pairs, units) = rows.shape, prior.shape
        grad_rows, grad_scale, grad_right = torch.empty_like(rows), torch.empty_like(scale), torch.empty_like(solution)
        grad_prior, weighted = torch.zeros_like(prior), torch.zeros_like(prior)

        back_end = _back_end(d, rows.device)
        for part in _chunks(count, max(n, units) * pairs):
            grad_gram = torch.empty_like(inverse[part])
            given = (inverse, solution, grads, logs, traces)
            back_end.differentiate_added(prior, *(x[part] for x in given), grad_gram, grad_right[part])
            grad_scale[part] = 2 * scale[part] * (back_end.pair_products(rows[part]) @ grad_gram)
            grad_pairs = scale[part].square() @ grad_gram.mT
            grad_rows[part] = back_end.differentiate_pair_products(rows[part], grad_pairs)
            if ctx.needs_input_grad[0]:
                grad_prior += grad_gram.sum(0)
                weighted += (traces[part].unsqueeze(1) * inverse[part]).sum(0)
        grad_noise = grad_scale.view(*batch[:2], n, units).sum_to_size(noise_shape)
        grad_precision = _whole_gradient(grad_prior, weighted, prior_shape) if ctx.needs_input_grad[0] else None
        return grad_precision, grad_rows.view(phi_shape), grad_noise, grad_right.view(grad_solution.shape)


def _whole_gradient(grad_prior: Tensor, weighted: Tensor, shape: torch.Size) -> Tensor:
    """`sum E + sum t Q^-1` as matrices; `grad_prior` has each pair once and so counts it twice."""
    twice = lapack.unpacked(grad_prior.unsqueeze(0))[0]
    once = lapack.unpacked(weighted.unsqueeze(0))[0]
    lapack.diagonal(twice).mul_(2)
    whole = 0.5 * twice + once
    return lapack.diagonal(whole) if len(shape) == 2 else whole


def _check(health: Float[Tensor, "rows units"], batch: tuple[int, int, int]) -> None:
    """Refuse matrices that were not positive definite, and float32 where it is not accurate."""
    if health.numel() == 0:
        return
    single = health.dtype == torch.float32
    if bool(health.min() >= (FLOAT32_HEALTH if single else 0)):
        return
    if single:
        raise TooLargeForFloat32
    where = tuple(int(i) for i in np.unravel_index(int(health.isnan().flatten().nonzero()[0]), batch))
    raise FactorisationError(
        f"a posterior precision is not positive definite at index {where} of (tasks, samples, units), not in float64 "
        "either; the data or parameters are not finite, or the pseudo-noise is far too small",
        task=where[0],
    )


def _back_end(size: int, device: torch.device):
    return kernels if size <= kernels.LARGEST and device.type == "cpu" else lapack


def _rows(x: Tensor) -> Tensor:
    """Tasks and samples as one axis."""
    return x.flatten(0, 1).contiguous()


def _rows_of_noise(inverse_noise: Tensor, batch: tuple[int, int, int]) -> Tensor:
    return inverse_noise.expand(*batch[:2], *inverse_noise.shape[2:]).flatten(0, 1).contiguous()


def _times_covariance(rows: Float[Tensor, "rows n d"], covariance: Tensor) -> Float[Tensor, "rows n units d"]:
    """`phi Sigma_u` for all units at once."""
    if covariance.ndim == 2:
        return rows.unsqueeze(2) * covariance
    units, d, _ = covariance.shape
    product = rows.reshape(-1, d) @ covariance.transpose(0, 1).reshape(d, units * d)
    return product.view(*rows.shape[:2], units, d)


def _chunks(count: int, numbers_each: int) -> list[slice]:
    size = max(1, NUMBERS_AT_ONCE // max(1, numbers_each))
    return [slice(start, start + size) for start in range(0, count, size)]
