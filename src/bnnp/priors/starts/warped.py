"""The start for functions with levels, floors or ceilings: random functions that a hidden unit flattens (a warp)."""

from dataclasses import dataclass, replace

import torch

from bnnp._core.random import as_integer
from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import activation_by_name
from bnnp.networks.perceptron import Network
from bnnp.priors.base import Prior
from bnnp.priors.starts.base import Examples, SmoothNoise, Start
from bnnp.priors.starts.freedom import most_freedom
from bnnp.priors.starts.search import Fitted, Search
from bnnp.priors.starts.seen import Seen
from bnnp.priors.starts.sensitivity import HIDDEN_NOISE
from bnnp.priors.starts.sums import Sums
from bnnp.priors.starts.warps import Warp, fit_warp

LEAST_GAIN = 1.0
"""Outputs are taken to be warped if that gains so much log-density per value over a Gaussian. Skewed outputs, as
weights of growing animals, gain up to 0.5; outputs that mostly lie at a floor gain 2, and two levels gain 4."""
SWEEPS = 2
"""How often what outputs say of the functions is found anew, given what the other points of their task say."""
MOST_VARIANCE = 100.0
"""Largest variance of a function before the warp, given the other points."""
ASLEEP = 0.1
"""Standard deviation of what the other units of the last hidden layer see: they can wake when training needs them."""


@dataclass(frozen=True)
class Warped(Start):
    """Start with functions that are warped by a unit of the last hidden layer, one unit per output.

    No Gaussian process has two levels, or a floor. A unit of the last hidden layer that sees a random function has, if
    the function is steep: a `tanh` unit gives levels, a `relu` unit a floor or a ceiling. How the outputs are warped is
    fitted to the values that they take. Each output then says something of the function before the warp; from that its
    covariance is found as in `bnnp.starts.Empirical`.

    The prior stays as it is if the values look Gaussian, or if the network has fewer than two hidden layers.

    Cost: as `bnnp.starts.Empirical`, and a few seconds for the warps.

    Example:
        >>> small = bnnp.BNNP(1, 1, hidden=(8, 8), activation="tanh")
        >>> x = np.linspace(-3, 3, 30)
        >>> levels = bnnp.tasks.from_arrays([(x, np.sign(np.sin(x + shift))) for shift in range(6)])
        >>> bnnp.start_prior(small, levels, bnnp.starts.Warped(), seed=0)
        >>> small.prior.is_standard()
        False
    """

    tasks = 128

    @torch.no_grad()
    def set(self, prior: Prior, examples: Examples, generator: torch.Generator) -> SmoothNoise | None:
        """Set all layers, and give the noise that goes with them."""
        seen, network = Seen.of(examples), prior.network
        warps = _warps(seen, network)
        if not isinstance(network, Network) or not warps:
            return None
        lower, everything = Network((*network.sizes[:-2], len(warps)), network.activation), torch.cat(seen.y)
        diagonal, seed = prior.layer(0, []).is_diagonal, as_integer(generator)
        before = _before_warps(seen, warps, torch.zeros_like(everything), torch.ones_like(everything))
        for _ in range(SWEEPS):
            alone = Search(lower, before, seed, diagonal).best()
            before = _before_warps(seen, warps, *_without_own(alone, before))
        fitted = Search(lower, before, seed, diagonal).best()
        model, sums = most_freedom(fitted.tasks, fitted.model, before.held)
        mean, covariance = fitted.in_weights(*model.of_new_task(sums))
        middle = torch.zeros(network.weight_shapes[-2], dtype=mean.dtype)
        prior.assign_layer(len(fitted.hidden), middle, torch.full_like(middle, ASLEEP / len(middle) ** 0.5))
        before.assign(prior, lower, fitted.hidden, mean, covariance, torch.ones_like(everything))
        noise = _assign_last(prior, seen, warps, examples)
        return SmoothNoise(noise, noise.new_zeros(0, 4), noise.new_zeros(0, len(noise)))


def _warps(seen: Seen, network: object) -> list[Warp]:
    """The warp of every output that varies; none if the outputs are not warped, or the network cannot warp them."""
    if not isinstance(network, Network) or network.num_layers < 3 or network.sizes[-2] < network.sizes[-1]:
        return []
    name = network.activation
    activation = activation_by_name(name) if isinstance(name, str) else name
    warps = [fit_warp(column, activation) for column in torch.cat(seen.y).T] if seen.outputs else []
    return warps if any(warp.gain > LEAST_GAIN for warp in warps) else []


def _before_warps(
    seen: Seen, warps: list[Warp], mean: Float[Tensor, "points out"], variance: Float[Tensor, "points out"]
) -> Seen:
    """The tasks with what their outputs say of the functions before the warps, as outputs of known noise.

    Args:
        seen: The tasks.
        warps: The warp of each output.
        mean: What is known of the functions at every point beside its output: their means.
        variance: Their variances.
    """
    columns = zip(warps, torch.cat(seen.y).T, mean.T, variance.T, strict=True)
    sites = [warp.sites(y, centre, variance) for warp, y, centre, variance in columns]
    values, noise = (torch.stack(list(parts), dim=-1) for parts in zip(*sites, strict=True))
    return replace(
        seen,
        y=seen.split(values),
        y_scale=torch.tensor([warp.slope for warp in warps]).to(values),
        y_shift=torch.tensor([warp.place for warp in warps]).to(values),
        noise=torch.ones(len(warps)).to(values),
        outputs=list(range(len(warps))),
        log_noise=seen.split(noise.log()),
    )


def _without_own(fitted: Fitted, before: Seen) -> tuple[Float[Tensor, "points out"], Float[Tensor, "points out"]]:
    """Means and variances of the functions at every point, given the other points (expectation propagation)."""
    means, variances = [], []
    sums = Sums.of(fitted.tasks)
    assert before.log_noise is not None
    for task, y, log_noise, weights, factor in zip(
        fitted.tasks, before.y, before.log_noise, *fitted.model.of_tasks(sums), strict=True
    ):
        centre, given_all = (task.phi @ weights.mT), (task.phi @ factor).square().sum(-1).mT
        precision = (-2 * log_noise).exp()
        variance = 1 / (1 / given_all - precision).clamp(min=1 / MOST_VARIANCE)
        means.append(variance * (centre / given_all - precision * y))
        variances.append(variance)
    return torch.cat(means), torch.cat(variances)


def _assign_last(prior: Prior, seen: Seen, warps: list[Warp], examples: Examples) -> Tensor:
    """Set the last layer, which is all but certain of heights and levels, and give the noise of all outputs."""
    d, out = prior.network.weight_shapes[-1]
    noise = examples.output_scale.double().cpu().clone()
    noise[seen.outputs] = torch.tensor([warp.noise for warp in warps]).to(noise) * seen.y_scale
    mean = noise.new_zeros(d, out)
    for number, (output, warp) in enumerate(zip(seen.outputs, warps, strict=True)):
        mean[number, output] = warp.height * seen.y_scale[number]
        mean[-1, output] = warp.level * seen.y_scale[number] + seen.y_shift[number]
    prior.assign_layer(prior.network.num_layers - 1, mean, (HIDDEN_NOISE * noise).expand(d, out))
    return noise
