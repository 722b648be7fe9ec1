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
(`inverse.FLOAT32_HEALTH`) is carried out in float64. A prior that has learned to be all but certain of some combination
of weights makes `Q` singular there too, which says nothing about the posterior: such an update goes through
`S = I + A^T A` (`whitened_space`), which never needs the inverse of the prior.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, wraps
from typing import Any

import torch

from bnnp._core.shapes import Bool, Float, Int, Tensor
from bnnp.numerics.solve import (
    FactorisationError,
    TooLargeForFloat32,
    not_positive_definite,
    solve_in_function_space,
    times_each,
    unpacked,
    update_in_weight_space,
    weighted_gram,
)

CAREFUL = torch.float64
"""Precision in which posteriors that users hold are solved for, and of sums over points; training has the model's."""


@dataclass(frozen=True)
class UnitPrior:
    """`N(mean_u, L_u L_u^T)` for each unit u; `factor` holds the diagonals or the lower triangles `L_u`."""

    mean: Float[Tensor, "tasks samples units d"]
    factor: Float[Tensor, "units d"] | Float[Tensor, "units d d"]

    @property
    def is_diagonal(self) -> bool:
        return self.factor.ndim == 2

    def scale(self, v: Float[Tensor, "... units d"]) -> Float[Tensor, "... units d"]:
        """`L v` for each unit."""
        return unit_products(self.factor, v)

    def scale_transposed(self, g: Float[Tensor, "... units d"]) -> Float[Tensor, "... units d"]:
        """`L^T g` for each unit: gradients by `L v`, as gradients by `v`."""
        return unit_products(self.factor if self.is_diagonal else self.factor.mT, g)

    @cached_property
    def covariance(self) -> Float[Tensor, "units d"] | Float[Tensor, "units d d"]:
        return self.factor.square() if self.is_diagonal else self.factor @ self.factor.mT

    @cached_property
    def whitener(self) -> Float[Tensor, "units d"] | Float[Tensor, "units d d"]:
        """`L^-1` for each unit."""
        if self.is_diagonal:
            return self.factor.reciprocal()
        eye = torch.eye(self.factor.shape[-1], dtype=self.factor.dtype, device=self.factor.device)
        return torch.linalg.solve_triangular(self.factor, eye.expand(self.factor.shape), upper=False)

    @cached_property
    def precision(self) -> Float[Tensor, "units d"] | Float[Tensor, "units d d"]:
        return self.whitener.square() if self.is_diagonal else self.whitener.mT @ self.whitener

    def weights(self, v: Float[Tensor, "tasks samples units d"]) -> Float[Tensor, "tasks samples units d"]:
        return self.mean + self.scale(v)

    def whiten(self, weights: Float[Tensor, "tasks samples units d"]) -> Float[Tensor, "tasks samples units d"]:
        """The `v` with `w = mu + L v`."""
        return _whitened(weights - self.mean, self.factor)

    @cached_property
    def log_determinants(self) -> Float[Tensor, "units"]:
        """`log |L|` of each unit."""
        diagonal = self.factor if self.is_diagonal else self.factor.diagonal(dim1=-2, dim2=-1)
        return diagonal.log().sum(-1)

    @torch.no_grad()
    def close_to_singular(self) -> Bool[Tensor, "units"]:
        """Units whose factor has a condition number above about 1e5, where float64 loses most digits of `Sigma^-1`."""
        double = self.to(torch.float64)
        return double.factor.flatten(1).norm(dim=1) * double.whitener.flatten(1).norm(dim=1) > 1e5

    def of_units(self, units: Int[Tensor, "some"]) -> "UnitPrior":
        return UnitPrior(self.mean[:, :, units], self.factor[units])

    def to(self, dtype: torch.dtype) -> "UnitPrior":
        return UnitPrior(self.mean.to(dtype), self.factor.to(dtype))


@dataclass(frozen=True)
class Observations:
    """Pseudo-observations of the units and the inverse of their standard deviations; 0 marks a point that is absent."""

    y: Float[Tensor, "tasks y_samples units points"]
    inverse_noise: Float[Tensor, "tasks samples units points"]

    def of_units(self, units: Int[Tensor, "some"]) -> "Observations":
        return Observations(self.y[:, :, units], self.inverse_noise[:, :, units])

    def of_points(self, points: Int[Tensor, "some"]) -> "Observations":
        return Observations(self.y[..., points], self.inverse_noise[..., points])

    def to(self, dtype: torch.dtype) -> "Observations":
        return Observations(self.y.to(dtype), self.inverse_noise.to(dtype))


