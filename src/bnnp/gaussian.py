r"""The one conjugate update that all inference in the library rests on.

One unit has a prior `w ~ N(mu, L L^T)` and sees features `phi (n x d)` and pseudo-observations `y (n)` with standard
deviations `s (n)`. Whitened, `w = mu + L v`, `A = diag(1/s) phi L` and `r = (y - phi mu)/s`, so that the prior of `v`
is `N(0, I)` and its posterior has precision `P = I + A^T A`. With `M = I + A A^T`, `v0 ~ N(0, I_d)`, `e ~ N(0, I_n)`:

    sample    v = P^-1 (v0 + A^T (r - e))               = v0 + A^T M^-1 (r - A v0 - e)
    mean      m = P^-1 A^T r                            = A^T M^-1 r
    KL          = (tr P^-1 - d + |m|^2 + logdet P)/2    = (tr M^-1 - n + |m|^2 + logdet M)/2
    evidence    = -(r^T M^-1 r + logdet M)/2              (up to the terms of the noise alone)

`weight_space` uses P, `function_space` uses M; `condition` takes the smaller. A point with `1/s = 0` drops out of every
quantity exactly, so padded batches are exact. All eigenvalues of P and M are at least 1: no jitter is needed, and none
is added. In float32 that argument fails once the largest eigenvalue approaches 1e7, and derivatives lose digits sooner,
so updates whose trace exceeds `inverse.FLOAT32_TRACE` are carried out in float64.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps

import torch

from bnnp._shapes import Float, Tensor
from bnnp.inverse import TooLargeForFloat32, inverse_of_one_plus, refuse_large, solve_in_function_space


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
        if self.is_diagonal:
            return self.factor * v
        return torch.einsum("uij,...uj->...ui", self.factor, v)

    def scale_transposed(self, v: Float[Tensor, "... units d"]) -> Float[Tensor, "... units d"]:
        """`L^T v` for each unit."""
        if self.is_diagonal:
            return self.factor * v
        return torch.einsum("uji,...uj->...ui", self.factor, v)

    def weights(self, v: Float[Tensor, "tasks samples units d"]) -> Float[Tensor, "tasks samples units d"]:
        return self.mean + self.scale(v)

    def whiten(self, weights: Float[Tensor, "tasks samples units d"]) -> Float[Tensor, "tasks samples units d"]:
        """The `v` with `w = mu + L v`."""
        centred = weights - self.mean
        if self.is_diagonal:
            return centred / self.factor
        return torch.linalg.solve_triangular(self.factor, centred.unsqueeze(-1), upper=False).squeeze(-1)

    def log_determinant(self) -> Float[Tensor, ""]:
        """`log |L|`, summed over units."""
        diagonal = self.factor if self.is_diagonal else self.factor.diagonal(dim1=-2, dim2=-1)
        return diagonal.log().sum()

    def to(self, dtype: torch.dtype) -> "UnitPrior":
        return UnitPrior(self.mean.to(dtype), self.factor.to(dtype))


@dataclass(frozen=True)
class Observations:
    """Pseudo-observations of the units and the inverse of their standard deviations; 0 marks a point that is absent."""

    y: Float[Tensor, "tasks y_samples units points"]
    inverse_noise: Float[Tensor, "tasks samples units points"]

    def to(self, dtype: torch.dtype) -> "Observations":
        return Observations(self.y.to(dtype), self.inverse_noise.to(dtype))


@dataclass(frozen=True)
class UpdateNoise:
    """The standard normal draws that one posterior sample is made of."""

    weights: Float[Tensor, "tasks samples units d"]
    points: Float[Tensor, "tasks samples units points"]

    def to(self, dtype: torch.dtype) -> "UpdateNoise":
        return UpdateNoise(self.weights.to(dtype), self.points.to(dtype))


@dataclass(frozen=True)
class Update:
    """What conditioning gives: whitened samples, the KL to the prior and the log evidence of the pseudo-observations.

    `log_evidence` leaves out `-sum log s - n log(2 pi)/2`, which depends on the noise alone.
    """

    whitened: Float[Tensor, "tasks samples units d"]
    kl: Float[Tensor, "tasks kl_samples units"]
    log_evidence: Float[Tensor, "tasks kl_samples units"]

    def to(self, dtype: torch.dtype) -> "Update":
        return Update(self.whitened.to(dtype), self.kl.to(dtype), self.log_evidence.to(dtype))


@dataclass(frozen=True)
class NaturalParameters:
    """The likelihood's share of a posterior's natural parameters, about the prior mean; they add over data.

    precision: `phi^T diag(1/s^2) phi`;  shift: `phi^T diag(1/s^2) (y - phi mu)`;  square: `|r|^2`.
    """

    precision: Float[Tensor, "tasks samples units d d"]
    shift: Float[Tensor, "tasks samples units d"]
    square: Float[Tensor, "tasks samples units"]

    def __add__(self, other: "NaturalParameters") -> "NaturalParameters":
        return NaturalParameters(self.precision + other.precision, self.shift + other.shift, self.square + other.square)


def condition(
    prior: UnitPrior, phi: Float[Tensor, "tasks phi_samples points d"], seen: Observations, noise: UpdateNoise
) -> Update:
    """Sample every unit's posterior, by whichever form has the smaller matrix.

    Cost per task, sample and unit: `O(n d min(n, d))` for the matrix plus `O(min(n, d)^3)` for its inverse.
    """
    n, d = phi.shape[-2:]
    form = weight_space if n > d else function_space
    return form(prior, phi, seen, noise)


def _in_float64_where_needed(form: Callable[..., Update]) -> Callable[..., Update]:
    @wraps(form)
    def guarded(prior: UnitPrior, phi: Tensor, seen: Observations, noise: UpdateNoise) -> Update:
        try:
            return form(prior, phi, seen, noise)
        except TooLargeForFloat32:
            double = torch.float64
            return form(prior.to(double), phi.to(double), seen.to(double), noise.to(double)).to(phi.dtype)

    return guarded


@_in_float64_where_needed
def function_space(
    prior: UnitPrior, phi: Float[Tensor, "tasks phi_samples points d"], seen: Observations, noise: UpdateNoise
) -> Update:
    """The update through `M = I + A A^T`, an n x n matrix a unit."""
    if phi.shape[-2] == 0:
        nothing = noise.weights.new_zeros(phi.shape[0], 1, noise.weights.shape[-2])
        return Update(noise.weights, nothing, nothing)
    inverse_noise = seen.inverse_noise
    residual = (seen.y - _project(phi, prior.mean)) * inverse_noise
    drawn = residual - _project(phi, prior.scale(noise.weights)) * inverse_noise - noise.points
    covariance = prior.factor.square() if prior.is_diagonal else prior.factor @ prior.factor.mT
    right = _columns(residual, drawn, phi.shape[1])
    solutions, log_determinant, excess_trace = solve_in_function_space(covariance, phi, inverse_noise, right)
    solved, drawn_solved = _from_columns(solutions)
    whitened = noise.weights + prior.scale_transposed(_back_project(phi, drawn_solved * inverse_noise))
    quadratic = (solved * residual).sum(-1)
    # |m|^2 = a^T (M - I) a with a = M^-1 r
    kl = 0.5 * (excess_trace + quadratic - solved.square().sum(-1) + log_determinant)
    return Update(whitened, kl, -0.5 * (quadratic + log_determinant))


@_in_float64_where_needed
def weight_space(
    prior: UnitPrior, phi: Float[Tensor, "tasks phi_samples points d"], seen: Observations, noise: UpdateNoise
) -> Update:
    """The update through `P = I + A^T A`, a d x d matrix a unit."""
    natural = natural_parameters(prior.mean, phi, seen)
    gram = whitened_precision(prior, natural.precision)
    refuse_large(gram, "weight_space")
    inverse, log_determinant = inverse_of_one_plus(gram)
    shift = prior.scale_transposed(natural.shift)
    drawn = noise.weights + shift - prior.scale_transposed(_back_project(phi, noise.points * seen.inverse_noise))
    mean = _apply(inverse, shift)
    excess_trace = (inverse.diagonal(dim1=-2, dim2=-1) - 1).sum(-1)
    kl = 0.5 * (excess_trace + mean.square().sum(-1) + log_determinant)
    quadratic = natural.square - (shift * mean).sum(-1)
    return Update(_apply(inverse, drawn), kl, -0.5 * (quadratic + log_determinant))


def natural_parameters(
    mean: Float[Tensor, "mean_tasks mean_samples units d"],
    phi: Float[Tensor, "tasks phi_samples points d"],
    seen: Observations,
) -> NaturalParameters:
    """What a set of points adds to the natural parameters of every unit. `O(n d^2)` a unit."""
    precision = phi.mT.unsqueeze(-3) @ (seen.inverse_noise.square().unsqueeze(-1) * phi.unsqueeze(-3))
    residual = (seen.y - _project(phi, mean)) * seen.inverse_noise
    return NaturalParameters(precision, _back_project(phi, residual * seen.inverse_noise), residual.square().sum(-1))


def posterior_moments(
    prior: UnitPrior, natural: NaturalParameters
) -> tuple[Float[Tensor, "tasks samples units d"], Float[Tensor, "tasks samples units d d"]]:
    """Mean and covariance of every unit's posterior, in full. For inspection: sampling needs neither."""
    inverse, _ = inverse_of_one_plus(whitened_precision(prior, natural.precision))
    mean = prior.mean + prior.scale(_apply(inverse, prior.scale_transposed(natural.shift)))
    factor = torch.diag_embed(prior.factor) if prior.is_diagonal else prior.factor
    return mean, factor @ inverse @ factor.mT


