"""How far a posterior is to be trusted, in a line.

Three questions. Is the amortised posterior near the exact one under the learned prior? Importance weights towards the
exact posterior say so, with the last layer integrated where the likelihood is Gaussian. Where a few draws carry all the
weight they say nothing, and simulations are used instead: functions drawn from the prior, observed at the inputs of the
known points, must lie within the intervals of their posteriors as often as these promise. Are the known points like the
training tasks? Their density is compared with that of the simulated points. Are the inputs in the range of training?
"""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.random import Seed, as_integer, child
from bnnp._core.shapes import Float, Tensor
from bnnp.evaluation.evidence import by_importance, log_weights
from bnnp.inference import infer
from bnnp.inference.posterior import InferredPosterior
from bnnp.inference.target import Target
from bnnp.models.posterior import WeightPosterior
from bnnp.models.trust import LEVEL, Trust
from bnnp.prediction import ExtrapolationWarning
from bnnp.prediction.base import Predictive
from bnnp.tasks.task import Task

DRAWS = 1000
"""Draws whose importance weights are looked at."""
SIMULATIONS, SIMULATED_DRAWS, PROBES = 50, 64, 20
"""Simulated data sets, posterior samples for each, and inputs at which their functions are looked at."""


def check(post: WeightPosterior, x: ArrayLike | Tensor | None = None, *, seed: Seed = 0) -> Trust:
    """Say how far a posterior is to be trusted; `post.check()` is the same.

    Args:
        post: A posterior of `model.condition` that still has its known points.
        x: Inputs (points, in) to predict at, if any: whether they are in the range of training, and whether simulated
            functions lie within the intervals there. By default the range of training is looked at.
        seed: Seed of all draws.

    Returns:
        A record whose `str` is one line.

    Raises:
        ValueError: If the posterior does not have its points any more.

    Example:
        >>> trust = bnnp.evaluation.check(post)
        >>> trust.draws, trust.outside
        (1000, 0)
    """
    known, number = known_points(post, "check"), as_integer(seed)
    inputs = known.x if x is None else torch.cat([known.x, post.columns.inputs(x)])
    probes = _probes(post, child(number, 1)) if x is None else post.columns.inputs(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # the record says so
        effective, k = _weights(post, known, number)
        prior = _prior(post, known, SIMULATED_DRAWS, number + 2 + SIMULATIONS)
        inside, likely = _simulated(post, known, probes, prior, number + 1)
    found = post.model.condition(known.x, known.y, num_samples=SIMULATED_DRAWS, seed=number)
    own = _log_evidence(post, known, found, prior)
    return Trust(
        DRAWS,
        effective,
        k,
        float(inside.mean()),
        float(inside.std(ddof=1) / len(inside) ** 0.5),
        float((1 + (likely <= own).sum()) / (1 + len(likely))),
        int(post.columns.outside(inputs).sum()),
    )


def refine(post: WeightPosterior, method: str, **options: Any) -> InferredPosterior:
    """What `post.refine` does."""
    known = known_points(post, "refine")
    given: dict[str, Any] = {"num_samples": post.num_samples, **options}
    return infer(post.model, known.x, known.y, method=method, **given)  # pyright: ignore[reportArgumentType]


def known_points(post: WeightPosterior, verb: str) -> Task:
    """The points of a posterior, in the user's units.

    Raises:
        ValueError: If it does not have them any more.
    """
    known = post.known
    if known is None:
        raise ValueError(
            f"{verb}: got a posterior without its known points (after `update`, from a file or from a stream), "
            "expected one from `model.condition(x, y)` with all points"
        )
    return known


@torch.no_grad()
def _weights(post: WeightPosterior, known: Task, seed: int) -> tuple[float, float]:
    """The effective number of draws, and the Pareto k of their weights."""
    from arviz_stats.base.array import array_stats

    found = log_weights(_target(post, known), post.model.condition(known.x, known.y, num_samples=DRAWS, seed=seed))
    weights = torch.softmax(found, 0)
    equal = float(found.max() - found.min()) < 1e-6
    with np.errstate(over="ignore"):  # in the smoothed weights of a heavy tail, which are not used
        k = -np.inf if equal else float(array_stats.psislw(found.cpu().numpy())[1])
    return float(1 / weights.square().sum()), k


def _prior(post: WeightPosterior, known: Task, draws: int, seed: int) -> WeightPosterior:
    """Draws of the prior, as the posterior of no points."""
    nothing = known.take(slice(0, 0))
    return post.model.condition(nothing.x, nothing.y, num_samples=draws, seed=seed)


def _simulated(
    post: WeightPosterior, known: Task, probes: Float[Tensor, "points x"], prior: WeightPosterior, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """For data sets drawn from the prior at the inputs of the known points: the share of the function's values that
    lie within the intervals of the posterior, and the log-density of the simulated points."""
    drawn = _prior(post, known, SIMULATIONS, seed)
    observed, truth = drawn.predict_by_samples(known.x).observations(seed), drawn.predict_by_samples(probes).samples
    inside, likely = [], []
    for number, (y, function) in enumerate(zip(observed, truth, strict=True)):
        simulated = Task.of(known.x, y)
        found = post.model.condition(known.x, y, num_samples=SIMULATED_DRAWS, seed=seed + 1 + number)
        low, high = _function_interval(found.predict(probes))
        inside.append(((low <= function) & (function <= high)).mean())
        likely.append(_log_evidence(post, simulated, found, prior))
    return np.array(inside), np.array(likely)


def _function_interval(predictive: Predictive) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
    if predictive.likelihood.real_valued:
        return predictive.interval(LEVEL, noise=False)
    return np.quantile(predictive.samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)


def _log_evidence(post: WeightPosterior, points: Task, found: WeightPosterior, prior: WeightPosterior) -> float:
    """The larger of two estimates, which both lie below the truth on average.

    Draws of the posterior are of no use where inference networks were not trained, as where only features were; draws
    of the prior are of no use where the points say much of the hidden layers.
    """
    target = _target(post, points)
    return max(by_importance(target, draws).value for draws in (found, prior))


def _target(post: WeightPosterior, points: Task) -> Target:
    return Target.of(post.model.prior, post.network, [points], post.likelihood)


def _probes(post: WeightPosterior, generator: torch.Generator) -> Float[Tensor, "points x"]:
    """Inputs spread over the range of training; about the middle of it, where it is not known."""
    columns = post.columns
    share = torch.rand(PROBES, len(columns.x_names), generator=generator, dtype=torch.float64)
    if columns.ranges is None:
        return columns.restore_x(4 * share - 2).cpu()
    low, high = torch.tensor(columns.ranges.x, dtype=torch.float64).T
    return low + share * (high - low)