@dataclass(frozen=True)
class UpdateNoise:
    """The standard normal draws that one posterior sample is made of."""

    weights: Float[Tensor, "tasks samples units d"]
    points: Float[Tensor, "tasks samples units points"]

    def of_units(self, units: Int[Tensor, "some"]) -> "UpdateNoise":
        return UpdateNoise(self.weights[:, :, units], self.points[:, :, units])

    def to(self, dtype: torch.dtype) -> "UpdateNoise":
        return UpdateNoise(self.weights.to(dtype), self.points.to(dtype))


@dataclass(frozen=True)
class Update:
    """What conditioning gives: samples `w - mu`, the KL to the prior and the log evidence of the pseudo-observations.

    `log_evidence` leaves out `-sum log s - n log(2 pi)/2`, which depends on the noise alone.
    """

    centred: Float[Tensor, "tasks samples units d"]
    kl: Float[Tensor, "tasks kl_samples units"]
    log_evidence: Float[Tensor, "tasks kl_samples units"]
    factor: Float[Tensor, "units d"] | Float[Tensor, "units d d"]

    @property
    def whitened(self) -> Float[Tensor, "tasks samples units d"]:
        """The `v` with `w = mu + L v`."""
        return _whitened(self.centred, self.factor)

    def to(self, dtype: torch.dtype) -> "Update":
        return Update(self.centred.to(dtype), self.kl.to(dtype), self.log_evidence.to(dtype), self.factor.to(dtype))


@dataclass(frozen=True)
class NaturalParameters:
    """What points add to the natural parameters of every unit's posterior, about the prior mean. They add over data.

    precision: `phi^T D^2 phi`, packed;  shift: `phi^T D r`;  noise: `phi^T D e`, for the sample;  square: `|r|^2`.
    """

    precision: Float[Tensor, "tasks phi_samples pairs units"]
    shift: Float[Tensor, "tasks phi_samples d units"]
    noise: Float[Tensor, "tasks samples d units"]
    square: Float[Tensor, "tasks phi_samples units"]

    def __add__(self, other: "NaturalParameters") -> "NaturalParameters":
        return NaturalParameters(
            self.precision + other.precision,
            self.shift + other.shift,
            self.noise + other.noise,
            self.square + other.square,
        )

    @staticmethod
    def joined(parts: Sequence["NaturalParameters"], shared: bool) -> "NaturalParameters":
        """Those of all samples, from parts of them; `shared`: but for the noise they are the same for every sample."""
        noise = torch.cat([part.noise for part in parts], dim=1)
        if shared:
            return replace(parts[0], noise=noise)
        precision, shift, square = (
            torch.cat([getattr(part, name) for part in parts], dim=1) for name in ("precision", "shift", "square")
        )
        return NaturalParameters(precision, shift, noise, square)

    def of_units(self, units: Int[Tensor, "some"]) -> "NaturalParameters":
        return NaturalParameters(*(getattr(self, field.name)[..., units] for field in fields(self)))

    def to(self, dtype: torch.dtype) -> "NaturalParameters":
        return NaturalParameters(
            self.precision.to(dtype), self.shift.to(dtype), self.noise.to(dtype), self.square.to(dtype)
        )


def condition(
    prior: UnitPrior,
    phi: Float[Tensor, "tasks phi_samples points d"],
    seen: Observations,
    noise: UpdateNoise,
    rest: NaturalParameters | None = None,
) -> Update:
    """Sample every unit's posterior, by whichever form has the smaller matrix.

    rest: what other points add, as for `weight_space`.

    Cost per task, sample and unit: `O(n d min(n, d))` for the matrix plus `O(min(n, d)^3)` for its inverse.
    """
    n, d = phi.shape[-2:]
    if n > d or rest is not None:
        return weight_space(prior, phi, seen, noise, rest)
    return function_space(prior, phi, seen, noise)


def _in_float64_where_needed(form: Callable[..., Update]) -> Callable[..., Update]:
    @wraps(form)
    def guarded(prior: UnitPrior, phi: Tensor, *records: Any) -> Update:
        try:
            return form(prior, phi, *records)
        except TooLargeForFloat32:
            double = torch.float64
            in_double = [None if record is None else record.to(double) for record in records]
            return form(prior.to(double), phi.to(double), *in_double).to(phi.dtype)

    return guarded


