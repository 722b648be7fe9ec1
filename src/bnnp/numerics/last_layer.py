r"""The last layer in closed form: given samples of the hidden layers it is Gaussian, so nothing of it need be sampled.

A unit of the last layer has a prior `w ~ N(mu, L L^T)` and sees features `phi` of the context, with pseudo-observations
`y` of standard deviations `s`. Whitened, `w = mu + L v`, with `A = diag(1/s) phi L` and `r = (y - phi mu)/s`:

    v ~ N(P^-1 b, P^-1),    P = I + A^T A,    b = A^T r        (weight space: a d x d matrix)

and the same through `M = I + A A^T` (function space: an n x n matrix). At points with features `phi_t` the function is
Gaussian, with mean `phi_t m` and covariance `phi_t S phi_t^T`, where `m` and `S` are the moments of `w`. From them,
under a Gaussian likelihood with noise `sigma`,

    E_q[log p(y_t | w)] = log N(y_t; phi_t m, sigma^2) - tr(phi_t S phi_t^T) / (2 sigma^2)
    log q(y_t)          = log N(y_t; phi_t m, phi_t S phi_t^T + sigma^2 I)

The second is for a group of targets together: all of them, or one at a time, or anything in between. A group of more
than d targets goes through `P_t = P + B^T B` with `B = phi_t L / sigma` instead of its covariance.

An absent point has `1/s = 0` or `1/sigma = 0`: it drops out of everything exactly.
"""

from dataclasses import dataclass

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.numerics.gaussian import NaturalParameters, Observations, UnitPrior, moving_with, project
from bnnp.numerics.health import CURE, FactorisationError, check_health
from bnnp.numerics.solve import unpacked
from bnnp.numerics.symmetric import (
    products_of_rows,
    solve_one_plus,
    sums_of_squares,
    within_groups,
)

LEAST_SHARE = 1e-9
"""For posteriors that users hold; see `check_accurate`."""


@dataclass(frozen=True)
class Groups:
    """How the rows of points are put into groups: `size` points that follow each other, with all outputs of a unit.

    Attributes:
        size: Points per group.
        outputs: How many outputs share a unit. Rows are then all points of the first output, all of the second, ...
    """

    size: int = 1
    outputs: int = 1

    def of(self, values: Tensor, last: int = 1) -> Tensor:
        """From (..., rows) to (..., groups, rows of a group); `last`: axes from the rows on."""
        if self.outputs == 1:
            return values.unflatten(-last, (-1, self.size))
        by_output = values.unflatten(-last, (self.outputs, -1, self.size))
        axis = by_output.ndim - last - 2
        return by_output.transpose(axis, axis + 1).flatten(axis + 1, axis + 2)


