"""Solves with the posterior precisions of all units, and what else is done to all units at once.

Their derivatives are in closed form. Arrays have the units last, which is how large products give them and what back
ends want (`backends/base.py`).
"""

import torch
from torch.autograd.function import once_differentiable

from bnnp._core.shapes import Float, Tensor
from bnnp.numerics.backends import back_end_for, torch_linalg
from bnnp.numerics.chunks import in_shares, rows_of, rows_of_each
from bnnp.numerics.function_space import FunctionSpaceSolve
from bnnp.numerics.health import FactorisationError, TooLargeForFloat32, check_health
from bnnp.numerics.weight_space import WeightSpaceUpdate

__all__ = [
    "FactorisationError",
    "TooLargeForFloat32",
    "check_health",
    "solve_in_function_space",
    "times_each",
    "unpacked",
    "update_in_weight_space",
    "weighted_gram",
]


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
    return FunctionSpaceSolve.apply(covariance, phi, inverse_noise, right)  # pyright: ignore


def update_in_weight_space(
    precision: Float[Tensor, "units d"] | Float[Tensor, "units d d"],
    log_scale: Float[Tensor, "units"],
    mean: Float[Tensor, "mean_tasks mean_samples units d"],
    phi: Float[Tensor, "tasks phi_samples points d"],
    inverse_noise: Float[Tensor, "tasks noise_samples units points"],
    y: Float[Tensor, "tasks y_samples units points"],
    start: Float[Tensor, "tasks samples units d"],
    draws: Float[Tensor, "tasks samples units points"],
    rest: Float[Tensor, "tasks phi_samples pairs units"] | None = None,
    shift: Float[Tensor, "tasks phi_samples d units"] | None = None,
) -> tuple[
    Float[Tensor, "tasks samples units d"],
    Float[Tensor, "tasks phi_samples units"],
    Float[Tensor, "tasks phi_samples units"],
]:
    """Samples less the prior mean, the KL to the prior and the log evidence: `gaussian.py` in weight space.

    It is one call of the compiled loops each way: with the samples and units of a small network, every operation of
    torch in between would cost more than what it computes.

    Args:
        precision: Of the prior, or its diagonal.
        log_scale: `log |L|`.
        mean: Of the prior.
        phi: Features.
        inverse_noise: `1/s`.
        y: Observations.
        start: `L^-T v0`.
        draws: `e`.
        rest: What other points add to `Q`, packed as by `weighted_gram`. It has no derivative.
        shift: What they add to `phi^T D r`.
    """
    return WeightSpaceUpdate.apply(precision, log_scale, mean, phi, inverse_noise, y, start, draws, rest, shift)  # pyright: ignore


@torch.no_grad()
def weighted_gram(
    phi: Float[Tensor, "tasks samples points d"], inverse_noise: Float[Tensor, "tasks noise_samples points units"]
) -> Float[Tensor, "tasks samples pairs units"]:
    """`phi^T D^2 phi` for every unit, packed by rows of the lower triangle. It has no derivative."""
    rows, scale = rows_of(phi), rows_of_each(inverse_noise, phi)
    (count, n, d), units = rows.shape, scale.shape[-1]
    gram = phi.new_zeros(count, d * (d + 1) // 2, units)
    back_end = back_end_for(d, phi.device)

    def work(chunks: list[slice]) -> None:
        for part in chunks:
            back_end.add_weighted_gram(part, rows, scale, gram)

    in_shares(work, count, max(n, d) * d * units, phi.device, back_end.IN_CHUNKS)
    return gram.view(*phi.shape[:2], *gram.shape[1:])


def unpacked(packed: Float[Tensor, "tasks samples pairs units"]) -> Float[Tensor, "tasks samples units d d"]:
    """Symmetric matrices from their packed form."""
    whole = torch_linalg.unpacked(packed.flatten(0, 1))
    return whole.view(*packed.shape[:2], *whole.shape[1:])


def times_each(
    matrix: Float[Tensor, "units d d"], vectors: Float[Tensor, "tasks samples units d"]
) -> Float[Tensor, "tasks samples units d"]:
    """A matrix per unit times a vector per unit."""
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
