"""Solves with the posterior precisions of all units, in chunks that stay in the cache, with closed-form derivatives.

Arrays have the units last, which is how large products give them and what `binding.py` wants.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from bnnp._core.shapes import Float, Tensor
from bnnp._core.threads import in_parallel
from bnnp.numerics.backends import torch_linalg
from bnnp.numerics.backends.numba import binding

FLOAT32_HEALTH = 1e-4
"""Least share of its diagonal element that a pivot may keep in float32; below it digits are lost to cancellation."""
FLOAT64_HEALTH = 1e-12
"""The same for float64, beyond which there is no wider precision to go to."""
NUMBERS_AT_ONCE = 2**20
"""Numbers in the largest array of one chunk: 4 MB in float32, which the caches of two cores hold."""


NUMBERS_A_SHARE = 2**18
"""Work that is worth a thread: about a millisecond."""
MOST_SHARES = 4


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


def update_in_weight_space(
    precision: Float[Tensor, "units d"] | Float[Tensor, "units d d"],
    log_scale: Float[Tensor, "units"],
    mean: Float[Tensor, "mean_tasks mean_samples units d"],
    phi: Float[Tensor, "tasks phi_samples points d"],
    inverse_noise: Float[Tensor, "tasks noise_samples units points"],
    y: Float[Tensor, "tasks y_samples units points"],
    start: Float[Tensor, "tasks samples units d"],
    noise: Float[Tensor, "tasks samples units points"],
    rest: Float[Tensor, "tasks phi_samples pairs units"] | None = None,
    shift: Float[Tensor, "tasks phi_samples d units"] | None = None,
) -> tuple[
    Float[Tensor, "tasks samples units d"],
    Float[Tensor, "tasks phi_samples units"],
    Float[Tensor, "tasks phi_samples units"],
]:
    """Samples less the prior mean, the KL to the prior and the log evidence: `gaussian.py` in weight space.

    log_scale: `log |L|`;  start: `L^-T v0`;  noise: `e`.
    rest, shift: what other points add to `Q` (packed as by `weighted_gram`, without a derivative) and to `phi^T D r`.

    One call of the compiled loops each way: with the samples and units of a small network, every operation of torch in
    between would cost more than what it computes.
    """
    return _WeightSpaceUpdate.apply(precision, log_scale, mean, phi, inverse_noise, y, start, noise, rest, shift)  # pyright: ignore


@torch.no_grad()
def weighted_gram(
    phi: Float[Tensor, "tasks samples points d"], inverse_noise: Float[Tensor, "tasks noise_samples points units"]
) -> Float[Tensor, "tasks samples pairs units"]:
    """`phi^T D^2 phi` for every unit, packed by rows of the lower triangle. It has no derivative."""
    rows, scale = _rows(phi), _rows_of_each(inverse_noise, phi)
    (count, n, d), units = rows.shape, scale.shape[-1]
    gram = phi.new_zeros(count, d * (d + 1) // 2, units)
    back_end = back_end_for(d, phi.device)

    def work(chunks: list[slice]) -> None:
        for part in parts_of(chunks, back_end):
            back_end.add_weighted_gram(part, rows, scale, gram)

    in_parallel(work, shares_of(count, max(n, d) * d * units, phi.device))
    return gram.view(*phi.shape[:2], *gram.shape[1:])


def unpacked(packed: Float[Tensor, "tasks samples pairs units"]) -> Float[Tensor, "tasks samples units d d"]:
    """Symmetric matrices from their packed form."""
    whole = torch_linalg.unpacked(packed.flatten(0, 1))
    return whole.view(*packed.shape[:2], *whole.shape[1:])


def times_each(
    matrix: Float[Tensor, "units d d"], vectors: Float[Tensor, "tasks samples units d"]
) -> Float[Tensor, "tasks samples units d"]:
    """A matrix a unit times a vector a unit."""
    return _TimesEach.apply(matrix, vectors)  # pyright: ignore


class _TimesEach(torch.autograd.Function):
    """As one batched product of copies: of views in this order torch makes a loop over units."""

    @staticmethod
    def forward(ctx, matrix: Tensor, vectors: Tensor):  # pyright: ignore
        by_unit = vectors.flatten(0, 1).transpose(0, 1).contiguous()
        ctx.save_for_backward(matrix, by_unit)
        return (by_unit @ matrix.mT).transpose(0, 1).contiguous().view(vectors.shape)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):  # pyright: ignore
        matrix, by_unit = ctx.saved_tensors
        grad_by_unit = grad.flatten(0, 1).transpose(0, 1).contiguous()
        grad_matrix = grad_by_unit.mT @ by_unit if ctx.needs_input_grad[0] else None
        if not ctx.needs_input_grad[1]:
            return grad_matrix, None
        return grad_matrix, (grad_by_unit @ matrix).transpose(0, 1).contiguous().view(grad.shape)


class _FunctionSpaceSolve(torch.autograd.Function):
    """The features times the covariances of all units are one large product; it is made in chunks and never kept.

    With solutions `X = M^-1 B`, gradients `G` of `X`, `g` of `log |M|` and `t` of the trace, and `H = M^-1 G`:
    `dB = H` and `E = dM = g M^-1 - t M^-2 - (H X^T + X H^T)/2`. From `E`, `dSigma = phi^T D E D phi`,
    `dphi = 2 D E D phi Sigma` and `dD = 2 diag(E (M - I)) / D`, where `E M` needs no product with `M`, since `M X = B`
    and `M H = G`.
    """

    @staticmethod
    def forward(ctx, covariance: Tensor, phi: Tensor, inverse_noise: Tensor, right: Tensor):  # pyright: ignore
        batch = (phi.shape[0], phi.shape[1], covariance.shape[0])
        rows, scale, columns = _rows(phi), _rows_of_noise(inverse_noise, batch), _rows(right)
        (count, n, d), units = rows.shape, covariance.shape[0]
        inverse = phi.new_empty(count, n * (n + 1) // 2, units)
        solution = torch.empty_like(columns)
        log_determinant, excess_trace, health = phi.new_empty(3, count, units)

        back_end = back_end_for(n, phi.device)
        beside = None if covariance.ndim == 2 else covariance.transpose(0, 1).reshape(d, units * d)
        outputs = (inverse, solution, log_determinant, excess_trace, health)

        def work(chunks: list[slice]) -> None:
            spread = phi.new_empty(_longest(chunks), n, units, d)
            gram = phi.new_empty(_longest(chunks), n, n * units)
            for part in chunks:
                here, m = rows[part], part.stop - part.start
                if beside is None:
                    torch.mul(here.unsqueeze(2), covariance, out=spread[:m])
                else:
                    torch.mm(here.view(-1, d), beside, out=spread[:m].view(-1, units * d))
                torch.bmm(here, spread[:m].view(m, n * units, d).mT, out=gram[:m])
                matrices = gram[:m].view(m, n, n, units)
                back_end.invert_scaled(matrices, *rows_in(part, scale, columns, *outputs))

        in_parallel(work, shares_of(count, n * units * max(n, d), phi.device))
        check_health(health, batch)
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
        diagonal = covariance.ndim == 2
        back_end = back_end_for(n, rows.device)
        given = (inverse, scale, columns, solution, grads, logs, traces)

        def work(chunks: list[slice]) -> Tensor:
            grad_gram = rows.new_empty(_longest(chunks), n, n, units)
            pulled = rows.new_empty(_longest(chunks), n * units, d)
            grad_covariance = rows.new_zeros((units, d) if diagonal else (d, units * d))
            for part in chunks:
                here, m = rows[part], part.stop - part.start
                arguments = [*rows_in(part, *given), grad_gram[:m], *rows_in(part, grad_scale, grad_right)]
                back_end.differentiate_scaled(*arguments)
                torch.bmm(grad_gram[:m].view(m, n, n * units).mT, here, out=pulled[:m])
                if diagonal:
                    points = pulled[:m].view(m * n, units, d)
                    grad_covariance += (points * here.view(m * n, 1, d)).sum(0)
                    grad_rows[part] = (points * covariance).sum(1).view(m, n, d)
                else:
                    points = pulled[:m].view(m * n, units * d)
                    torch.mm(points, covariance.view(units * d, d), out=grad_rows[part].view(m * n, d))
                    if ctx.needs_input_grad[0]:
                        grad_covariance.addmm_(here.view(m * n, d).T, points)
            return grad_covariance

        grad_covariance = _sum(in_parallel(work, shares_of(count, n * units * max(n, d), rows.device)))
        if not diagonal:
            grad_covariance = grad_covariance.view(d, units, d).transpose(0, 1)
        grad_rows *= 2
        grad_noise = grad_scale.view(*batch[:2], n, units).sum_to_size(noise_shape)
        return grad_covariance, grad_rows.view(phi_shape), grad_noise, grad_right.view(grad_solution.shape)


class _WeightSpaceUpdate(torch.autograd.Function):
    """The Gram matrices of all units are those of the same features, weighted by the unit's own noise.

    With the right-hand sides `B` of the mean and the samples, `X = Q^-1 B`, gradients `G` of `X`, `g` of `log |Q|`, `t`
    of the trace, and `H = Q^-1 G`: `dB = H`, `E = dQ = g Q^-1 - t Q^-1 Lambda Q^-1 - (H X^T + X H^T)/2` and
    `dLambda = E + t Q^-1`. No derivative multiplies `E` by `Q`, which float32 would not bear.
    """

    @staticmethod
    def forward(  # pyright: ignore
        ctx, precision, log_scale, mean, phi, inverse_noise, y, start, noise, rest, shift
    ):
        (tasks, samples, units, d), (phi_samples, n) = start.shape, phi.shape[1:3]
        rows, count = _rows(phi), tasks * phi_samples
        prior = precision.mT.unsqueeze(0) if precision.ndim == 2 else torch_linalg.packed(precision.unsqueeze(0))
        saved = (
            prior.contiguous(),
            _rows_of_each(mean.mT, phi),
            rows,
            _rows_of_each(inverse_noise.mT, phi),
            _rows_of_each(y.mT, phi),
        )
        drawn = noise.mT.contiguous()
        inverse, centre = phi.new_empty(count, d * (d + 1) // 2, units), phi.new_empty(count, d, units)
        centred = phi.new_empty(tasks, samples, d, units)
        batch = (tasks, phi_samples, units)
        kl, log_evidence, health = phi.new_empty(batch), phi.new_empty(batch), phi.new_empty(batch)
        others = (None, None) if rest is None else (_rows(rest), _rows(shift))
        results = (inverse, centre, centred, kl, log_evidence, health)
        arguments = (
            saved[0],
            log_scale.contiguous().view(1, 1, units),
            *saved[1:],
            start.mT.contiguous(),
            drawn,
            *others,
            *results,
        )
        back_end = back_end_for(d, phi.device)

        def work(chunks: list[slice]) -> list[float]:
            return [back_end.update(part, *arguments) for part in parts_of(chunks, back_end)]

        least = in_parallel(work, shares_of(count, max(n, d) * d * units, phi.device))
        if not all(value >= _least_health(phi.dtype) for some in least for value in some):
            _refuse(health, batch)
        ctx.save_for_backward(*saved, drawn, inverse, centre, centred)
        ctx.shapes = mean.shape, phi.shape, inverse_noise.shape, y.shape
        return centred.mT, kl, log_evidence

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_centred: Tensor, grad_kl: Tensor, grad_evidence: Tensor):  # pyright: ignore
        saved = ctx.saved_tensors
        prior, _, rows, scale, _, _, _, _, centred = saved
        mean_shape, phi_shape, noise_shape, y_shape = ctx.shapes
        (count, n, d), units, needs = rows.shape, centred.shape[3], ctx.needs_input_grad
        gradients = (grad_centred.mT.contiguous(), grad_kl.contiguous(), grad_evidence.contiguous())
        grad_phi = torch.empty_like(rows) if needs[3] else None
        grad_scale, grad_y = rows.new_empty(count, n, units), rows.new_empty(count, n, units)
        grad_start, grad_shift = torch.empty_like(centred), rows.new_empty(count, d, units)
        back_end = back_end_for(d, rows.device)

        def work(chunks: list[slice]) -> Any:
            grad_prior = torch.zeros_like(prior) if needs[0] else None
            results = (grad_prior, grad_phi, grad_scale, grad_y, grad_start, grad_shift)
            for part in parts_of(chunks, back_end):
                back_end.differentiate_update(part, *saved, *gradients, *results)
            return grad_prior

        grad_priors = in_parallel(work, shares_of(count, max(n, d) * d * units, rows.device))
        batch = phi_shape[:2]

        def units_first(gradient: Tensor, shape: Sequence[int]) -> Tensor:
            return gradient.view(*batch, n, units).sum_to_size(*shape[:2], n, units).mT

        return (
            _prior_gradient(_sum(grad_priors), d) if needs[0] else None,
            (grad_kl - grad_evidence).sum((0, 1)) if needs[1] else None,
            -(grad_y.mT @ rows).view(*batch, units, d).sum_to_size(mean_shape) if needs[2] else None,
            None if grad_phi is None else grad_phi.view(phi_shape),
            units_first(grad_scale, noise_shape) if needs[4] else None,
            units_first(grad_y, y_shape) if needs[5] else None,
            grad_start.mT if needs[6] else None,
            _noise_gradient(rows, scale, grad_start) if needs[7] else None,
            None,
            grad_shift.view(*batch, d, units) if needs[9] else None,
        )


def _prior_gradient(grad: Float[Tensor, "1 prior_pairs units"], d: int) -> Tensor:
    return grad[0].mT if grad.shape[1] == d else torch_linalg.unpacked(grad)[0]


def _noise_gradient(
    rows: Float[Tensor, "rows n d"],
    scale: Float[Tensor, "scale_rows n units"],
    grad_start: Float[Tensor, "tasks samples d units"],
) -> Float[Tensor, "tasks samples units n"]:
    """`-D phi H`: draws have derivatives too, for those who ask."""
    by_row = grad_start.view(len(rows), -1, *grad_start.shape[2:])
    grad = -(rows.unsqueeze(1) @ by_row) * torch_linalg.for_each(scale, len(rows)).unsqueeze(1)
    return grad.view(*grad_start.shape[:2], *grad.shape[2:]).mT


def check_health(health: Float[Tensor, "*rows"], batch: tuple[int, int, int] | None = None) -> None:
    """Refuse matrices that were not positive definite, and float32 where it is not accurate."""
    if health.numel() > 0 and not bool(health.min() >= _least_health(health.dtype)):
        _refuse(health, batch or (health.shape[0], health.shape[1], math.prod(health.shape[2:])))


def _least_health(dtype: torch.dtype) -> float:
    return FLOAT32_HEALTH if dtype == torch.float32 else FLOAT64_HEALTH


def _refuse(health: Tensor, batch: tuple[int, int, int]) -> None:
    if health.dtype == torch.float32:
        raise TooLargeForFloat32
    bad = ~(health >= _least_health(health.dtype))
    raise not_positive_definite(tuple(int(i) for i in np.unravel_index(int(bad.flatten().nonzero()[0]), batch)))


def not_positive_definite(where: tuple[int, ...]) -> FactorisationError:
    return FactorisationError(
        f"a posterior precision is not positive definite at index {where} of (tasks, samples, units), not in float64 "
        "either; the data or parameters are not finite, or the pseudo-noise is far too small",
        task=where[0],
    )


def back_end_for(size: int, device: torch.device) -> Any:
    return binding if size <= binding.LARGEST and device.type == "cpu" else torch_linalg


def _rows(x: Tensor) -> Tensor:
    """Tasks and samples as one axis."""
    return x.flatten(0, 1).contiguous()


def _rows_of_each(x: Tensor, phi: Tensor) -> Tensor:
    """Tasks and samples as one axis, of which each place may stand for several of those of `phi`."""
    if x.shape[:2] != (1, 1) and x.shape[:2] not in (phi.shape[:2], (phi.shape[0], 1)):
        x = x.expand(*phi.shape[:2], *x.shape[2:])
    return _rows(x)


def _rows_of_noise(inverse_noise: Tensor, batch: tuple[int, int, int]) -> Tensor:
    return inverse_noise.expand(*batch[:2], *inverse_noise.shape[2:]).flatten(0, 1).contiguous()


def shares_of(count: int, numbers_each: int, device: torch.device) -> list[list[slice]]:
    """Rows in chunks that stay in the cache, dealt into shares large enough for a thread."""
    size = max(1, NUMBERS_AT_ONCE // max(1, numbers_each))
    shares = min(MOST_SHARES, count * numbers_each // NUMBERS_A_SHARE) if device.type == "cpu" else 1
    shares = max(1, shares)
    bounds = [count * share // shares for share in range(shares + 1)]
    return [
        [slice(start, min(start + size, last)) for start in range(first, last, size)]
        for first, last in itertools.pairwise(bounds)
    ]


def rows_in(part: slice, *tensors: Tensor) -> Sequence[Tensor]:
    """These rows of all tensors; a slice of everything is worth no operation."""
    if part == slice(0, len(tensors[0])):
        return tensors
    return [tensor[part] for tensor in tensors]


def parts_of(chunks: list[slice], back_end) -> list[slice]:
    """Compiled loops hold a block at a time, whatever they are given: chunks are for LAPACK."""
    return chunks if back_end is torch_linalg or not chunks else [slice(chunks[0].start, chunks[-1].stop)]


def _longest(chunks: list[slice]) -> int:
    return chunks[0].stop - chunks[0].start if chunks else 0


def _sum(parts: list[Tensor]) -> Tensor:
    """In a fixed order, so that results do not depend on the number of threads."""
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