@_in_float64_where_needed
def function_space(
    prior: UnitPrior, phi: Float[Tensor, "tasks phi_samples points d"], seen: Observations, noise: UpdateNoise
) -> Update:
    """The update through `M`, an n x n matrix a unit."""
    start = prior.scale(noise.weights)
    if phi.shape[-2] == 0:
        nothing = start.new_zeros(phi.shape[0], 1, start.shape[-2])
        return Update(start, nothing, nothing, prior.factor)
    inverse_noise = seen.inverse_noise.mT
    residual = (seen.y.mT - project(phi, prior.mean)) * inverse_noise
    drawn = residual - phi @ start.mT * inverse_noise - noise.points.mT
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
    prior: UnitPrior,
    phi: Float[Tensor, "tasks phi_samples points d"],
    seen: Observations,
    noise: UpdateNoise,
    rest: NaturalParameters | None = None,
) -> Update:
    """The update through `Q`, a d x d matrix a unit.

    rest: what other points add. It is a constant: derivatives are those of the points in `phi` alone.
    """
    start = unit_products(prior.whitener if prior.is_diagonal else prior.whitener.mT, noise.weights)
    others = ()
    moving = None if rest is None else moving_with(prior.mean, rest.to(phi.dtype))
    if moving is not None:
        start = start - moving.noise.mT
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
            noise.points,
            *others,
        )
    except (TooLargeForFloat32, FactorisationError):
        singular = prior.close_to_singular()
        if not bool(singular.any()):
            raise
        return _units_apart(singular, prior, phi, seen, noise, rest)
    if moving is not None:
        log_evidence = log_evidence - 0.5 * moving.square
    return Update(centred, kl, log_evidence, prior.factor)


def _units_apart(singular: Tensor, prior: UnitPrior, phi: Tensor, *records: Any) -> Update:
    """Units whose prior is close to singular by `whitened_space`, in float64, and the others in weight space."""
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
    prior: UnitPrior,
    phi: Float[Tensor, "tasks phi_samples points d"],
    seen: Observations,
    noise: UpdateNoise,
    rest: NaturalParameters | None = None,
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
        start = noise.weights[:, :, unit] - _times(a.mT, noise.points[:, :, unit])
        square = residual.square().sum(-1)
        if rest is not None:
            s = s + factor.mT @ unpacked(rest.precision[..., unit : unit + 1]).squeeze(2) @ factor
            pull = pull + rest.shift[..., unit] @ factor
            start = start - rest.noise[..., unit] @ factor
            square = square + rest.square[..., unit]
        root, bad = torch.linalg.cholesky_ex(s)
        wrong = (bad > 0) | ~torch.isfinite(root).flatten(-2).all(-1)
        if bool(wrong.any()):
            raise not_positive_definite((*wrong.nonzero()[0].tolist(), unit))
        mean = _solved(root, pull)
        log_determinant = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        trace = torch.linalg.solve_triangular(root, eye, upper=False).square().sum((-2, -1))
        kls.append(0.5 * (trace - len(eye) + mean.square().sum(-1) + log_determinant))
        evidences.append(-0.5 * (square - (mean * pull).sum(-1) + log_determinant))
        samples.append(_times(factor, _solved(root, pull + start)))
    return Update(torch.stack(samples, 2), torch.stack(kls, -1), torch.stack(evidences, -1), prior.factor)


def _times(matrix: Float[Tensor, "... rows d"], vector: Float[Tensor, "... d"]) -> Float[Tensor, "... rows"]:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def _solved(root: Float[Tensor, "... d d"], right: Float[Tensor, "... d"]) -> Float[Tensor, "... d"]:
    """`(R R^T)^-1 b`, where all of a task's right-hand sides may share a matrix."""
    half = torch.linalg.solve_triangular(root, right.unsqueeze(-1), upper=False)
    return torch.linalg.solve_triangular(root.mT, half, upper=True).squeeze(-1)


def moving_with(mean: Float[Tensor, "tasks samples units d"], rest: NaturalParameters) -> NaturalParameters:
    """The same sums, with their derivatives by the prior mean that they are about."""
    if not mean.requires_grad:
        return rest
    moved = (mean - mean.detach()).unsqueeze(-1)  # zero, but for its derivative
    pull = (unpacked(rest.precision) @ moved).squeeze(-1).mT
    square = rest.square - 2 * (rest.shift * moved.squeeze(-1).mT).sum(-2)
    return replace(rest, shift=rest.shift - pull, square=square)


@torch.no_grad()
def natural_parameters(
    mean: Float[Tensor, "mean_tasks mean_samples units d"],
    phi: Float[Tensor, "tasks phi_samples points d"],
    seen: Observations,
    noise: Float[Tensor, "tasks samples units points"],
) -> NaturalParameters:
    """What a set of points adds to the natural parameters of every unit, in float64. `O(n d^2)` a unit; no derivatives.

    In float32 the sums over accurate observations would be rounded by more than the prior's precision adds to them.
    """
    mean, phi, inverse_noise = mean.to(CAREFUL), phi.to(CAREFUL), seen.inverse_noise.mT.to(CAREFUL)
    residual = (seen.y.mT - project(phi, mean)) * inverse_noise
    return NaturalParameters(
        weighted_gram(phi, inverse_noise),
        phi.mT @ (residual * inverse_noise),
        phi.mT @ (noise.mT * inverse_noise),
        residual.square().sum(-2),
    )


