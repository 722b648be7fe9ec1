"""Inverses of many small matrices `I + gram`, in chunks that stay in the cache, with closed-form derivatives."""

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from bnnp._shapes import Float, Tensor

FLOAT32_TRACE = {"function_space": 1e5, "weight_space": 1e2}
"""Largest trace of `A^T A` that float32 serves in each form.

In function space derivatives are right to 1e-2 at that bound even for collinear features. In weight space those of the
prior's factor lose digits with the square of the trace: they are right to 1e-3 at its bound.
"""
NUMBERS_AT_ONCE = 2**18
"""Numbers in the largest array of one chunk: 1 MB in float32, which stays in a core's own cache."""


class TooLargeForFloat32(ArithmeticError):
    """A trace above `FLOAT32_TRACE`: the caller must go on in float64."""


class FactorisationError(ArithmeticError):
    """A posterior precision was not positive definite: its inputs were not finite, or the noise was far too small."""

    def __init__(self, message: str, task: int):
        super().__init__(message)
        self.task = task


def inverse_of_one_plus(
    gram: Float[Tensor, "*batch m m"],
) -> tuple[Float[Tensor, "*batch m m"], Float[Tensor, "*batch"]]:
    """`(I + gram)^-1` and `log |I + gram|`, with derivatives that are products with the inverse."""
    inverse, log_determinant = _InverseOfOnePlus.apply(gram)  # pyright: ignore[reportGeneralTypeIssues]
    return inverse, log_determinant


def solve_in_function_space(
    covariance: Float[Tensor, "units d"] | Float[Tensor, "units d d"],
    phi: Float[Tensor, "tasks phi_samples points d"],
    inverse_noise: Float[Tensor, "tasks noise_samples units points"],
    right: Float[Tensor, "tasks phi_samples units points columns"],
) -> tuple[
    Float[Tensor, "tasks phi_samples units points columns"],
    Float[Tensor, "tasks phi_samples units"],
    Float[Tensor, "tasks phi_samples units"],
]:
    """`M^-1 right`, `log |M|` and `tr M^-1 - n` for every unit: `M = I + D phi Sigma phi^T D`, `D = diag(1/s)`."""
    return _FunctionSpaceSolve.apply(covariance, phi, inverse_noise, right)  # pyright: ignore


class _InverseOfOnePlus(torch.autograd.Function):
    """Differentiating through the factorisation would cost several times the factorisation itself."""

    @staticmethod
    def forward(ctx, gram: Tensor) -> tuple[Tensor, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        size = gram.shape[-1]
        flat = gram.reshape(gram.shape[:-2].numel(), size, size)
        inverse, log_determinant = torch.empty_like(flat), gram.new_empty(len(flat))

        for part in _chunks(len(flat), size * size):
            inverse[part], log_determinant[part] = _invert(flat[part].clone(), part.start, gram.shape[:-2])
        inverse = inverse.view(gram.shape)
        ctx.save_for_backward(inverse)
        return inverse, log_determinant.view(gram.shape[:-2])

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_inverse: Tensor, grad_log_determinant: Tensor) -> Tensor:  # pyright: ignore
        (inverse,) = ctx.saved_tensors
        product = inverse @ grad_inverse @ inverse
        return grad_log_determinant[..., None, None] * inverse - product


