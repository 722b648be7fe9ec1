r"""The one conjugate update that all inference in the library rests on.

One unit has a prior `w ~ N(mu, Sigma)`, `Sigma = L L^T`, and sees features `phi (n x d)` and pseudo-observations
`y (n)` with standard deviations `s (n)`. With `D = diag(1/s)`, `r = D (y - phi mu)`, `A = D phi L`,
`v0 ~ N(0, I_d)` and `e ~ N(0, I_n)`:

    function space, M = I + D phi Sigma phi^T D         weight space, Q = Sigma^-1 + phi^T D^2 phi
    sample    w - mu = L v0 + Sigma phi^T D M^-1 (r - A v0 - e)    = Q^-1 (L^-T v0 + phi^T D (r - e))
    mean      m = Sigma phi^T D M^-1 r                              = Q^-1 phi^T D r
    KL        (tr M^-1 - n + |L^-1 m|^2 + log|M|)/2     (tr(Sigma^-1 Q^-1) - d + |L^-1 m|^2 + log|Sigma Q|)/2
    evidence  -(r^T M^-1 r + log|M|)/2                  -(r^T r - m^T phi^T D r + log|Sigma Q|)/2
              (up to the terms of the noise alone)

`condition` takes the form with the smaller matrix. A point with `1/s = 0` drops out of every quantity exactly, so
padded batches are exact. No jitter is added. An update in float32 whose matrices come close to singular
(`health.FLOAT32_HEALTH`) is carried out in float64. A prior that has learned to be all but certain of some combination
of weights makes `Q` singular there too, which says nothing about the posterior: such an update goes through
`S = I + A^T A` (`whitened_space`), which never needs the inverse of the prior.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.numerics import fallbacks
from bnnp.numerics.health import FactorisationError, TooLargeForFloat32, not_positive_definite
from bnnp.numerics.natural import (
    NaturalParameters,
    log_density_at_sample,
    moving_with,
    natural_parameters,
    posterior_moments,
)
from bnnp.numerics.records import (
    CAREFUL,
    Observations,
    UnitPrior,
    Update,
    UpdateDraws,
    log_prior,
    project,
    unit_products,
    with_missing,
)
from bnnp.numerics.solve import solve_in_function_space, unpacked, update_in_weight_space

__all__ = [  # what the rest of the library needs of this folder, but for the last layer
    "CAREFUL",
    "NaturalParameters",
    "Observations",
    "UnitPrior",
    "Update",
    "UpdateDraws",
    "condition",
    "condition_on",
    "function_space",
    "log_density_at_sample",
    "log_prior",
    "moving_with",
    "natural_parameters",
    "posterior_moments",
    "project",
    "unit_products",
    "weight_space",
    "whitened_space",
    "with_missing",
]

Features = Float[Tensor, "tasks phi_samples points d"]
"""Features of the points, for each sample or one for all samples."""


def condition(
    prior: UnitPrior, phi: Features, seen: Observations, draws: UpdateDraws, rest: NaturalParameters | None = None
) -> Update:
    """Sample every unit's posterior, by whichever form has the smaller matrix.

    It costs `O(n d min(n, d))` for the matrix plus `O(min(n, d)^3)` for its inverse, per task, sample and unit.

    Args:
        prior: Of each unit.
        phi: Features of the points, for each sample or one for all samples.
        seen: Pseudo-observations of the units at the points.
        draws: Standard normal draws, of which the samples are made.
        rest: What other points add. It is a constant: derivatives are those of the points in `phi` alone.

    Returns:
        Samples less the prior mean, with the KL to the prior and the log evidence.

    Raises:
        FactorisationError: If a posterior precision is not positive definite in float64 either.
    """
    n, d = phi.shape[-2:]
    if n > d or rest is not None:
        return weight_space(prior, phi, seen, draws, rest)
    return function_space(prior, phi, seen, draws)


def _in_float64_where_needed(form: Callable[..., Update]) -> Callable[..., Update]:
    @wraps(form)
    def guarded(prior: UnitPrior, phi: Tensor, *records: Any) -> Update:
        try:
            return form(prior, phi, *records)
        except TooLargeForFloat32:
            fallbacks.count(float64=1)
            double = torch.float64
            in_double = [None if record is None else record.to(double) for record in records]
            return form(prior.to(double), phi.to(double), *in_double).to(phi.dtype)

    return guarded


@_in_float64_where_needed
def function_space(prior: UnitPrior, phi: Features, seen: Observations, draws: UpdateDraws) -> Update:
    """The update through `M`, an n x n matrix per unit."""
    start = prior.scale(draws.weights)
    if phi.shape[-2] == 0:
        nothing = start.new_zeros(phi.shape[0], 1, start.shape[-2])
        return Update(start, nothing, nothing, prior.factor)
    inverse_noise = seen.inverse_noise.mT
    residual = (seen.y.mT - project(phi, prior.mean)) * inverse_noise
    drawn = residual - phi @ start.mT * inverse_noise - draws.points.mT
    covariance = prior.covariance
    right = _columns(residual, drawn, phi.shape[1])
    solutions, log_determinant, excess_trace = solve_in_function_space(covariance, phi, inverse_noise, right)
    solved, drawn_solved = _from_columns(solutions)
    centred = start + unit_products(covariance, (drawn_solved * inverse_noise).mT @ phi)
    quadratic = (solved * residual).sum(-2)
    # |L^-1 m|^2 = a^T (M - I) a with a = M^-1 r
    kl = 0.5 * (excess_trace + quadratic - solved.square().sum(-2) + log_determinant)
    return Update(centred, kl, -0.5 * (quadratic + log_determinant), prior.factor)


@_in_float64_where_needed
def weight_space(
    prior: UnitPrior, phi: Features, seen: Observations, draws: UpdateDraws, rest: NaturalParameters | None = None
) -> Update:
    """The update through `Q`, a d x d matrix per unit. It takes what `condition` takes."""
    start = unit_products(prior.whitener if prior.is_diagonal else prior.whitener.mT, draws.weights)
    others = ()
    moving = None if rest is None else moving_with(prior.mean, rest.to(phi.dtype))
    if moving is not None:
        start = start - moving.draws.mT
        others = (moving.precision, moving.shift)
    try:
        centred, kl, log_evidence = update_in_weight_space(
            prior.precision,
            prior.log_determinants,
            prior.mean,
            phi,
            seen.inverse_noise,
            seen.y,
            start,
            draws.points,
            *others,
        )
    except (TooLargeForFloat32, FactorisationError):
        singular = prior.close_to_singular()
        if not bool(singular.any()):
            raise
        return _units_apart(singular, prior, phi, seen, draws, rest)
    if moving is not None:
        log_evidence = log_evidence - 0.5 * moving.square
    return Update(centred, kl, log_evidence, prior.factor)


def _units_apart(singular: Tensor, prior: UnitPrior, phi: Tensor, *records: Any) -> Update:
    """Units whose prior is close to singular by `whitened_space`, in float64, and the others in weight space."""
    fallbacks.count(whitened=1)
    sound, others = ((singular == flag).nonzero().flatten() for flag in (False, True))

    def arguments(units: Tensor, dtype: torch.dtype) -> list[Any]:
        chosen = [None if record is None else record.of_units(units).to(dtype) for record in (prior, *records)]
        return [chosen[0], phi.to(dtype), *chosen[1:]]

    parts = [whitened_space(*arguments(others, torch.float64)).to(phi.dtype)]
    if len(sound) > 0:
        parts.append(weight_space(*arguments(sound, phi.dtype)))
    order = torch.cat([others, sound]).argsort()
    centred = torch.cat([part.centred for part in parts], 2)[:, :, order]
    kl, log_evidence = (torch.cat([getattr(part, name) for part in parts], -1) for name in ("kl", "log_evidence"))
    return Update(centred, kl[..., order], log_evidence[..., order], prior.factor)


def whitened_space(
    prior: UnitPrior, phi: Features, seen: Observations, draws: UpdateDraws, rest: NaturalParameters | None = None
) -> Update:
    """The update through `S = I + A^T A`, one unit after the other: slow, and exact for priors close to singular.

    `w - mu = L S^-1 (v0 + A^T (r - e))` and `m = L S^-1 A^T r`; `tr(Sigma^-1 Q^-1) = tr S^-1`, `|Sigma Q| = |S|`.
    """
    residuals = (seen.y.mT - project(phi, prior.mean)) * seen.inverse_noise.mT
    factors = torch.diag_embed(prior.factor) if prior.is_diagonal else prior.factor
    eye = torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device)
    rest = None if rest is None else moving_with(prior.mean, rest.to(phi.dtype))
    samples, kls, evidences = [], [], []
    for unit, factor in enumerate(factors):
        a = phi @ factor * seen.inverse_noise[:, :, unit].unsqueeze(-1)
        residual = residuals[..., unit]
        s, pull = eye + a.mT @ a, _times(a.mT, residual)
        start = draws.weights[:, :, unit] - _times(a.mT, draws.points[:, :, unit])
        square = residual.square().sum(-1)
        if rest is not None:
            s = s + factor.mT @ unpacked(rest.precision[..., unit : unit + 1]).squeeze(2) @ factor
            pull = pull + rest.shift[..., unit] @ factor
            start = start - rest.draws[..., unit] @ factor
            square = square + rest.square[..., unit]
        root = _root(s, unit)
        mean = _solved(root, pull)
        log_determinant = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        trace = torch.linalg.solve_triangular(root, eye, upper=False).square().sum((-2, -1))
        kls.append(0.5 * (trace - len(eye) + mean.square().sum(-1) + log_determinant))
        evidences.append(-0.5 * (square - (mean * pull).sum(-1) + log_determinant))
        samples.append(_times(factor, _solved(root, pull + start)))
    return Update(torch.stack(samples, 2), torch.stack(kls, -1), torch.stack(evidences, -1), prior.factor)


def _root(matrix: Float[Tensor, "tasks samples d d"], unit: int) -> Float[Tensor, "tasks samples d d"]:
    """The Cholesky factor of one unit's matrices."""
    root, bad = torch.linalg.cholesky_ex(matrix)
    wrong = (bad > 0) | ~torch.isfinite(root).flatten(-2).all(-1)
    if bool(wrong.any()):
        raise not_positive_definite((*wrong.nonzero()[0].tolist(), unit))
    return root


