r"""Empirical Bayes of a linear model: the Gaussian over weights, and the noise, that many tasks share.

Given the features that enter a layer, a Gaussian over the weights of one unit and outputs with Gaussian noise are a
linear model, `y_t = phi_t w_t + e`, `w_t ~ N(mean, covariance)`. The steps of expectation-maximisation have a closed
form, so that the mean and covariance that many tasks share are found in seconds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from bnnp._core.shapes import Float, Tensor

ITERATIONS, HELD = 20, 5
"""Steps of a fit, and the number of first steps in which tasks keep their features."""
SWEEPS = 200
"""How often a fit to censored outputs draws the outputs below the bound."""


@dataclass(frozen=True)
class LinearFit:
    """A linear model that is fitted to tasks.

    Attributes:
        mean: Mean of the weights over tasks.
        covariance: Their covariance.
        noise: Standard deviation of the noise.
        chosen: For each task, which of the ways to make features it uses.
    """

    mean: Float[Tensor, "d"]
    covariance: Float[Tensor, "d d"]
    noise: float
    chosen: Tensor


@dataclass(frozen=True)
class Sums:
    """All that a linear model needs of tasks: sums over their points, for each of several ways to make features.

    Attributes:
        gram: Sums of `phi phi^T`.
        product: Sums of `phi y`.
        square: Sums of `y^2`.
        count: Numbers of points.
    """

    gram: Float[Tensor, "tasks ways d d"]
    product: Float[Tensor, "tasks ways d"]
    square: Float[Tensor, "tasks"]
    count: Float[Tensor, "tasks"]

    @staticmethod
    def of(features: Sequence[Float[Tensor, "ways _n d"]], outputs: Sequence[Float[Tensor, "_n"]]) -> "Sums":
        pairs = [(phi.double().cpu(), y.double().cpu()) for phi, y in zip(features, outputs, strict=True)]
        return Sums(
            torch.stack([phi.mT @ phi for phi, _ in pairs]),
            torch.stack([phi.mT @ y for phi, y in pairs]),
            torch.stack([y @ y for _, y in pairs]),
            torch.tensor([float(len(y)) for _, y in pairs], dtype=torch.float64),
        )


def fit_linear(sums: Sums, variance: float, noise: float, chosen: Tensor, *, diagonal: bool = False) -> LinearFit:
    """Mean and covariance of weights, and noise, of a linear model, by expectation-maximisation.

    Cost: `O(tasks ways d^3)` per step.

    Args:
        sums: The sums over the points of every task.
        variance: Variance of the weights at first; with few tasks the covariance stays close to it (`_Shared`).
        noise: Standard deviation of the noise at first.
        chosen: For each task, which way to make features it uses at first. After some steps each task takes the way
            under which it is most probable.
        diagonal: Whether the weights are independent of each other.
    """
    tasks, _, d = sums.product.shape
    every = torch.arange(tasks)
    shared = _Shared.at_first(d, tasks, variance, diagonal)
    noise_variance = noise**2
    for iteration in range(ITERATIONS):
        shift, means, factor = shared.posteriors(sums, noise_variance)
        if iteration >= HELD:  # evidence, but for what is the same for all ways
            log_determinant = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
            chosen = ((shift * means).sum(-1) - log_determinant).argmax(-1)
        gram, product, own = sums.gram[every, chosen], sums.product[every, chosen], means[every, chosen]
        covariances = torch.cholesky_inverse(factor[every, chosen])
        shared = shared.after(own, covariances)
        misfit = sums.square - 2 * (own * product).sum(-1) + torch.einsum("ti,tij,tj->t", own, gram, own)
        noise_variance = float((misfit + (covariances * gram).sum((-2, -1))).sum() / sums.count.sum())
    return LinearFit(shared.mean, shared.covariance, math.sqrt(noise_variance), chosen)


def fit_censored(
    features: Sequence[Float[Tensor, "1 _n d"]],
    outputs: Sequence[Float[Tensor, "_n"]],
    bound: float,
    variance: float,
    noise: float,
    generator: torch.Generator,
    *,
    diagonal: bool = False,
) -> LinearFit:
    """Mean and covariance of weights of a linear model whose outputs are seen only where they are above a bound.

    Between steps of expectation-maximisation, the weights are drawn given the outputs, and the outputs below the bound
    are drawn given the weights (Chib, 1992). With little noise the draws move little, so the noise starts at the
    standard deviation of the outputs and falls to `noise` in half of the sweeps. Tasks are weighted by the share of
    their outputs that is seen.

    Cost: `O(tasks d^3 + points d)` per sweep.

    Args:
        features: The features of every task.
        outputs: The outputs of every task.
        bound: Outputs below it are not seen.
        variance: Variance of the weights at first.
        noise: Standard deviation of the noise at the end.
        generator: The generator of the draws.
        diagonal: Whether the weights are independent of each other.
    """
    phi = [one[0].double().cpu() for one in features]
    seen, sizes = torch.cat(list(outputs)).double().cpu(), [len(one) for one in phi]
    hidden, widest = seen < bound, max(float(seen.std()), noise)
    latent = torch.where(hidden, bound - widest, seen)
    sums = Sums.of(features, latent.split(sizes))
    telling = max(1.0, len(phi) * float((~hidden).double().mean()))
    shared = _Shared.at_first(phi[0].shape[-1], telling, variance, diagonal)
    for sweep in range(SWEEPS):
        now = max(noise, widest * (noise / widest) ** (2 * sweep / SWEEPS))
        product = torch.stack([p.mT @ z for p, z in zip(phi, latent.split(sizes), strict=True)]).unsqueeze(1)
        _, means, factor = shared.posteriors(replace(sums, product=product), now**2)
        shared = shared.after(means[:, 0], torch.cholesky_inverse(factor[:, 0]))
        random = torch.randn(means[:, 0].shape, dtype=means.dtype, generator=generator)
        weights = means[:, 0] + torch.linalg.solve_triangular(factor[:, 0].mT, random.unsqueeze(-1), upper=True)[..., 0]
        given = torch.cat([p @ w for p, w in zip(phi, weights, strict=True)])
        latent = torch.where(hidden, _normal_below(bound, given, now, generator), seen)
    return LinearFit(shared.mean, shared.covariance, noise, torch.zeros(len(phi), dtype=torch.long))


@dataclass(frozen=True)
class _Shared:
    """Mean and covariance of the weights over tasks, during a fit.

    The fewer the tasks, the closer the covariance stays to the first one: it counts as `d / tasks^2` more tasks. With
    as many tasks as features that is a small weight, with two tasks it is a large one.

    Attributes:
        mean: The mean.
        covariance: The covariance.
        first: The first covariance.
        extra: The number of tasks that the first covariance counts as.
        diagonal: Whether the weights are independent of each other.
    """

    mean: Float[Tensor, "d"]
    covariance: Float[Tensor, "d d"]
    first: Float[Tensor, "d d"]
    extra: float
    diagonal: bool

    @staticmethod
    def at_first(d: int, tasks: float, variance: float, diagonal: bool) -> "_Shared":
        first = variance * torch.eye(d, dtype=torch.float64)
        return _Shared(first.new_zeros(d), first, first, d / tasks**2, diagonal)

    def posteriors(self, sums: Sums, noise_variance: float) -> tuple[Tensor, Tensor, Tensor]:
        """The posterior of every task, for each way to make features.

        Returns:
            Precision times mean, mean, and the Cholesky factor of the precision.
        """
        precision = torch.linalg.inv(self.covariance)
        shift = precision @ self.mean + sums.product / noise_variance
        factor = torch.linalg.cholesky(precision + sums.gram / noise_variance)
        return shift, torch.cholesky_solve(shift.unsqueeze(-1), factor).squeeze(-1), factor

    def after(self, means: Float[Tensor, "tasks d"], covariances: Float[Tensor, "tasks d d"]) -> "_Shared":
        """The mean and covariance that maximise the expected log-density under these posteriors."""
        tasks, mean = len(means), means.mean(0)
        centred = means - mean
        covariance = (covariances.sum(0) + centred.mT @ centred + self.extra * self.first) / (tasks + self.extra)
        return replace(self, mean=mean, covariance=covariance.diagonal().diag() if self.diagonal else covariance)


def _normal_below(bound: float, mean: Tensor, scale: float, generator: torch.Generator) -> Tensor:
    """Draws of normal variables that are known to be below a bound."""
    share = torch.rand(mean.shape, dtype=mean.dtype, generator=generator)
    chance = share * torch.special.log_ndtr((bound - mean) / scale).exp()  # ndtr itself is 0 below -8.3
    tiny = torch.finfo(mean.dtype).tiny  # where a mean is too far above the bound: draw the bound
    return (mean + scale * torch.special.ndtri(chance.clamp(min=tiny))).clamp(max=bound)
