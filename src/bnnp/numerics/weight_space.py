"""The update in weight space for all units, with derivatives in closed form."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch.autograd.function import once_differentiable

from bnnp._core.shapes import Float, Tensor
from bnnp.numerics.backends import back_end_for, base, torch_linalg
from bnnp.numerics.chunks import in_shares, rows_of, rows_of_each, summed
from bnnp.numerics.health import is_healthy, refuse


class WeightSpaceUpdate(torch.autograd.Function):
    """The Gram matrices of all units are those of the same features, weighted by the unit's own noise.

    With the right-hand sides `B` of the mean and the samples, `X = Q^-1 B`, gradients `G` of `X`, `g` of `log |Q|`, `t`
    of the trace, and `H = Q^-1 G`: `dB = H`, `E = dQ = g Q^-1 - t Q^-1 Lambda Q^-1 - (H X^T + X H^T)/2` and
    `dLambda = E + t Q^-1`. No derivative multiplies `E` by `Q`, which float32 would not bear.
    """

    @staticmethod
    def forward(  # pyright: ignore
        ctx, precision, log_scale, mean, phi, inverse_noise, y, start, draws, rest, shift
    ):
        prior = precision.mT.unsqueeze(0) if precision.ndim == 2 else torch_linalg.packed(precision.unsqueeze(0))
        data = base.UpdateData(
            prior.contiguous(),
            rows_of_each(mean.mT, phi),
            rows_of(phi),
            rows_of_each(inverse_noise.mT, phi),
            rows_of_each(y.mT, phi),
            draws.mT.contiguous(),
        )
        others = (None, None) if rest is None else (rows_of(rest), rows_of(shift))
        offsets = base.UpdateOffsets(log_scale.contiguous().view(1, 1, -1), start.mT.contiguous(), *others)
        solution, values = _unwritten(phi, offsets.start)
        (count, n, d), units = data.phi.shape, start.shape[2]
        back_end = back_end_for(d, phi.device)

        def work(chunks: list[slice]) -> list[float]:
            return [back_end.update(part, data, offsets, solution, values) for part in chunks]

        least = in_shares(work, count, max(n, d) * d * units, phi.device, back_end.IN_CHUNKS)
        if not all(is_healthy(value, phi.dtype) for some in least for value in some):
            refuse(values.health, (*phi.shape[:2], units))
        ctx.save_for_backward(*data, *solution)
        ctx.shapes = mean.shape, phi.shape, inverse_noise.shape, y.shape
        return solution.centred.mT, values.kl, values.log_evidence

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_centred: Tensor, grad_kl: Tensor, grad_evidence: Tensor):  # pyright: ignore
        data, solution = base.UpdateData(*ctx.saved_tensors[:6]), base.UpdateSolution(*ctx.saved_tensors[6:])
        mean_shape, phi_shape, noise_shape, y_shape = ctx.shapes
        needs, batch = ctx.needs_input_grad, phi_shape[:2]
        gradients = base.UpdateGradients(grad_centred.mT.contiguous(), grad_kl.contiguous(), grad_evidence.contiguous())
        grad_priors, into = _differentiated(data, solution, gradients, needs[0], needs[3])

        def units_first(gradient: Tensor, shape: Sequence[int]) -> Tensor:
            return gradient.view(*batch, *gradient.shape[1:]).sum_to_size(*shape[:2], *gradient.shape[1:]).mT

        return (
            _prior_gradient(summed(grad_priors), phi_shape[-1]) if needs[0] else None,
            (grad_kl - grad_evidence).sum((0, 1)) if needs[1] else None,
            -(into.y.mT @ data.phi).view(*batch, *mean_shape[2:]).sum_to_size(mean_shape) if needs[2] else None,
            into.phi.view(phi_shape) if into.phi is not None else None,
            units_first(into.scale, noise_shape) if needs[4] else None,
            units_first(into.y, y_shape) if needs[5] else None,
            into.start.mT if needs[6] else None,
            _noise_gradient(data.phi, data.scale, into.start) if needs[7] else None,
            None,
            into.shift.view(*batch, *into.shift.shape[1:]) if needs[9] else None,
        )


def _unwritten(
    phi: Float[Tensor, "tasks phi_samples n d"], start: Float[Tensor, "tasks samples d units"]
) -> tuple[base.UpdateSolution, base.UpdateValues]:
    (tasks, samples, _, d), units = phi.shape, start.shape[-1]
    inverse = phi.new_empty(tasks * samples, d * (d + 1) // 2, units)
    centre, batch = phi.new_empty(tasks * samples, d, units), (tasks, samples, units)
    solution = base.UpdateSolution(inverse, centre, phi.new_empty(start.shape))
    return solution, base.UpdateValues(phi.new_empty(batch), phi.new_empty(batch), phi.new_empty(batch))


def _differentiated(
    data: base.UpdateData,
    solution: base.UpdateSolution,
    gradients: base.UpdateGradients,
    needs_precision: bool,
    needs_phi: bool,
) -> tuple[list[Tensor], base.UpdateInputGradients]:
    """Derivatives by the prior's precision, one of each share, and by all other inputs."""
    (count, n, d), units = data.phi.shape, solution.centred.shape[-1]
    back_end = back_end_for(d, data.phi.device)
    into = base.UpdateInputGradients(
        None,
        torch.empty_like(data.phi) if needs_phi else None,
        data.phi.new_empty(count, n, units),
        data.phi.new_empty(count, n, units),
        torch.empty_like(solution.centred),
        data.phi.new_empty(count, d, units),
    )

    def work(chunks: list[slice]) -> Tensor | None:
        share = replace(into, precision=torch.zeros_like(data.precision) if needs_precision else None)
        for part in chunks:
            back_end.differentiate_update(part, data, solution, gradients, share)
        return share.precision

    grad_priors = in_shares(work, count, max(n, d) * d * units, data.phi.device, back_end.IN_CHUNKS)
    return [grad for grad in grad_priors if grad is not None], into


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
