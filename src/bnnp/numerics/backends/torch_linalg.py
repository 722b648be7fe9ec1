"""The operations of `binding.py` through `torch.linalg`: for large matrices, and for devices other than the CPU."""

import torch

from bnnp._core.shapes import Float, Tensor

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


def add_weighted_gram(
    part: slice,
    phi: Float[Tensor, "rows n d"],
    scale: Float[Tensor, "scale_rows n units"],
    gram: Float[Tensor, "rows pairs units"],
) -> None:
    """For all units one product of their weights with all `phi_i phi_j`, each pair once."""
    i, j = _pairs(phi)
    gram, phi, scale = gram[part], phi[part], for_each(scale, len(phi))[part]
    for points in _blocks(phi, phi.shape[-1]):
        here = phi[:, points]
        gram.baddbmm_((here[..., i] * here[..., j]).mT, scale[:, points].square())


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
    rows = len(phi)
    start, noise, centred = (_by_row(x, rows) for x in (start, noise, centred))
    kl, log_evidence, health = (x.view(rows, 1, -1) for x in (kl, log_evidence, health))
    inverse[part] = 0 if rest is None else rest[part]
    add_weighted_gram(part, phi, scale, inverse)
    phi, (mean, scale, y) = phi[part], (for_each(x, rows)[part] for x in (mean, scale, y))
    residual = (y - phi @ mean) * scale
    total = phi.mT @ (residual * scale)
    if shift is not None:
        total = total + shift[part]
    drawn = start[part] - phi.mT.unsqueeze(1) @ (noise[part] * scale.unsqueeze(1)) + total.unsqueeze(1)
    prior, log_determinant = _prior(precision[0], phi.shape[-1]), torch.empty_like(kl[part][:, 0])
    whole = _invert(unpacked(inverse[part]) + prior, log_determinant, health[part][:, 0])
    solution = _each_unit(whole, torch.cat([total.unsqueeze(1), drawn], 1))
    m = solution[:, 0]
    log_determinant = log_determinant + 2 * log_scale[0]
    trace = (whole * prior).sum((-1, -2)) - whole.shape[-1]
    kl[part] = 0.5 * (trace + (m * _each_unit(prior, m)).sum(1) + log_determinant).unsqueeze(1)
    fit = residual.square().sum(1) - (total * m).sum(1)
    log_evidence[part] = -0.5 * (fit + log_determinant).unsqueeze(1)
    inverse[part], centre[part], centred[part] = packed(whole), m, solution[:, 1:]
    return float(health[part].min())


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
    rows, _, d = phi.shape
    noise, centred, grad_centred, grad_start = (_by_row(x, rows) for x in (noise, centred, grad_centred, grad_start))
    grad_kl, grad_evidence = (x.view(rows, 1, -1) for x in (grad_kl, grad_evidence))
    phi, (mean, scale, y) = phi[part], (for_each(x, rows)[part] for x in (mean, scale, y))
    noise, kl, evidence, m = noise[part], grad_kl[part], grad_evidence[part], centre[part]
    whole, prior = unpacked(inverse[part]), _prior(precision[0], d)
    by_mean = kl * _each_unit(prior, m)
    h = _each_unit(whole, torch.cat([by_mean.unsqueeze(1), grad_centred[part]], 1))
    h[:, 0] += 0.5 * evidence * m
    x = torch.cat([m.unsqueeze(1), centred[part]], 1)
    columns = (x.permute(0, 3, 2, 1), h.permute(0, 3, 2, 1))
    by_log, by_trace = 0.5 * (kl - evidence)[:, 0], 0.5 * kl[:, 0]
    matrix = _matrix_gradient(whole, whole @ prior @ whole, *columns, by_log, by_trace)
    if grad_precision is not None:
        outer = m.mT.unsqueeze(-1) * m.mT.unsqueeze(-2)
        by_prior = (matrix + 0.5 * kl.mT.unsqueeze(-1) * (whole + outer)).sum(0)
        grad_precision += diagonal(by_prior).mT if precision.shape[1] == d else packed(by_prior.unsqueeze(0))
    by_drawn = h[:, 1:]
    by_total = h.sum(1) + 0.5 * evidence * m
    grad_start[part], grad_shift[part] = by_drawn, by_total
    misfit = y - phi @ mean
    residual, by_residual = scale * misfit, phi @ by_total
    by_scale = residual * by_residual - (noise * (phi.unsqueeze(1) @ by_drawn)).sum(1)
    by_residual = scale * by_residual - evidence * residual
    grad_y[part] = scale * by_residual
    by_phi = (scale * residual) @ by_total.mT - grad_y[part] @ mean.mT
    by_phi -= ((scale.unsqueeze(1) * noise) @ by_drawn.mT).sum(1)
    by_scale = by_scale + misfit * by_residual
    for points in _blocks(phi, scale.shape[-1]):
        here, weights = phi[:, points], scale[:, points]
        pulled = (here.unsqueeze(1) @ (2 * matrix)).permute(0, 2, 3, 1)  # rows, points, d, units
        by_scale[:, points] += weights * (pulled * here.unsqueeze(-1)).sum(2)
        by_phi[:, points] += (pulled * weights.square().unsqueeze(2)).sum(-1)
    grad_scale[part] = by_scale
    if grad_phi is not None:
        grad_phi[part] = by_phi


def _by_row(x: Float[Tensor, "tasks samples n units"], rows: int) -> Float[Tensor, "rows columns n units"]:
    """The samples that share the features of a row, side by side."""
    return x.view(rows, x.shape[0] * x.shape[1] // rows, *x.shape[2:])


def for_each(x: Float[Tensor, "some *rest"], rows: int) -> Float[Tensor, "rows *rest"]:
    """As many rows as there are, from fewer that stand for several each."""
    return x.repeat_interleave(rows // len(x), 0) if 0 < len(x) < rows else x


def _each_unit(matrix: Float[Tensor, "#rows units d d"], x: Float[Tensor, "rows *samples d units"]) -> Tensor:
    """A matrix a unit times vectors a unit."""
    between = (slice(None),) + (None,) * (x.ndim - 3)
    return (matrix[between] @ x.mT.unsqueeze(-1)).squeeze(-1).mT


def _pairs(phi: Tensor) -> Tensor:
    return torch.tril_indices(phi.shape[-1], phi.shape[-1], device=phi.device)


def _blocks(phi: Float[Tensor, "rows n d"], numbers: int) -> list[slice]:
    """Of points, so that products of so many numbers for each feature do not fill the memory."""
    rows, n, d = phi.shape
    size = max(1, NUMBERS_AT_ONCE // (rows * d * numbers))
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
