"""How many samples of the hidden layers a prediction needs: few for smooth functions, many for several modes.

A prediction is a mixture with one component per sample. An observation is drawn from each component. Its log-density
under the mixture is compared with that under the mixture of all *other* components: the difference is what the
observation loses without a sample like its own. That gap falls as 1/K for K samples, is measured in nats, and needs no
data beyond the context.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from bnnp._core.random import child, normal
from bnnp._core.shapes import Float, Tensor
from bnnp.models.posterior import WeightPosterior
from bnnp.prediction.mixture import MixturePredictive

FIRST = 32
MOST = 1000
LARGEST_GAP = 0.01
"""The gap that is accepted, in nats per point. `docs/notes/last_layer.md` has the resulting scores of predictions."""
PROBES = 32
_COMPONENTS = 64
_PROBE = 77


def samples(sampler: Callable[[range], WeightPosterior]) -> WeightPosterior:
    """Draw as many samples of a posterior as predictions need.

    Args:
        sampler: Gives samples of the posterior by their numbers.
    """
    post = sampler(range(FIRST))
    while True:
        wanted = wanted_after(post.num_samples, gap(post))
        if wanted == post.num_samples:
            return post
        post = post.with_more(sampler(range(post.num_samples, wanted)))


def wanted_after(count: int, gap: float) -> int:
    """How many samples to go on to, after a gap was found with `count` of them; `count` itself where they are enough.

    Args:
        count: The samples so far.
        gap: What `gap` gives for them.
    """
    ratio = gap / LARGEST_GAP
    if ratio <= 1 or count >= MOST:
        return count
    return min(MOST, max(16 * math.ceil(count * min(ratio, 4) / 16), count + 16))


@torch.no_grad()
def gap(post: WeightPosterior) -> float:
    """About the most that more samples could add to the log-density of predictions, in nats per point."""
    if post.network.num_layers == 1:
        return 0.0
    x = None if post.context is None else post.context.x[0]
    generator = probe_generator(post.seed)
    return gap_at(post.mixture_at(probes(x, post.weights[0], post.network.sizes[0], generator)), generator)


def gap_at(predictive: MixturePredictive, generator: torch.Generator) -> float:
    """`gap`, from predictions at probes.

    Args:
        predictive: The predictions.
        generator: The generator of the probes, after them.
    """
    means, spreads = predictive.means, (predictive.variances + predictive.noise.square()).sqrt()
    some = torch.randperm(len(means), generator=generator)[:_COMPONENTS]
    drawn = means[some] + spreads[some] * normal(means[some].shape, means, generator)
    density = torch.distributions.Normal(means[:, None], spreads[:, None]).log_prob(drawn).sum(-1)
    own = density[some, torch.arange(len(some))]
    everything = torch.logsumexp(density, 0)
    rest = everything + torch.log1p(-torch.exp(own - everything).clamp(max=1 - 1e-12))
    loss = (everything - math.log(len(means))) - (rest - math.log(len(means) - 1))
    return float(loss.mean())


def probe_generator(seed: int) -> torch.Generator:
    """The generator of a posterior's probes."""
    return child(seed, _PROBE)


def probes(
    x: Float[Tensor, "points x"] | None, like: Tensor, in_size: int, generator: torch.Generator
) -> Float[Tensor, "probes x"]:
    """Inputs between those of the context and a little beyond; without a context, around 0 in the model's units.

    Args:
        x: Prepared inputs of the context, where they are known.
        like: A tensor of the precision and device that is wanted.
        in_size: Number of input columns.
        generator: The generator of the draws.
    """
    if x is None or len(x) < 2:
        return normal((PROBES, in_size), like, generator)
    first, second = (x[torch.randint(len(x), (PROBES,), generator=generator)] for _ in range(2))
    place = 1.5 * torch.rand(PROBES, 1, generator=generator, dtype=x.dtype).to(x.device) - 0.25
    return first + place * (second - first)
