"""Operations on many small symmetric matrices on the CPU, by the compiled loops of `loops.py`.

Matrices are packed by rows of their lower triangle, `a[i, j]` at `i (i + 1) / 2 + j`, into a *pairs* axis. Results are
written into tensors that the caller gives.
"""

import torch

from bnnp import loops
from bnnp._shapes import Float, Tensor

LARGEST = 128
"""Size from which LAPACK, one matrix after the other, is as fast."""


def invert_scaled(
    gram: Float[Tensor, "rows n n units"],
    scale: Float[Tensor, "rows n units"],
    right: Float[Tensor, "rows n columns units"],
    inverse: Float[Tensor, "rows pairs units"],
    solution: Float[Tensor, "rows n columns units"],
    log_determinant: Float[Tensor, "rows units"],
    excess_trace: Float[Tensor, "rows units"],
    health: Float[Tensor, "rows units"],
) -> None:
    """Of `M = I + diag(s) gram diag(s)`: the packed inverse, `M^-1 right`, `log |M|`, `tr M^-1 - n`, and its health."""
    _call(loops.invert_scaled, gram, scale, right, inverse, solution, log_determinant, excess_trace, health)


def differentiate_scaled(
    inverse: Float[Tensor, "rows pairs units"],
    scale: Float[Tensor, "rows n units"],
    right: Float[Tensor, "rows n columns units"],
    solution: Float[Tensor, "rows n columns units"],
    grad_solution: Float[Tensor, "rows n columns units"],
    grad_log: Float[Tensor, "rows units"],
    grad_trace: Float[Tensor, "rows units"],
    grad_gram: Float[Tensor, "rows n n units"],
    grad_scale: Float[Tensor, "rows n units"],
    grad_right: Float[Tensor, "rows n columns units"],
) -> None:
    """The last three from all before: derivatives of `invert_scaled`. That of the Gram matrix is symmetric."""
    given = (inverse, scale, right, solution, grad_solution, grad_log, grad_trace)
    _call(loops.differentiate_scaled, *given, grad_gram, grad_scale, grad_right)


def invert_added(
    precision: Float[Tensor, "prior_pairs units"],
    gram: Float[Tensor, "rows pairs units"],
    right: Float[Tensor, "rows d columns units"],
    solution: Float[Tensor, "rows d columns units"],
    log_determinant: Float[Tensor, "rows units"],
    excess_trace: Float[Tensor, "rows units"],
    health: Float[Tensor, "rows units"],
) -> None:
    """Of `Q = precision + gram`: the inverse in the place of `gram`, `Q^-1 right`, `log |Q|`,
    `tr precision Q^-1 - d`, and its health."""
    _call(loops.invert_added, precision, gram, right, solution, log_determinant, excess_trace, health)


def differentiate_added(
    precision: Float[Tensor, "prior_pairs units"],
    inverse: Float[Tensor, "rows pairs units"],
    solution: Float[Tensor, "rows d columns units"],
    grad_solution: Float[Tensor, "rows d columns units"],
    grad_log: Float[Tensor, "rows units"],
    grad_trace: Float[Tensor, "rows units"],
    grad_gram: Float[Tensor, "rows pairs units"],
    grad_right: Float[Tensor, "rows d columns units"],
) -> None:
    """The last two from all before: derivatives of `invert_added`, for gram as packed (each pair once)."""
    _call(
        loops.differentiate_added,
        precision,
        inverse,
        solution,
        grad_solution,
        grad_log,
        grad_trace,
        grad_gram,
        grad_right,
    )


def add_weighted_gram(
    phi: Float[Tensor, "rows n d"], scale: Float[Tensor, "rows n units"], gram: Float[Tensor, "rows pairs units"]
) -> None:
    """Add `phi^T diag(s)^2 phi` of every unit to `gram`."""
    _call(loops.add_weighted_gram, phi, scale, gram)


def differentiate_weighted_gram(
    phi: Float[Tensor, "rows n d"],
    scale: Float[Tensor, "rows n units"],
    grad: Float[Tensor, "rows pairs units"],
    grad_phi: Float[Tensor, "rows n d"],
    grad_scale: Float[Tensor, "rows n units"],
) -> None:
    """The last two from all before: derivatives of `add_weighted_gram`, for gram as packed (each pair once)."""
    _call(loops.differentiate_weighted_gram, phi, scale, grad, grad_phi, grad_scale)


def _call(kernel, *tensors: Tensor) -> None:
    kernel(*(tensor.numpy() for tensor in tensors))


def compile_loops() -> None:
    """Compile everything for float32 and float64, which takes a while, once for an installation and processor."""
    for dtype in (torch.float32, torch.float64):
        one = torch.ones(1, 1, 1, dtype=dtype)
        column, value = one.unsqueeze(-1), one[0]
        invert_scaled(column, one, column, *(torch.ones_like(x) for x in (one, column, value, value, value)))
        differentiate_scaled(
            one, one, column, column, column, value, value, *(torch.ones_like(x) for x in (column, one, column))
        )
        invert_added(value, *(torch.ones_like(x) for x in (one, column, column, value, value, value)))
        differentiate_added(value, one, column, column, value, value, torch.ones_like(one), torch.ones_like(column))
        add_weighted_gram(one, one, torch.ones_like(one))
        differentiate_weighted_gram(one, one, one, torch.ones_like(one), torch.ones_like(one))
