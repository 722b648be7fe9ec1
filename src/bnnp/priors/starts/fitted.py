r"""Starts of a prior that are fitted to tasks, in closed form.

Given the features that enter a layer, a Gaussian over the weights of one unit and outputs with Gaussian noise are a
linear model, `y_t = phi_t w_t + e`, `w_t ~ N(mean, covariance)`. Its empirical Bayes has expectation-maximisation steps
in closed form, so that the mean and covariance that many tasks share are found in seconds. Four starts rest on it:

    fitted   the last layer, on features that are spread over the inputs
    switch   the unit that decides between two levels
    floor    the unit that lifts functions from their lowest value
    place    the last layer, on features that move along the inputs with one unit's bias: a shape at a random place
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from bnnp._core.random import as_integer, child
from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import features_of_layer, run
from bnnp.priors.base import Prior
from bnnp.priors.starts.spread import FIRST_SCALE, HIDDEN_SCALE, Deciding, Examples, bends, spread, whitening_mixture

UNCERTAINTY = 0.1
"""Of hidden weights, as a share of that of the spread start: the fit relies on features that stay where they are."""
SLOPES = (4.0, 8.0, 16.0)
"""Steepness of the first layer that is tried; the one whose features explain the tasks best is taken."""
FIRST_NOISE = 0.15
"""Noise that a fit begins with, as a share of the standard deviation of outputs."""
ITERATIONS, HELD = 20, 5
"""Steps of a fit, and how many of them go by before tasks may change their places."""
PLACE_SLOPE, PLACE_BENDS, PLACES = 0.5, 8.0, 61
"""Of a shape at a random place: slope of the unit that places it, steepness of what follows, places that are tried."""
SWEEPS, AT_FLOOR = 200, 0.03
"""Of outputs that rest at a floor: how often what they are below it is drawn, and up to where they rest, as a share of
their standard deviation."""
SMOOTH_FLOOR = 0.03
"""As `WHITENING_FLOOR`, for features of functions that rest at a floor, which are smooth where they leave it."""
RIDGE = 1e-4
"""Share of the mean square feature that keeps the weights of a wanted covariance small."""


@dataclass(frozen=True)
class LinearFit:
    """What the tasks share: the prior of weights, the noise, and which of the given features each task has."""

    mean: Float[Tensor, "d"]
    covariance: Float[Tensor, "d d"]
    noise: float
    chosen: Tensor


@dataclass(frozen=True)
class Sums:
    """All that a linear model sees of tasks: sums over their points, for each of several ways to make features."""

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

    variance: of weights at first, of which the covariance keeps the more the fewer the tasks (`_Shared`).
    chosen: which features each task has at first; after some steps, those under which it is most probable.
    diagonal: the weights are independent of each other.

    Cost: `O(tasks ways d^3)` a step.
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

    What the others are is drawn anew, given weights that are drawn given them (Chib, 1992), between steps of
    expectation-maximisation. The less noise, the less the draws move; so it falls to what is asked for in half of the
    sweeps, from the standard deviation of the outputs. Tasks count by the share of their outputs that is seen.

    Cost: `O(tasks d^3 + points d)` a sweep.
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
    """Mean and covariance of the weights of all tasks, on the way to a fit.

    The fewer the tasks, the more the covariance keeps of the first one: as if `d / tasks^2` more tasks had shown it.
    With as many tasks as features that is next to nothing, with two it is most.
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
        """Of every task, for each way to make features: precision times mean, mean, and the precision's factor."""
        precision = torch.linalg.inv(self.covariance)
        shift = precision @ self.mean + sums.product / noise_variance
        factor = torch.linalg.cholesky(precision + sums.gram / noise_variance)
        return shift, torch.cholesky_solve(shift.unsqueeze(-1), factor).squeeze(-1), factor

    def after(self, means: Float[Tensor, "tasks d"], covariances: Float[Tensor, "tasks d d"]) -> "_Shared":
        """What suits these posteriors best."""
        tasks, mean = len(means), means.mean(0)
        centred = means - mean
        covariance = (covariances.sum(0) + centred.mT @ centred + self.extra * self.first) / (tasks + self.extra)
        return replace(self, mean=mean, covariance=covariance.diagonal().diag() if self.diagonal else covariance)


