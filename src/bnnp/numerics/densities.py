"""Densities of points under the last layer's posterior: what objectives and predictions are sums of."""

import math
from dataclasses import dataclass

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.numerics.gaussian import Observations
from bnnp.numerics.last_layer import Groups, InWeightSpace, LastLayer, times_each
from bnnp.numerics.symmetric import (
    quadratic_of_one_plus,
    sums_of_squares,
)


def _scaled(matrix: Float[Tensor, "*batch n n"], scale: Float[Tensor, "*#batch n"]) -> Float[Tensor, "*batch n n"]:
    """`diag(s) A diag(s)`."""
    return matrix * scale.unsqueeze(-1) * scale.unsqueeze(-2)


def expected_log_likelihood(
    layer: LastLayer, phi: Float[Tensor, "tasks samples points d"], seen: Observations, *, of_context: bool = False
) -> Float[Tensor, "tasks samples"]:
    """`E_q[log p(y | w)]` of all points, with the likelihood's noise in `seen`. `O(n d^2)` per unit.

    Args:
        layer: The posterior of the last layer.
        phi: Features of the points.
        seen: Their outputs, with the inverse of the likelihood's noise.
        of_context: Whether the points are those that the layer was conditioned on, which saves most of the work.
    """
    variance = (
        layer.variances_of_context(phi, seen.inverse_noise) if of_context else layer.variances(phi, seen.inverse_noise)
    )
    misfit = ((seen.y - layer.means(phi)).square() + variance) * seen.inverse_noise.square()
    return (-0.5 * misfit - log_normaliser(seen.inverse_noise)).sum((-2, -1))


def log_density_of_groups(
    layer: LastLayer,
    phi: Float[Tensor, "tasks samples rows d"],
    seen: Observations,
    group_size: int,
    outputs: int = 1,
) -> Float[Tensor, "tasks samples groups"]:
    """`log q(y)` of each group of `group_size` points that follow each other, with the likelihood's noise in `seen`.

    It costs `O(n d (d + g) + n g^2)` per task, sample and unit for groups of g up to d, and `O(n d^2 + d^3)` for larger
    ones, for which the layer must have gone through weight space.

    Args:
        layer: The posterior of the last layer.
        phi: Features of the points, one row per point and output.
        seen: Their outputs, with the inverse of the likelihood's noise.
        group_size: Points per group; the last group may be smaller.
        outputs: How many outputs share a unit. Rows are then all points of the first output, all of the second, ...
    """
    points = phi.shape[-2] // outputs
    whole = points - points % group_size
    if 0 < whole < points:
        rows = torch.arange(phi.shape[-2], device=phi.device).view(outputs, points)
        parts = [
            log_density_of_groups(layer, *_rows(phi, seen, rows[:, some], outputs), size, outputs)
            for some, size in ((slice(0, whole), group_size), (slice(whole, points), points - whole))
        ]
        return torch.cat(parts, dim=-1)
    group_size = min(group_size, points) if points else 1
    if group_size * outputs > phi.shape[-1]:
        return _groups_through_weights(layer, phi, seen, group_size, outputs)
    groups = Groups(group_size, outputs)
    residual = (seen.y - layer.means(phi)) * seen.inverse_noise
    scale, residual = groups.of(seen.inverse_noise), groups.of(residual)
    covariance = layer.covariances(phi, seen.inverse_noise, groups)
    normaliser = log_normaliser(scale).sum(-1)
    if group_size * outputs == 1:
        ratio = (covariance[..., 0] * scale.square() + 1).squeeze(-1)
        return (-0.5 * (residual.squeeze(-1).square() / ratio + ratio.log()) - normaliser).sum(2)
    quadratic, log_determinant = quadratic_of_one_plus(_scaled(covariance, scale), residual)
    return (-0.5 * (quadratic + log_determinant) - normaliser).sum(2)


def _groups_through_weights(
    layer: LastLayer, phi: Tensor, seen: Observations, group_size: int, outputs: int
) -> Float[Tensor, "tasks samples groups"]:
    parts = [
        sums_of_targets(layer, phi[:, :, rows], seen.of_points(rows))
        for rows in _rows_of_groups(phi.shape[-2], group_size, outputs)
    ]
    return torch.stack([log_density_of_sums(layer, sums) for sums in parts], dim=-1)


@dataclass(frozen=True)
class TargetSums:
    """What targets add, all of them together: sums over points, which may be made of parts.

    Here `rho = (y - phi m)/sigma` and `B = phi L / sigma`.

    Attributes:
        gram: `B^T B`.
        pull: `B^T rho`.
        square: `|rho|^2`.
        log_normaliser: `sum log sigma + n log(2 pi)/2`.
    """

    gram: Float[Tensor, "tasks samples units d d"]
    pull: Float[Tensor, "tasks samples units d"]
    square: Float[Tensor, "tasks samples units"]
    log_normaliser: Float[Tensor, "tasks noise_samples units"]

    def __add__(self, other: "TargetSums") -> "TargetSums":
        return TargetSums(
            self.gram + other.gram,
            self.pull + other.pull,
            self.square + other.square,
            self.log_normaliser + other.log_normaliser,
        )


def sums_of_targets(layer: LastLayer, phi: Float[Tensor, "tasks samples points d"], seen: Observations) -> TargetSums:
    """The sums over some targets. `O(n d^2)` per task, sample and unit."""
    scaled = times_each(phi, layer.prior.factor) * seen.inverse_noise.unsqueeze(-1)
    residual = (seen.y - layer.means(phi)) * seen.inverse_noise
    normaliser = log_normaliser(seen.inverse_noise).sum(-1)
    return TargetSums(*sums_of_squares(scaled, residual), normaliser)


def log_density_of_sums(layer: LastLayer, sums: TargetSums) -> Float[Tensor, "tasks samples"]:
    """`log q(y)` of all targets that went into the sums together."""
    form = layer.form
    assert isinstance(form, InWeightSpace)
    explained, log_determinant = quadratic_of_one_plus(form.gram + sums.gram, sums.pull)
    log_ratio = log_determinant - form.log_determinant
    return (-0.5 * (sums.square - explained + log_ratio) - sums.log_normaliser).sum(-1)


def log_normaliser(inverse_noise: Tensor) -> Tensor:
    """`log sigma + log(2 pi)/2` of each point; 0 for one that is absent."""
    return -(inverse_noise / math.sqrt(2 * math.pi)).masked_fill(inverse_noise == 0, 1).log()


# --- groups ----------------------------------------------------------------------------------------------------------


def _rows(phi: Tensor, seen: Observations, rows: Tensor, outputs: int) -> tuple[Tensor, Observations]:
    """Some points of every output; without a copy where there is one output."""
    if outputs == 1:
        some = slice(int(rows[0, 0]), int(rows[0, -1]) + 1)
        return phi[:, :, some], Observations(seen.y[..., some], seen.inverse_noise[..., some])
    return phi[:, :, rows.flatten()], seen.of_points(rows.flatten())


def _rows_of_groups(rows: int, group_size: int, outputs: int) -> list[Tensor]:
    return list(Groups(group_size, outputs).of(torch.arange(rows)))