@dataclass(frozen=True)
class InWeightSpace:
    """The covariance of the weights through `P`.

    Attributes:
        gram: `P - I`.
        inverse: `P^-1`.
        centre: `P^-1 b`.
        log_determinant: `log |P|`.
    """

    gram: Float[Tensor, "tasks samples units d d"]
    inverse: Float[Tensor, "tasks samples units d d"]
    centre: Float[Tensor, "tasks samples units d"]
    log_determinant: Float[Tensor, "tasks samples units"]

    def covariances(self, prior: UnitPrior, phi: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
        """Of the function within groups of points, given the context; and its variances before."""
        whitened = groups.of(times_each(phi, prior.factor), last=2)
        return within_groups(whitened, self.inverse), whitened.detach().square().sum(-1)

    def variances_of_context(self) -> None:
        """Not known without the features."""


@dataclass(frozen=True)
class InFunctionSpace:
    """The covariance of the weights through `M`.

    Attributes:
        features: `diag(1/s) phi` of the context.
        kernel: `phi Sigma phi^T diag(1/s)`.
        inverse: `M^-1`.
        prior_variance: Of the function at the points of the context.
    """

    features: Float[Tensor, "tasks samples units n d"]
    kernel: Float[Tensor, "tasks samples units n n"]
    inverse: Float[Tensor, "tasks samples units n n"]
    prior_variance: Float[Tensor, "tasks samples units n"]

    def covariances(self, prior: UnitPrior, phi: Tensor, groups: Groups) -> tuple[Tensor, Tensor]:
        weighted = times_each(phi, prior.covariance)
        kernel = groups.of(weighted @ self.features.mT, last=2)
        before = products_of_rows(groups.of(weighted, last=2), groups.of(phi.unsqueeze(2), last=2))
        return before - within_groups(kernel, self.inverse), _diagonal(before.detach())

    def variances_of_context(self) -> tuple[Tensor, Tensor]:
        """Of the function at the points of the context, given it and before: all of it is there already."""
        explained = within_groups(self.kernel.unsqueeze(-2), self.inverse)[..., 0, 0]
        return self.prior_variance - explained, self.prior_variance.detach()


@dataclass(frozen=True)
class LastLayer:
    """The Gaussian of each unit's weights given a context, for every sample of the hidden layers.

    Attributes:
        prior: Of the weights.
        mean: Of the weights, given the context.
        kl: To the prior.
        log_evidence: Of the pseudo-observations, without `-sum log s - n log(2 pi)/2`, which depend on the noise alone.
        form: The covariance of the weights.
    """

    prior: UnitPrior
    mean: Float[Tensor, "tasks samples units d"]
    kl: Float[Tensor, "tasks samples units"]
    log_evidence: Float[Tensor, "tasks samples units"]
    form: InWeightSpace | InFunctionSpace

    def means(self, phi: Float[Tensor, "tasks samples points d"]) -> Float[Tensor, "tasks samples units points"]:
        """Of the function at points."""
        return (phi @ self.mean.mT).mT

    def of_samples(self, some: slice) -> "LastLayer":
        """Of some samples of the hidden layers."""

        def part(values: Tensor) -> Tensor:
            return values if values.shape[1] == 1 else values[:, some]

        form = type(self.form)(**{name: part(values) for name, values in vars(self.form).items()})
        prior = UnitPrior(part(self.prior.mean), self.prior.factor)
        return LastLayer(prior, part(self.mean), part(self.kl), part(self.log_evidence), form)

    def covariances(
        self, phi: Float[Tensor, "tasks samples rows d"], inverse_noise: Tensor, groups: Groups
    ) -> Float[Tensor, "tasks samples units groups g g"]:
        """Of the function within groups of points, where they are accurate beside this noise.

        `O(n d (d + g))` per unit.
        """
        found, before = self.form.covariances(self.prior, phi, groups)
        _check_variances(_diagonal(found), before, groups.of(inverse_noise))
        return found

    def variances(self, phi: Float[Tensor, "tasks samples points d"], inverse_noise: Tensor) -> Tensor:
        """Of the function at points."""
        return self.covariances(phi, inverse_noise, Groups())[..., 0, 0]

    def variances_of_context(self, phi: Float[Tensor, "tasks samples points d"], inverse_noise: Tensor) -> Tensor:
        """Of the function at the points that the layer was conditioned on."""
        known = self.form.variances_of_context()
        if known is None:
            return self.variances(phi, inverse_noise)
        _check_variances(*known, inverse_noise)
        return known[0]


@torch.no_grad()
def _check_variances(variance: Tensor, before: Tensor, inverse_noise: Tensor) -> None:
    """Refuse variances that are the small difference of large numbers, beside the noise of observations."""
    precision, one = inverse_noise.square(), variance.new_ones(())
    check_health(torch.addcmul(one, variance, precision) / torch.addcmul(one, before, precision))


@torch.no_grad()
def check_accurate(form: InWeightSpace) -> None:
    """Refuse a posterior in float64 whose mean may be off by a noticeable part of its standard deviation.

    The share of a diagonal element of `P` that the other rows leave is `1 / (P_ii (P^-1)_ii)`. Where it is 1e-9, the
    mean was off by up to 0.003 standard deviations of a prediction, at 1e-12 by 30, for observations of the prior's
    own size (`tests/hostile/test_edges.py` has the comparison with exact numbers).

    Raises:
        FactorisationError: If the least share is too small.
    """
    left = 1 / ((1 + _diagonal(form.gram)) * _diagonal(form.inverse))
    if left.numel() > 0 and not float(left.min()) >= LEAST_SHARE:
        task = int((left.flatten(1).min(1).values < LEAST_SHARE).int().argmax())
        raise FactorisationError(f"the last layer's posterior is not accurate in float64: {CURE}", task)


# --- conditioning ----------------------------------------------------------------------------------------------------


def condition_last_layer(
    prior: UnitPrior,
    phi: Float[Tensor, "tasks samples points d"],
    seen: Observations,
    *,
    rest: NaturalParameters | None = None,
    through_weights: bool = False,
) -> LastLayer:
    """The posterior of the last layer, by whichever form has the smaller matrix.

    It costs `O(n d^2 + min(n, d)^3)` per task, sample and unit.

    Args:
        prior: Of the weights.
        phi: Features of the context.
        seen: Its pseudo-observations.
        rest: What other points add, without derivatives of their own.
        through_weights: Go through weight space anyway, for groups of more than d targets and for the KL between two
            posteriors.

    Raises:
        TooLargeForFloat32: In float32, where that is not accurate enough.
    """
    residual = (seen.y - project(phi, prior.mean).mT) * seen.inverse_noise
    if rest is not None or through_weights or phi.shape[-2] > phi.shape[-1]:
        return _through_weights(prior, phi, seen, residual, rest)
    return _through_functions(prior, phi, seen, residual)


def _through_weights(
    prior: UnitPrior, phi: Tensor, seen: Observations, residual: Tensor, rest: NaturalParameters | None
) -> LastLayer:
    scaled = times_each(phi, prior.factor) * seen.inverse_noise.unsqueeze(-1)
    gram, pull, square = sums_of_squares(scaled, residual)
    if rest is not None:
        others = moving_with(prior.mean, rest.to(phi.dtype))
        factor = torch.diag_embed(prior.factor) if prior.is_diagonal else prior.factor
        gram = gram + factor.mT @ unpacked(others.precision) @ factor
        pull, square = pull + prior.scale_transposed(others.shift.mT), square + others.square
    found = solve_one_plus(gram, pull)
    kl = 0.5 * (found.excess_trace + found.norm + found.log_determinant)
    evidence = -0.5 * (square - found.quadratic + found.log_determinant)
    form = InWeightSpace(gram, found.inverse, found.solution, found.log_determinant)
    return LastLayer(prior, prior.mean + prior.scale(found.solution), kl, evidence, form)


def _through_functions(prior: UnitPrior, phi: Tensor, seen: Observations, residual: Tensor) -> LastLayer:
    scale = seen.inverse_noise
    weighted, features = times_each(phi, prior.covariance), phi.unsqueeze(2) * scale.unsqueeze(-1)
    kernel = weighted @ features.mT
    found = solve_one_plus(kernel * scale.unsqueeze(-1), residual)
    # |L^-1 (m - mu)|^2 = a^T (M - I) a with a = M^-1 r
    kl = 0.5 * (found.excess_trace + found.quadratic - found.norm + found.log_determinant)
    mean = prior.mean + _times(weighted.mT, scale * found.solution)
    evidence = -0.5 * (found.quadratic + found.log_determinant)
    variance = (weighted * phi.unsqueeze(2)).sum(-1)
    return LastLayer(prior, mean, kl, evidence, InFunctionSpace(features, kernel, found.inverse, variance))


def times_each(
    phi: Float[Tensor, "tasks samples points d"], matrix: Float[Tensor, "units d"] | Float[Tensor, "units d d"]
) -> Float[Tensor, "tasks samples units points d"]:
    """Features times a matrix per unit, or its diagonal, as one large product for all units."""
    if matrix.ndim == 2:
        return phi.unsqueeze(2) * matrix.unsqueeze(-2)
    units, d, _ = matrix.shape
    side_by_side = matrix.transpose(0, 1).reshape(d, units * d)
    return (phi @ side_by_side).unflatten(-1, (units, d)).movedim(-2, 2)


def _diagonal(matrix: Float[Tensor, "*batch n n"]) -> Float[Tensor, "*batch n"]:
    return matrix.diagonal(dim1=-2, dim2=-1)


def _times(matrix: Float[Tensor, "... rows d"], vector: Float[Tensor, "... d"]) -> Float[Tensor, "... rows"]:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)


def kl_between(first: LastLayer, second: LastLayer) -> Float[Tensor, "tasks samples"]:
    """`KL[first || second]` of two posteriors under the same prior, both in weight space."""
    one, other = first.form, second.form
    assert isinstance(one, InWeightSpace)
    assert isinstance(other, InWeightSpace)
    apart = one.centre - other.centre
    trace = (other.gram * one.inverse).sum((-2, -1)) + one.inverse.diagonal(dim1=-2, dim2=-1).sum(-1)
    distance = apart.square().sum(-1) + (apart * _times(other.gram, apart)).sum(-1)
    log_ratio = one.log_determinant - other.log_determinant
    return 0.5 * (trace - apart.shape[-1] + distance + log_ratio).sum(-1)