def condition_on(prior: UnitPrior, natural: NaturalParameters, noise: Float[Tensor, "tasks samples units d"]) -> Update:
    """Sample every unit's posterior from the sums over its data, in their precision."""
    prior, v0 = prior.to(natural.shift.dtype), noise.to(natural.shift.dtype)
    tasks, samples, d, units = natural.shift.shape
    nothing = natural.shift.new_zeros(tasks, samples, units, 0)
    no_points = UpdateNoise(v0, natural.shift.new_zeros(tasks, v0.shape[1], units, 0))
    phi = natural.shift.new_zeros(tasks, samples, 0, d)
    return weight_space(prior, phi, Observations(nothing, nothing), no_points, natural)


def log_density_at_sample(
    prior: UnitPrior, update: Update, natural: NaturalParameters
) -> Float[Tensor, "tasks samples units"]:
    """Log-density of every unit's posterior at its sample: prior times likelihood over evidence."""
    centred = update.centred.mT
    pairs = torch.tril_indices(centred.shape[-2], centred.shape[-2])
    twice = torch.where(pairs[0] == pairs[1], 1.0, 2.0).to(centred)
    products = centred[..., pairs[0], :] * centred[..., pairs[1], :] * twice[:, None]
    misfit = natural.square - 2 * (centred * natural.shift).sum(-2) + (products * natural.precision).sum(-2)
    return log_prior(update.whitened, prior) - 0.5 * misfit - update.log_evidence


def log_prior(v: Float[Tensor, "*batch units d"], prior: UnitPrior) -> Float[Tensor, "*batch units"]:
    """Log-density of the weights `mu + L v` of every unit."""
    normal = -0.5 * (v.square().sum(-1) + v.shape[-1] * math.log(2 * math.pi))
    return normal - prior.log_determinants.to(v.dtype)


def posterior_moments(
    prior: UnitPrior, natural: NaturalParameters
) -> tuple[Float[Tensor, "tasks samples units d"], Float[Tensor, "tasks samples units d d"]]:
    """Mean and covariance of every unit's posterior, in full. For inspection: sampling needs neither."""
    size = natural.shift.shape[-2]
    eye = torch.eye(size, dtype=natural.shift.dtype, device=natural.shift.device)
    whitened = whitened_precision(prior, unpacked(natural.precision))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(eye + whitened))
    shift = unit_products(prior.factor if prior.is_diagonal else prior.factor.mT, natural.shift.mT)
    mean = prior.mean + prior.scale((inverse @ shift.unsqueeze(-1)).squeeze(-1))
    factor = torch.diag_embed(prior.factor) if prior.is_diagonal else prior.factor
    return mean, factor @ inverse @ factor.mT


def whitened_precision(
    prior: UnitPrior, precision: Float[Tensor, "tasks samples units d d"]
) -> Float[Tensor, "tasks samples units d d"]:
    """`L^T C L` for each unit."""
    if prior.is_diagonal:
        return precision * prior.factor.unsqueeze(-1) * prior.factor.unsqueeze(-2)
    return prior.factor.mT @ precision @ prior.factor


def project(phi: Float[Tensor, "tasks phi_samples points d"], weights: Tensor) -> Float[Tensor, "tasks _ points units"]:
    """`phi w_u` for each unit; a mean that all tasks and samples share makes it one plain product."""
    return phi @ (weights[0, 0] if weights.shape[:2] == (1, 1) else weights).mT


def unit_products(
    matrix: Float[Tensor, "units d"] | Float[Tensor, "units d d"], v: Float[Tensor, "*batch units d"]
) -> Float[Tensor, "*batch units d"]:
    """A matrix a unit, or its diagonal, times a vector a unit."""
    if matrix.ndim == 2:
        return v * matrix  # in this order, with the numbers of `v` in the same order in memory
    return times_each(matrix, v)


def _whitened(centred: Float[Tensor, "*batch units d"], factor: Tensor) -> Float[Tensor, "*batch units d"]:
    if factor.ndim == 2:
        return centred / factor
    by_unit = centred.flatten(0, -3).permute(1, 2, 0)  # all vectors of a unit as columns: one solve a unit
    return torch.linalg.solve_triangular(factor, by_unit, upper=False).permute(2, 0, 1).reshape(centred.shape)


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


def with_missing(seen: Observations, mask: Tensor) -> Observations:
    """The same observations without the points where `mask` (tasks, points) is false."""
    return replace(seen, inverse_noise=seen.inverse_noise * mask[:, None, None, :])
