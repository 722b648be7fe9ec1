"""The operations of `kernels.py` through `torch.linalg`: for large matrices, and for devices other than the CPU."""

import torch

from bnnp._shapes import Float, Tensor

NUMBERS_AT_ONCE = 2**22
"""Numbers in the largest array that is made on the way: 16 MB in float32."""


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
    s = scale.mT
    matrix = gram.permute(0, 3, 1, 2) * s.unsqueeze(-1) * s.unsqueeze(-2)
    diagonal(matrix).add_(1)
    whole = _invert(matrix, log_determinant, health)
    excess_trace.copy_((diagonal(whole) - 1).sum(-1))
    inverse.copy_(packed(whole))
    solution.copy_(_units_last(whole @ _units_first(right)))


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
    whole, s = unpacked(inverse), scale.mT
    x, b, g = (_units_first(columns) for columns in (solution, right, grad_solution))
    h = whole @ g
    matrix = _matrix_gradient(whole, whole @ whole, x, h, grad_log, grad_trace)
    product = 0.5 * (h * b + x * g).sum(-1)
    excess = grad_log.unsqueeze(-1) - grad_trace.unsqueeze(-1) * diagonal(whole) - product - diagonal(matrix)
    grad_scale.copy_(torch.where(s > 0, 2 * excess / s, 0).mT)
    grad_gram.copy_((matrix * s.unsqueeze(-1) * s.unsqueeze(-2)).permute(0, 2, 3, 1))
    grad_right.copy_(_units_last(h))


def invert_added(
    precision: Float[Tensor, "prior_pairs units"],
    gram: Float[Tensor, "rows pairs units"],
    right: Float[Tensor, "rows d columns units"],
    solution: Float[Tensor, "rows d columns units"],
    log_determinant: Float[Tensor, "rows units"],
    excess_trace: Float[Tensor, "rows units"],
    health: Float[Tensor, "rows units"],
) -> None:
    prior = _prior(precision, right.shape[1])
    whole = _invert(unpacked(gram) + prior, log_determinant, health)
    excess_trace.copy_((whole * prior).sum((-1, -2)) - whole.shape[-1])
    gram.copy_(packed(whole))
    solution.copy_(_units_last(whole @ _units_first(right)))


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
    whole, prior = unpacked(inverse), _prior(precision, solution.shape[1])
    h = whole @ _units_first(grad_solution)
    matrix = _matrix_gradient(whole, whole @ prior @ whole, _units_first(solution), h, grad_log, grad_trace)
    grad_gram.copy_(packed(matrix + matrix.tril(-1)))
    grad_right.copy_(_units_last(h))


def add_weighted_gram(
    phi: Float[Tensor, "rows n d"], scale: Float[Tensor, "rows n units"], gram: Float[Tensor, "rows pairs units"]
) -> None:
    """For all units one product of their weights with all `phi_i phi_j`, each pair once."""
    i, j = _pairs(phi)
    for points in _blocks(phi):
        here = phi[:, points]
        gram.baddbmm_((here[..., i] * here[..., j]).mT, scale[:, points].square())


def differentiate_weighted_gram(
    phi: Float[Tensor, "rows n d"],
    scale: Float[Tensor, "rows n units"],
    grad: Float[Tensor, "rows pairs units"],
    grad_phi: Float[Tensor, "rows n d"],
    grad_scale: Float[Tensor, "rows n units"],
) -> None:
    i, j = _pairs(phi)
    for points in _blocks(phi):
        here, s = phi[:, points], scale[:, points]
        grad_scale[:, points] = 2 * s * ((here[..., i] * here[..., j]) @ grad)
        lower = grad.new_zeros(*here.shape, here.shape[-1])
        lower[..., i, j] = s.square() @ grad.mT
        grad_phi[:, points] = ((lower + lower.mT) @ here.unsqueeze(-1)).squeeze(-1)


def _pairs(phi: Tensor) -> Tensor:
    return torch.tril_indices(phi.shape[-1], phi.shape[-1], device=phi.device)


def _blocks(phi: Float[Tensor, "rows n d"]) -> list[slice]:
    """Of points, so that their products do not fill the memory."""
    rows, n, d = phi.shape
    size = max(1, NUMBERS_AT_ONCE // (rows * d * d))
    return [slice(start, start + size) for start in range(0, n, size)]


def diagonal(matrix: Tensor) -> Tensor:
    return matrix.diagonal(dim1=-2, dim2=-1)


def packed(matrix: Float[Tensor, "rows units n n"]) -> Float[Tensor, "rows pairs units"]:
    """Lower triangles by rows, units last."""
    i, j = torch.tril_indices(*matrix.shape[-2:], device=matrix.device)
    return matrix[..., i, j].mT


def unpacked(pairs: Float[Tensor, "rows pairs units"]) -> Float[Tensor, "rows units n n"]:
    """The symmetric matrices of which `pairs` holds the lower triangles."""
    size = int((2 * pairs.shape[1]) ** 0.5)  # pairs = n (n + 1) / 2
    i, j = torch.tril_indices(size, size, device=pairs.device)
    matrix = pairs.new_empty(pairs.shape[0], pairs.shape[2], size, size)
    matrix[..., i, j] = pairs.mT
    matrix[..., j, i] = pairs.mT
    return matrix


def _invert(matrix: Tensor, log_determinant: Tensor, health: Tensor) -> Tensor:
    factor, info = torch.linalg.cholesky_ex(matrix)
    pivots = diagonal(factor).square()
    bad = (info > 0) | ~torch.isfinite(pivots).all(-1)
    health.copy_(torch.where(bad, torch.nan, (pivots / diagonal(matrix)).amin(-1)))
    log_determinant.copy_(pivots.log().sum(-1))
    factor = torch.where(bad[..., None, None], torch.eye(matrix.shape[-1]).to(factor), factor)
    return torch.cholesky_inverse(factor)


def _prior(precision: Tensor, d: int) -> Float[Tensor, "1 units d d"]:
    whole = torch.diag_embed(precision.mT) if len(precision) == d else unpacked(precision.unsqueeze(0))[0]
    return whole.unsqueeze(0)


def _matrix_gradient(inverse: Tensor, squared: Tensor, x: Tensor, h: Tensor, g: Tensor, t: Tensor) -> Tensor:
    """`g M^-1 - t squared - (H X^T + X H^T)/2`."""
    outer = h @ x.mT
    return g[..., None, None] * inverse - t[..., None, None] * squared - 0.5 * (outer + outer.mT)


def _units_first(columns: Float[Tensor, "rows n columns units"]) -> Float[Tensor, "rows units n columns"]:
    return columns.permute(0, 3, 1, 2)


def _units_last(columns: Float[Tensor, "rows units n columns"]) -> Float[Tensor, "rows n columns units"]:
    return columns.permute(0, 2, 3, 1)
