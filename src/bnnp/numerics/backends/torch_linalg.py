"""The back end through `torch.linalg`: for large matrices, and for devices other than the CPU."""

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.numerics.backends import base

IN_CHUNKS: bool = True
NUMBERS_AT_ONCE = 2**22
"""Numbers in the largest array that is made on the way: 16 MB in float32."""


def invert_scaled(
    gram: Float[Tensor, "rows n n units"],
    data: base.ScaledData,
    solution: base.ScaledSolution,
    values: base.ScaledValues,
) -> None:
    s = data.scale.mT
    matrix = gram.permute(0, 3, 1, 2) * s.unsqueeze(-1) * s.unsqueeze(-2)
    diagonal(matrix).add_(1)
    whole = _invert(matrix, values.log_determinant, values.health)
    values.excess_trace.copy_((diagonal(whole) - 1).sum(-1))
    solution.inverse.copy_(packed(whole))
    solution.solved.copy_(_units_last(whole @ _units_first(data.right)))


def differentiate_scaled(
    data: base.ScaledData,
    solution: base.ScaledSolution,
    gradients: base.ScaledGradients,
    into: base.ScaledInputGradients,
) -> None:
    whole, s = unpacked(solution.inverse), data.scale.mT
    x, b, g = (_units_first(columns) for columns in (solution.solved, data.right, gradients.solved))
    by_log, by_trace = gradients.log_determinant, gradients.excess_trace
    h = whole @ g
    matrix = _matrix_gradient(whole, whole @ whole, x, h, by_log, by_trace)
    product = 0.5 * (h * b + x * g).sum(-1)
    excess = by_log.unsqueeze(-1) - by_trace.unsqueeze(-1) * diagonal(whole) - product - diagonal(matrix)
    into.scale.copy_(torch.where(s > 0, 2 * excess / s, 0).mT)
    into.gram.copy_((matrix * s.unsqueeze(-1) * s.unsqueeze(-2)).permute(0, 2, 3, 1))
    into.right.copy_(_units_last(h))


def add_weighted_gram(
    part: slice,
    phi: Float[Tensor, "rows n d"],
    scale: Float[Tensor, "scale_rows n units"],
    gram: Float[Tensor, "rows pairs units"],
) -> None:
    """For all units one product of their weights with all `phi_i phi_j`, each pair once."""
    i, j = torch.tril_indices(phi.shape[-1], phi.shape[-1], device=phi.device)
    gram, phi, scale = gram[part], phi[part], for_each(scale, len(phi))[part]
    for points in _blocks(phi, phi.shape[-1]):
        here = phi[:, points]
        gram.baddbmm_((here[..., i] * here[..., j]).mT, scale[:, points].square())


def update(
    part: slice,
    data: base.UpdateData,
    offsets: base.UpdateOffsets,
    solution: base.UpdateSolution,
    values: base.UpdateValues,
) -> float:
    rows = len(data.phi)
    kl, log_evidence, health = (x.view(rows, 1, -1) for x in (values.kl, values.log_evidence, values.health))
    solution.inverse[part] = 0 if offsets.rest is None else offsets.rest[part]
    add_weighted_gram(part, data.phi, data.scale, solution.inverse)
    here = _part(data, part)
    phi, scale = here.phi, here.scale
    residual = (here.y - phi @ here.mean) * scale
    total = phi.mT @ (residual * scale)
    if offsets.shift is not None:
        total = total + offsets.shift[part]
    draws = phi.mT.unsqueeze(1) @ (here.draws * scale.unsqueeze(1))
    drawn = _by_row(offsets.start, rows)[part] - draws + total.unsqueeze(1)
    prior, log_determinant = _prior(data), torch.empty_like(kl[part][:, 0])
    whole = _invert(unpacked(solution.inverse[part]) + prior, log_determinant, health[part][:, 0])
    solved = _each_unit(whole, torch.cat([total.unsqueeze(1), drawn], 1))
    m = solved[:, 0]
    log_determinant = log_determinant + 2 * offsets.log_scale[0]
    trace = (whole * prior).sum((-1, -2)) - whole.shape[-1]
    kl[part] = 0.5 * (trace + (m * _each_unit(prior, m)).sum(1) + log_determinant).unsqueeze(1)
    fit = residual.square().sum(1) - (total * m).sum(1)
    log_evidence[part] = -0.5 * (fit + log_determinant).unsqueeze(1)
    solution.inverse[part], solution.centre[part] = packed(whole), m
    _by_row(solution.centred, rows)[part] = solved[:, 1:]
    return float(health[part].min())