def _normal_below(bound: float, mean: Tensor, scale: float, generator: torch.Generator) -> Tensor:
    """Draws of normal variables that are known to be below a bound."""
    share = torch.rand(mean.shape, dtype=mean.dtype, generator=generator)
    chance = share * torch.special.log_ndtr((bound - mean) / scale).exp()  # ndtr itself is 0 below -8.3
    tiny = torch.finfo(mean.dtype).tiny  # means so far above that nothing of them is below: then just at the bound
    return (mean + scale * torch.special.ndtri(chance.clamp(min=tiny))).clamp(max=bound)


@torch.no_grad()
def fitted(prior: Prior, examples: Examples, generator: torch.Generator) -> None:
    """Features that are spread over the inputs, of little uncertainty, and the last layer that fits the tasks."""
    last = prior.network.num_layers - 1
    x, scale, seed = examples.all_x(), examples.output_scale, as_integer(generator)

    def fits(slope: float) -> list[LinearFit]:
        random = child(seed)  # the same features but for their steepness
        spread(prior, x, scale, random, slope=slope, uncertainty=UNCERTAINTY)
        return _fit_units(prior, examples, *_sampled_features(prior, last, examples, random))

    def misfit(slope: float) -> float:
        return sum((fit.noise / float(s)) ** 2 for fit, s in zip(fits(slope), scale, strict=True))

    for unit, fit in enumerate(fits(min(SLOPES, key=misfit))):
        prior.assign_unit(last, unit, fit.mean, fit.covariance)


@torch.no_grad()
def switch(prior: Prior, examples: Examples, deciding: Deciding, generator: torch.Generator) -> None:
    """One unit for each output that decides between two levels, and jumps as the tasks do.

    The unit is the sign, almost, of a Gaussian function `f`. If signs at two inputs have correlation c, then `f` has
    `sin(pi c / 2)` there (the arcsine law), so that a linear model of the tasks tells what `f` must be.
    """
    layer = prior.network.num_layers - 2
    spread(prior, examples.all_x(), examples.output_scale, generator, deciding=deciding)
    features, ways = _sampled_features(prior, layer, examples, generator)
    some = torch.cat([phi[0] for phi in features])
    some = some[torch.randperm(len(some), generator=generator)[:400].to(some.device)].double().cpu()
    gram = some.mT @ some
    ridge = RIDGE * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    to_weights = torch.linalg.solve(gram + ridge, some.mT)
    for unit, fit in enumerate(_fit_units(prior, examples, features, ways)):
        signs = some @ (fit.covariance + torch.outer(fit.mean, fit.mean)) @ some.mT
        sizes = signs.diagonal().sqrt()
        wanted = torch.sin(math.pi / 2 * signs / sizes / sizes.unsqueeze(-1))
        covariance = _nearest_covariance(to_weights @ wanted @ to_weights.mT)
        prior.assign_unit(layer, unit, fit.mean.new_zeros(len(fit.mean)), deciding.input_scale**2 * covariance)


@torch.no_grad()
def floor(prior: Prior, examples: Examples, deciding: Deciding, generator: torch.Generator) -> None:
    """One unit for each output that is above 0 where a task is above its lowest value.

    What comes into the unit is seen there; elsewhere it is only known to be below 0.
    """
    layer = prior.network.num_layers - 2
    scale, lowest = examples.output_scale, torch.cat(examples.y).min(0).values
    spread(prior, examples.all_x(), scale, generator, whitening_floor=SMOOTH_FLOOR, deciding=deciding, lowest=lowest)
    features, _ = _sampled_features(prior, layer, examples, generator)
    variance = (deciding.input_scale / _size(features)) ** 2
    diagonal = prior.layer(0, []).is_diagonal
    for unit in range(len(scale)):
        above = [(y[:, unit] - lowest[unit]) / scale[unit] for y in examples.y]
        fit = fit_censored(features, above, AT_FLOOR, variance, FIRST_NOISE, generator, diagonal=diagonal)
        prior.assign_unit(layer, unit, fit.mean, fit.covariance)


