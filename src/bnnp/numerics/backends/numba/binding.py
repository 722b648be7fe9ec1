"""Operations on many small symmetric matrices on the CPU, by the compiled loops of `batched.py`.

Matrices are packed by rows of their lower triangle, `a[i, j]` at `i (i + 1) / 2 + j`, into a *pairs* axis. Results are
written into tensors that the caller gives.
"""

import numpy as np
import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.numerics.backends.numba import batched

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
    _call(batched.invert_scaled, (), gram, scale, right, inverse, solution, log_determinant, excess_trace, health)


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
    _call(batched.differentiate_scaled, (), *given, grad_gram, grad_scale, grad_right)


def add_weighted_gram(
    part: slice,
    phi: Float[Tensor, "rows n d"],
    scale: Float[Tensor, "scale_rows n units"],
    gram: Float[Tensor, "rows pairs units"],
) -> None:
    """Add `phi^T diag(s)^2 phi` of every unit to `gram`, for a part of the rows."""
    _call(batched.add_weighted_gram, (part.start, part.stop), phi, scale, gram)


def update(
    part: slice,
    precision: Float[Tensor, "1 prior_pairs units"],
    log_scale: Float[Tensor, "1 1 units"],
    mean: Float[Tensor, "mean_rows d units"],
    phi: Float[Tensor, "rows n d"],
    scale: Float[Tensor, "scale_rows n units"],
    y: Float[Tensor, "y_rows n units"],
    start: Float[Tensor, "tasks samples d units"],
    noise: Float[Tensor, "tasks samples n units"],
    rest: Float[Tensor, "rows pairs units"] | None,
    shift: Float[Tensor, "rows d units"] | None,
    inverse: Float[Tensor, "rows pairs units"],
    centre: Float[Tensor, "rows d units"],
    centred: Float[Tensor, "tasks samples d units"],
    kl: Float[Tensor, "tasks phi_samples units"],
    log_evidence: Float[Tensor, "tasks phi_samples units"],
    health: Float[Tensor, "tasks phi_samples units"],
) -> float:
    """The last six from all before, for a part of the rows: the update of `gaussian.py` in weight space.

    A row is a sample of the features, one for all samples of a task or one for each. Returns the least health.

    With `D = diag(s)`, `r = D (y - phi mean)`, `Q = precision + phi^T D^2 phi + rest` and `b = phi^T D r + shift`: the
    packed inverse of `Q`, posterior means `Q^-1 b` and samples `Q^-1 (b + start - phi^T D noise)`, both less the prior
    mean, KL, log evidence and the health of `Q`. `log_scale` is `log |L|`.
    Rows of `precision`, `log_scale`, `mean`, `scale` and `y` may stand for several; `rest` and `shift` may be none.
    """
    results = (inverse, centre, centred, kl, log_evidence, health)
    given = (precision, log_scale, mean, phi, scale, y, start, noise, rest, shift)
    return _call(batched.update, (part.start, part.stop), *given, *results)


def differentiate_update(
    part: slice,
    precision: Float[Tensor, "1 prior_pairs units"],
    mean: Float[Tensor, "mean_rows d units"],
    phi: Float[Tensor, "rows n d"],
    scale: Float[Tensor, "scale_rows n units"],
    y: Float[Tensor, "y_rows n units"],
    noise: Float[Tensor, "tasks samples n units"],
    inverse: Float[Tensor, "rows pairs units"],
    centre: Float[Tensor, "rows d units"],
    centred: Float[Tensor, "tasks samples d units"],
    grad_centred: Float[Tensor, "tasks samples d units"],
    grad_kl: Float[Tensor, "tasks phi_samples units"],
    grad_evidence: Float[Tensor, "tasks phi_samples units"],
    grad_precision: Float[Tensor, "1 prior_pairs units"] | None,
    grad_phi: Float[Tensor, "rows n d"] | None,
    grad_scale: Float[Tensor, "rows n units"],
    grad_y: Float[Tensor, "rows n units"],
    grad_start: Float[Tensor, "tasks samples d units"],
    grad_shift: Float[Tensor, "rows d units"],
) -> None:
    """The last six from all before: derivatives of `update`, of each row by itself.

    That of the precision, a symmetric matrix, is added up over rows. It and that of `phi` may be unwanted.
    """
    results = (grad_precision, grad_phi, grad_scale, grad_y, grad_start, grad_shift)
    given = (precision, mean, phi, scale, y, noise, inverse, centre, centred, grad_centred, grad_kl, grad_evidence)
    _call(batched.differentiate_update, (part.start, part.stop), *given, *results)


_NOTHING = (0, 0, 1, 1)
_KINDS = {torch.float32: np.float32(0), torch.float64: np.float64(0)}


def _call(loop, sizes: tuple[int, ...], first: Tensor, *others: Tensor | None):
    """Call a loop with contiguous tensors; one that is not there, of three axes, becomes an array without rows."""
    described = [_NOTHING if tensor is None else (tensor.data_ptr(), *tensor.shape) for tensor in (first, *others)]
    if any(tensor is not None and tensor.dtype != first.dtype for tensor in others):
        raise TypeError(f"tensors of one kind: got {[None if t is None else t.dtype for t in (first, *others)]}")
    return loop(_KINDS[first.dtype], *sizes, *described)


def compile_loops() -> None:
    """Compile everything for float32 and float64, which takes a while, once for an installation and processor."""
    whole = slice(0, 1)
    for dtype in (torch.float32, torch.float64):
        invert_scaled(*_ones(dtype, 4, 3, 4, 3, 4, 2, 2, 2))
        differentiate_scaled(*_ones(dtype, 3, 3, 4, 4, 4, 2, 2, 4, 3, 4))
        add_weighted_gram(whole, *_ones(dtype, 3, 3, 3))
        update(whole, *_ones(dtype, 3, 3, 3, 3, 3, 3, 4, 4, 3, 3, 3, 3, 4, 3, 3, 3))
        differentiate_update(whole, *_ones(dtype, 3, 3, 3, 3, 3, 4, 3, 3, 4, 4, 3, 3, 3, 3, 3, 3, 4, 3))


def _ones(dtype: torch.dtype, *axes: int) -> list[Tensor]:
    """Arrays of one number each, with so many axes."""
    return [torch.ones((1,) * number, dtype=dtype) for number in axes]