def _times(matrix: Float[Tensor, "... rows d"], vector: Float[Tensor, "... d"]) -> Float[Tensor, "... rows"]:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _solved(root: Float[Tensor, "... d d"], right: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """`(R R^T)^-1 b`, where all of a task's right-hand sides may share a matrix."""
    half = torch.linalg.solve_triangular(root, right.unsqueeze(-1), upper=False)
    return torch.linalg.solve_triangular(root.mT, half, upper=True).squeeze(-1)


def condition_on(prior: UnitPrior, natural: NaturalParameters, draws: Float[Tensor, "tasks samples units d"]) -> Update:
    """Sample every unit's posterior from the sums over its data, in their precision."""
    prior, v0 = prior.to(natural.shift.dtype), draws.to(natural.shift.dtype)
    tasks, samples, d, units = natural.shift.shape
    nothing = natural.shift.new_zeros(tasks, samples, units, 0)
    no_points = UpdateDraws(v0, natural.shift.new_zeros(tasks, v0.shape[1], units, 0))
    phi = natural.shift.new_zeros(tasks, samples, 0, d)
    return weight_space(prior, phi, Observations(nothing, nothing), no_points, natural)


def _columns(
    first: Float[Tensor, "tasks samples rows units"],
    drawn: Float[Tensor, "tasks all_samples rows units"],
    phi_samples: int,
) -> Float[Tensor, "tasks phi_samples rows columns units"]:
    """Right-hand sides for the mean and for the samples: all samples' side by side where they share a matrix."""
    if phi_samples == 1:
        return torch.cat([first.unsqueeze(-2), drawn.permute(0, 2, 1, 3).unsqueeze(1)], dim=-2)
    return torch.stack([first.expand(drawn.shape), drawn], dim=-2)


def _from_columns(solutions: Tensor) -> tuple[Tensor, Tensor]:
    if solutions.shape[1] == 1:
        return solutions[..., 0, :], solutions[:, 0, :, 1:].transpose(1, 2)
    return solutions[..., 0, :], solutions[..., 1, :]