@torch.no_grad()
def place(prior: Prior, examples: Examples, generator: torch.Generator) -> None:
    """A shape at a random place of one input column.

    The first unit of the first layer is `tanh(slope (x - place))` with a random bias, the units of the second see
    nothing else, and so all that follows is a function of `x - place`. Where a task is placed at first: the mean
    of its inputs, each with the weight of its squared distance from the usual output.
    """
    if len(examples.x) < 2:
        raise ValueError("prior_start 'place': got one task, expected more: places are told by comparing tasks")
    network, x, scale = prior.network, examples.all_x(), examples.output_scale
    usual = torch.cat(examples.y).median(0).values
    # a task in which nothing happens is placed in its middle
    activity = [((y - usual) / scale).square().sum(-1) + 1e-6 for y in examples.y]
    centres = torch.stack([(a * x_t[:, 0]).sum() / a.sum() for a, x_t in zip(activity, examples.x, strict=True)])
    slope = float(PLACE_SLOPE / x.std())
    means: list[Tensor] = []

    def outputs(layer: int, phi: Tensor) -> Tensor:
        d, out = network.weight_shapes[layer]
        deviations = phi.new_full((d, out), UNCERTAINTY * HIDDEN_SCALE / float(phi.square().sum(-1).mean().sqrt()))
        if layer == 0:
            mean, deviations = bends(x, out, PLACE_BENDS, generator), phi.new_full((d, out), UNCERTAINTY * FIRST_SCALE)
            mean[:, 0] = phi.new_tensor([slope, 0.0])
        elif layer == 1:
            mean = phi.new_zeros(d, out)
            mean[[0, -1]] = bends(phi[:, :1], out, PLACE_BENDS, generator)
        else:
            mean = whitening_mixture(phi, out, generator) if layer < network.num_layers - 1 else phi.new_zeros(d, out)
        means.append(mean)
        prior.assign_layer(layer, mean, deviations)
        return phi @ mean

    run(network.program(torch.cat([x_t - c for x_t, c in zip(examples.x, centres, strict=True)])), outputs)
    middle, reach = centres.mean(), 3 * centres.std()
    tried = middle + reach * torch.linspace(-1, 1, PLACES, dtype=x.dtype, device=x.device)
    features = [features_of_layer(network.program(x_t - tried[:, None, None]), means[:-1]) for x_t in examples.x]
    nearest = (tried - centres.unsqueeze(-1)).abs().argmin(-1).cpu()
    fits = _fit_units(prior, examples, features, nearest)
    for unit, fit in enumerate(fits):
        prior.assign_unit(network.num_layers - 1, unit, fit.mean, fit.covariance)
    places = tried[fits[0].chosen.to(tried.device)]
    spread_of_places = max(float(places.std()), FIRST_SCALE * float(x.std()))  # tasks may all have the same one
    moves = x.new_tensor([[(UNCERTAINTY * FIRST_SCALE * slope) ** 2, 0.0], [0.0, (slope * spread_of_places) ** 2]])
    prior.assign_unit(0, 0, x.new_tensor([slope, -slope * float(places.mean())]), moves)


def _fit_units(
    prior: Prior, examples: Examples, features: Sequence[Float[Tensor, "ways _n d"]], chosen: Tensor
) -> list[LinearFit]:
    """A linear model of every output. Of several ways to make features, the first output chooses for all."""
    size = _size(features)
    fits: list[LinearFit] = []
    for unit, scale in enumerate(examples.output_scale.tolist()):
        sums = Sums.of(features, [y[:, unit] for y in examples.y])
        diagonal = prior.layer(0, []).is_diagonal
        fits.append(fit_linear(sums, (scale / size) ** 2, FIRST_NOISE * scale, chosen, diagonal=diagonal))
        features = [phi[way].unsqueeze(0) for phi, way in zip(features, fits[-1].chosen.tolist(), strict=True)]
        chosen = torch.zeros_like(chosen)
    return fits


def _size(features: Sequence[Float[Tensor, "ways _n d"]]) -> float:
    """Root mean square norm of the features of a point."""
    return float(torch.cat([phi[0] for phi in features]).square().sum(-1).mean().sqrt())


def _nearest_covariance(matrix: Float[Tensor, "d d"]) -> Float[Tensor, "d d"]:
    """The matrix without its negative directions: what is estimated, and bent by a sine, may have some."""
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=1e-6 * float(values[-1]))) @ vectors.mT


def _sampled_features(
    prior: Prior, layer: int, examples: Examples, generator: torch.Generator
) -> tuple[list[Float[Tensor, "1 _n d"]], Tensor]:
    """What enters a layer, for every task with other weights before it; and that there is no other way to make it."""
    weights = prior.sample(len(examples.x), seed=generator)[:layer]
    features = [
        features_of_layer(prior.network.program(x), [w[task] for w in weights]).unsqueeze(0)
        for task, x in enumerate(examples.x)
    ]
    return features, torch.zeros(len(examples.x), dtype=torch.long)