def differentiate_update(
    part: slice,
    data: base.UpdateData,
    solution: base.UpdateSolution,
    gradients: base.UpdateGradients,
    into: base.UpdateInputGradients,
) -> None:
    rows, _, d = data.phi.shape
    kl, evidence = (x.view(rows, 1, -1)[part] for x in (gradients.kl, gradients.log_evidence))
    m, whole, prior = solution.centre[part], unpacked(solution.inverse[part]), _prior(data)
    by_mean = (kl * _each_unit(prior, m)).unsqueeze(1)
    h = _each_unit(whole, torch.cat([by_mean, _by_row(gradients.centred, rows)[part]], 1))
    h[:, 0] += 0.5 * evidence * m
    x = torch.cat([m.unsqueeze(1), _by_row(solution.centred, rows)[part]], 1)
    columns = (x.permute(0, 3, 2, 1), h.permute(0, 3, 2, 1))
    by_log, by_trace = 0.5 * (kl - evidence)[:, 0], 0.5 * kl[:, 0]
    matrix = _matrix_gradient(whole, whole @ prior @ whole, *columns, by_log, by_trace)
    if into.precision is not None:
        outer = m.mT.unsqueeze(-1) * m.mT.unsqueeze(-2)
        by_prior = (matrix + 0.5 * kl.mT.unsqueeze(-1) * (whole + outer)).sum(0)
        into.precision.add_(diagonal(by_prior).mT if into.precision.shape[1] == d else packed(by_prior.unsqueeze(0)))
    by_drawn, by_total = h[:, 1:], h.sum(1) + 0.5 * evidence * m
    _by_row(into.start, rows)[part], into.shift[part] = by_drawn, by_total
    by_phi, into.scale[part], into.y[part] = _point_gradients(_part(data, part), matrix, by_drawn, by_total, evidence)
    if into.phi is not None:
        into.phi[part] = by_phi


def _point_gradients(
    here: base.UpdateData,
    matrix: Float[Tensor, "rows units d d"],
    by_drawn: Float[Tensor, "rows samples d units"],
    by_total: Float[Tensor, "rows d units"],
    evidence: Float[Tensor, "rows 1 units"],
) -> tuple[Float[Tensor, "rows n d"], Float[Tensor, "rows n units"], Float[Tensor, "rows n units"]]:
    """Derivatives by features, scales and observations, from those by `Q`, samples, `phi^T D r` and the evidence."""
    phi, scale, draws = here.phi, here.scale, here.draws
    misfit = here.y - phi @ here.mean
    residual, by_residual = scale * misfit, phi @ by_total
    by_scale = residual * by_residual - (draws * (phi.unsqueeze(1) @ by_drawn)).sum(1)
    by_residual = scale * by_residual - evidence * residual
    by_y = scale * by_residual
    by_phi = (scale * residual) @ by_total.mT - by_y @ here.mean.mT
    by_phi -= ((scale.unsqueeze(1) * draws) @ by_drawn.mT).sum(1)
    by_scale = by_scale + misfit * by_residual
    for points in _blocks(phi, scale.shape[-1]):
        some, weights = phi[:, points], scale[:, points]
        pulled = (some.unsqueeze(1) @ (2 * matrix)).permute(0, 2, 3, 1)  # rows, points, d, units
        by_scale[:, points] += weights * (pulled * some.unsqueeze(-1)).sum(2)
        by_phi[:, points] += (pulled * weights.square().unsqueeze(2)).sum(-1)
    return by_phi, by_scale, by_y


def _part(data: base.UpdateData, part: slice) -> base.UpdateData:
    """Some rows of what an update needs, one for each: samples that share the features of a row are side by side."""
    rows = len(data.phi)
    mean, scale, y = (for_each(x, rows)[part] for x in (data.mean, data.scale, data.y))
    return base.UpdateData(data.precision, mean, data.phi[part], scale, y, _by_row(data.draws, rows)[part])


def _by_row(x: Float[Tensor, "tasks samples n units"], rows: int) -> Float[Tensor, "rows columns n units"]:
    """The samples that share the features of a row, side by side."""
    return x.view(rows, x.shape[0] * x.shape[1] // rows, *x.shape[2:])


def for_each(x: Float[Tensor, "some *rest"], rows: int) -> Float[Tensor, "rows *rest"]:
    """As many rows as there are, from fewer that stand for several each."""
    return x.repeat_interleave(rows // len(x), 0) if 0 < len(x) < rows else x


def _each_unit(matrix: Float[Tensor, "#rows units d d"], x: Float[Tensor, "rows *samples d units"]) -> Tensor:
    """A matrix per unit times vectors per unit."""
    between = (slice(None),) + (None,) * (x.ndim - 3)
    return (matrix[between] @ x.mT.unsqueeze(-1)).squeeze(-1).mT


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
    eye = torch.eye(matrix.shape[-1], dtype=factor.dtype, device=factor.device)
    factor = torch.where(bad[..., None, None], eye, factor)
    return torch.cholesky_inverse(factor)


def _prior(data: base.UpdateData) -> Float[Tensor, "1 units d d"]:
    """Prior precisions as whole matrices."""
    if data.precision.shape[1] == data.phi.shape[-1]:
        return torch.diag_embed(data.precision.mT)
    return unpacked(data.precision)


def _matrix_gradient(inverse: Tensor, squared: Tensor, x: Tensor, h: Tensor, g: Tensor, t: Tensor) -> Tensor:
    """`g M^-1 - t squared - (H X^T + X H^T)/2`."""
    outer = h @ x.mT
    return g[..., None, None] * inverse - t[..., None, None] * squared - 0.5 * (outer + outer.mT)


def _units_first(columns: Float[Tensor, "rows n columns units"]) -> Float[Tensor, "rows units n columns"]:
    return columns.permute(0, 3, 1, 2)


def _units_last(columns: Float[Tensor, "rows units n columns"]) -> Float[Tensor, "rows n columns units"]:
    return columns.permute(0, 2, 3, 1)