def whitened_precision(
    prior: UnitPrior, precision: Float[Tensor, "tasks samples units d d"]
) -> Float[Tensor, "tasks samples units d d"]:
    """`L^T C L` for each unit."""
    if prior.is_diagonal:
        return precision * prior.factor.unsqueeze(-1) * prior.factor.unsqueeze(-2)
    return prior.factor.mT @ precision @ prior.factor


def _project(phi: Float[Tensor, "tasks phi_samples points d"], w: Tensor) -> Tensor:
    """`phi w_u`: weights (..., units, d) to values (..., units, points)."""
    return w @ phi.mT


def _back_project(phi: Float[Tensor, "tasks phi_samples points d"], values: Tensor) -> Tensor:
    """`phi^T values_u`: values (..., units, points) to weights (..., units, d)."""
    return values @ phi


def _columns(
    residual: Tensor, drawn: Tensor, phi_samples: int
) -> Float[Tensor, "tasks phi_samples units points columns"]:
    """The residual and the drawn residuals as right-hand sides, all samples' side by side where they share a matrix."""
    if phi_samples == 1:
        return torch.cat([residual.unsqueeze(-1), drawn.permute(0, 2, 3, 1).unsqueeze(1)], dim=-1)
    return torch.stack([residual.expand(drawn.shape), drawn], dim=-1)


def _from_columns(solutions: Tensor) -> tuple[Tensor, Tensor]:
    if solutions.shape[1] == 1:
        return solutions[..., 0], solutions[:, 0, ..., 1:].permute(0, 3, 1, 2)
    return solutions[..., 0], solutions[..., 1]


def _apply(matrix: Tensor, vectors: Tensor) -> Tensor:
    """A matrix a unit times a vector a unit; one matrix may serve all samples."""
    if matrix.shape[1] == 1:
        return torch.einsum("tuij,tsuj->tsui", matrix[:, 0], vectors)
    return (matrix @ vectors.unsqueeze(-1)).squeeze(-1)


def with_missing(seen: Observations, mask: Tensor) -> Observations:
    """The same observations without the points where `mask` (tasks, points) is false."""
    return replace(seen, inverse_noise=seen.inverse_noise * mask[:, None, None, :])