class _FunctionSpaceSolve(torch.autograd.Function):
    """The features times the covariances of all units are one large product; it is made in chunks and never kept.

    With solutions `X = M^-1 B`, gradients `G` of `X`, `g` of `log |M|` and `t` of the trace, and `H = M^-1 G`:
    `dB = H` and `E = dM = g M^-1 - t M^-2 - (H X^T + X H^T)/2`. From `E`, `dSigma = phi^T D E D phi`,
    `dphi = 2 D E D phi Sigma` and `dD = 2 diag(E (M - I)) / D`, where `E M` needs no product with `M`, since `M X = B`
    and `M H = G`.
    """

    @staticmethod
    def forward(ctx, covariance: Tensor, phi: Tensor, inverse_noise: Tensor, right: Tensor):  # pyright: ignore
        batch, units = (*phi.shape[:2], covariance.shape[0]), covariance.shape[0]
        rows, scale, columns = phi.flatten(0, 1), _rows_of(inverse_noise, batch), right.flatten(0, 1)
        count, n, d = rows.shape
        inverse = phi.new_empty(count, units, n, n)
        log_determinant = phi.new_empty(count, units)
        solution = torch.empty_like(columns)

        for part in _chunks(count, n * units * max(n, d)):
            spread = _times_covariance(rows[part], covariance)  # (rows, n, units, d)
            gram = (spread.flatten(1, 2) @ rows[part].mT).view(-1, n, units, n).transpose(1, 2)
            matrix = torch.mul(gram, scale[part].unsqueeze(-1), out=gram.new_empty(gram.shape))
            matrix *= scale[part].unsqueeze(-2)
            refuse_large(matrix, "function_space")
            flat, logs = _invert(matrix.view(-1, n, n), part.start * units, batch)
            inverse[part], log_determinant[part] = flat.view(matrix.shape), logs.view(-1, units)
            solution[part] = inverse[part] @ columns[part]
        ctx.save_for_backward(covariance, phi, inverse_noise, right, inverse, solution)
        trace = (diagonal(inverse) - 1).sum(-1)
        return solution.view(right.shape), log_determinant.view(batch), trace.view(batch)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_solution: Tensor, grad_log: Tensor, grad_trace: Tensor):  # pyright: ignore
        covariance, phi, inverse_noise, right, inverse, solution = ctx.saved_tensors
        units = covariance.shape[0]
        batch = (*phi.shape[:2], units)
        rows, scale, columns = phi.flatten(0, 1), _rows_of(inverse_noise, batch), right.flatten(0, 1)
        grads, logs, traces = grad_solution.flatten(0, 1), grad_log.flatten(0, 1), grad_trace.flatten(0, 1)
        count, n, d = rows.shape
        grad_rows, grad_scale, grad_right = torch.empty_like(rows), torch.empty_like(scale), torch.empty_like(columns)
        grad_covariance = torch.zeros_like(covariance)

        for part in _chunks(count, n * units * max(n, d)):
            inv, x, g, t = inverse[part], solution[part], logs[part][..., None, None], traces[part][..., None, None]
            h = inv @ grads[part]
            grad_right[part] = h
            outer = h @ x.mT
            grad_matrix = g * inv - t * (inv @ inv) - 0.5 * (outer + outer.mT)
            product = 0.5 * (h * columns[part] + x * grads[part]).sum(-1)  # diag of (H X^T + X H^T) M / 2
            excess = g[..., 0] - t[..., 0] * diagonal(inv) - product - diagonal(grad_matrix)
            grad_scale[part] = torch.where(scale[part] > 0, 2 * excess / scale[part], 0)
            grad_gram = grad_matrix * scale[part].unsqueeze(-1) * scale[part].unsqueeze(-2)
            pulled = (grad_gram.transpose(1, 2).reshape(-1, n * units, n) @ rows[part]).view(-1, units, d)
            flat = rows[part].reshape(-1, d)
            if covariance.ndim == 2:
                mine = (pulled * flat.unsqueeze(1)).sum(0)
                grad_rows[part] = 2 * (pulled * covariance).sum(1).view(-1, n, d)
            else:
                mine = (flat.T @ pulled.flatten(1)).view(d, units, d).transpose(0, 1)
                grad_rows[part] = (2 * (pulled.flatten(1) @ covariance.reshape(units * d, d))).view(-1, n, d)
            grad_covariance += mine
        grad_noise = grad_scale.view(*batch, n).sum_to_size(inverse_noise.shape)
        return grad_covariance, grad_rows.view(phi.shape), grad_noise, grad_right.view(right.shape)


def refuse_large(gram: Tensor, form: str) -> None:
    """Refuse float32 where it is not accurate."""
    if gram.dtype == torch.float32 and gram.numel() > 0:
        trace = diagonal(gram.detach()).sum(-1).amax()
        if bool(trace > FLOAT32_TRACE[form]):
            raise TooLargeForFloat32


def diagonal(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1)


def _invert(
    gram: Float[Tensor, "many m m"], first: int, batch: tuple[int, ...]
) -> tuple[Float[Tensor, "many m m"], Float[Tensor, "many"]]:
    """`(I + gram)^-1` and `log |I + gram|`; overwrites `gram`. `first` and `batch` tell where in a batch it stands."""
    diagonal(gram).add_(1)
    factor, info = torch.linalg.cholesky_ex(gram)
    if info.any():
        where = tuple(int(i) for i in np.unravel_index(first + int(info.nonzero()[0]), batch))
        raise FactorisationError(
            f"a posterior precision of size {gram.shape[-1]} is not positive definite at index {where} of "
            "(tasks, samples, units); the data or parameters are not finite, or the pseudo-noise is too small for "
            f"{str(gram.dtype).removeprefix('torch.')}",
            task=where[0],
        )
    identity = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device).expand(gram.shape)
    half = torch.linalg.solve_triangular(factor, identity, upper=False)
    return half.mT @ half, 2 * diagonal(factor).log().sum(-1)


def _rows_of(inverse_noise: Tensor, batch: tuple[int, ...]) -> Tensor:
    return inverse_noise.expand(*batch, inverse_noise.shape[-1]).flatten(0, 1)


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
