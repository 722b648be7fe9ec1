"""Solves in function space for all units, with derivatives in closed form."""

import torch
from torch.autograd.function import once_differentiable

from bnnp._core.shapes import Float, Tensor
from bnnp.numerics.backends import back_end_for, base
from bnnp.numerics.chunks import in_shares, longest, rows_of, summed
from bnnp.numerics.health import check_health


class FunctionSpaceSolve(torch.autograd.Function):
    """The features times the covariances of all units are one large product; it is made in chunks and never kept.

    With solutions `X = M^-1 B`, gradients `G` of `X`, `g` of `log |M|` and `t` of the trace, and `H = M^-1 G`:
    `dB = H` and `E = dM = g M^-1 - t M^-2 - (H X^T + X H^T)/2`. From `E`, `dSigma = phi^T D E D phi`,
    `dphi = 2 D E D phi Sigma` and `dD = 2 diag(E (M - I)) / D`, where `E M` needs no product with `M`, since `M X = B`
    and `M H = G`.
    """

    @staticmethod
    def forward(ctx, covariance: Tensor, phi: Tensor, inverse_noise: Tensor, right: Tensor):  # pyright: ignore
        batch = (phi.shape[0], phi.shape[1], covariance.shape[0])
        scale = inverse_noise.expand(*batch[:2], *inverse_noise.shape[2:]).flatten(0, 1).contiguous()
        rows, data = rows_of(phi), base.ScaledData(scale, rows_of(right))
        (count, n, d), units = rows.shape, covariance.shape[0]
        inverse = phi.new_empty(count, n * (n + 1) // 2, units)
        solution = base.ScaledSolution(inverse, torch.empty_like(data.right))
        values = base.ScaledValues(*phi.new_empty(3, count, units))
        back_end = back_end_for(n, phi.device)
        beside = None if covariance.ndim == 2 else covariance.transpose(0, 1).reshape(d, units * d)

        def work(chunks: list[slice]) -> None:
            weighted = phi.new_empty(longest(chunks), n, units, d)
            gram = phi.new_empty(longest(chunks), n, n * units)
            for part in chunks:
                here, m = rows[part], part.stop - part.start
                if beside is None:
                    torch.mul(here.unsqueeze(2), covariance, out=weighted[:m])
                else:
                    torch.mm(here.view(-1, d), beside, out=weighted[:m].view(-1, units * d))
                torch.bmm(here, weighted[:m].view(m, n * units, d).mT, out=gram[:m])
                matrices = gram[:m].view(m, n, n, units)
                back_end.invert_scaled(matrices, data.rows(part), solution.rows(part), values.rows(part))

        in_shares(work, count, n * units * max(n, d), phi.device)
        check_health(values.health, batch)
        ctx.save_for_backward(covariance, rows, *data, *solution)
        ctx.shapes = phi.shape, inverse_noise.shape, batch
        results = (values.log_determinant.view(batch), values.excess_trace.view(batch))
        return solution.solved.view(right.shape), *results

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_solved: Tensor, grad_log: Tensor, grad_trace: Tensor):  # pyright: ignore
        covariance, rows, scale, right, inverse, solved = ctx.saved_tensors
        phi_shape, noise_shape, batch = ctx.shapes
        data, solution = base.ScaledData(scale, right), base.ScaledSolution(inverse, solved)
        gradients = base.ScaledGradients(rows_of(grad_solved), rows_of(grad_log), rows_of(grad_trace))
        into = base.ScaledData(torch.empty_like(scale), torch.empty_like(right))
        grad_rows = torch.empty_like(rows)
        (count, n, d), units = rows.shape, covariance.shape[0]
        back_end = back_end_for(n, rows.device)
        diagonal, needs_covariance = covariance.ndim == 2, ctx.needs_input_grad[0]

        def work(chunks: list[slice]) -> Tensor:
            grad_gram = rows.new_empty(longest(chunks), n, n, units)
            pulled = rows.new_empty(longest(chunks), n * units, d)
            grad_covariance = rows.new_zeros((units, d) if diagonal else (d, units * d))
            for part in chunks:
                here, m = rows[part], part.stop - part.start
                here_into = base.ScaledInputGradients(grad_gram[:m], *into.rows(part))
                back_end.differentiate_scaled(data.rows(part), solution.rows(part), gradients.rows(part), here_into)
                torch.bmm(grad_gram[:m].view(m, n, n * units).mT, here, out=pulled[:m])
                _pull(covariance, pulled[:m], here, grad_rows[part], grad_covariance if needs_covariance else None)
            return grad_covariance

        grad_covariance = summed(in_shares(work, count, n * units * max(n, d), rows.device))
        if not diagonal:
            grad_covariance = grad_covariance.view(d, units, d).transpose(0, 1)
        grad_rows *= 2
        grad_noise = into.scale.view(*batch[:2], n, units).sum_to_size(noise_shape)
        return grad_covariance, grad_rows.view(phi_shape), grad_noise, into.right.view(grad_solved.shape)


def _pull(
    covariance: Float[Tensor, "units d"] | Float[Tensor, "units d d"],
    pulled: Float[Tensor, "m _ d"],
    phi: Float[Tensor, "m n d"],
    grad_phi: Float[Tensor, "m n d"],
    grad_covariance: Tensor | None,
) -> None:
    """Derivatives by the features, and by the covariances if they are wanted, from `pulled`, those of the Gram matrices
    times the features.
    """
    (m, n, d), units = phi.shape, covariance.shape[0]
    if covariance.ndim == 2:
        points = pulled.view(m * n, units, d)
        if grad_covariance is not None:
            grad_covariance += (points * phi.view(m * n, 1, d)).sum(0)
        grad_phi.copy_((points * covariance).sum(1).view(m, n, d))
    else:
        points = pulled.view(m * n, units * d)
        torch.mm(points, covariance.view(units * d, d), out=grad_phi.view(m * n, d))
        if grad_covariance is not None:
            grad_covariance.addmm_(phi.view(m * n, d).T, points)
