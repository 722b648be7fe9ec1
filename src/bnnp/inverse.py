"""Inverses of many small matrices `I + gram`, fast: in chunks, on all threads, with closed-form derivatives."""

from concurrent.futures import ThreadPoolExecutor

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


def function_space_inverse(
    covariance: Float[Tensor, "units d"] | Float[Tensor, "units d d"],
    phi: Float[Tensor, "tasks phi_samples points d"],
    inverse_noise: Float[Tensor, "tasks noise_samples units points"],
) -> tuple[Float[Tensor, "tasks phi_samples units points points"], Float[Tensor, "tasks phi_samples units"]]:
    """`M^-1` and `log |M|` for every unit, with `M = I + D phi Sigma phi^T D` and `D = diag(1/s)`."""
    inverse, log_determinant = _FunctionSpaceInverse.apply(covariance, phi, inverse_noise)  # pyright: ignore
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
        refuse_large(matrix, "function_space")
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
            excess = grad_logs[part].unsqueeze(-1) - diagonal(0.5 * (left + inverses[part] @ grad_inverses[part].mT))
            excess = excess - diagonal(grad_matrix)
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


def refuse_large(gram: Tensor, form: str) -> None:
    """Refuse float32 where it is not accurate."""
    if gram.dtype == torch.float32 and gram.numel() > 0:
        trace = diagonal(gram.detach()).sum(-1).amax()
        if bool(trace > FLOAT32_TRACE[form]):
            raise TooLargeForFloat32


def _chunks(count: int, numbers_each: int) -> list[slice]:
    size = max(1, NUMBERS_AT_ONCE // max(1, numbers_each))
    return [slice(start, start + size) for start in range(0, count, size)]


def diagonal(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1)


def _invert(gram: Float[Tensor, "*batch m m"]) -> tuple[Float[Tensor, "*batch m m"], Float[Tensor, "*batch"]]:
    """`(I + gram)^-1` and `log |I + gram|`; overwrites `gram`.

    LAPACK takes small matrices one by one on one core, so the batch is shared out over as many threads as torch uses.
    """
    size = gram.shape[-1]
    diagonal(gram).add_(1)
    flat = gram.reshape(-1, size, size)
    identity = torch.eye(size, dtype=gram.dtype, device=gram.device)
    inverse, log_determinant = torch.empty_like(flat), gram.new_empty(len(flat))

    def work(part: slice) -> int:
        factor, info = torch.linalg.cholesky_ex(flat[part])
        if info.any():
            return part.start + int(info.nonzero()[0])
        half = torch.linalg.solve_triangular(factor, identity.expand(factor.shape), upper=False)
        torch.bmm(half.mT, half, out=inverse[part])
        log_determinant[part] = 2 * diagonal(factor).log().sum(-1)
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
