"""How far the covariance of a linear mixed model may leave its simple form, decided by tasks that are left out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from bnnp._core.random import child
from bnnp._core.shapes import Float, Tensor
from bnnp.priors.starts.fitting import fit_mixed
from bnnp.priors.starts.mixed import Freedom, MixedModel
from bnnp.priors.starts.sums import Sums, TaskPoints

SIMPLE = Freedom()
"""No freedom."""
BRANCHES = (
    [Freedom(pull, noise_held=True) for pull in (30.0, 10.0, 3.0, 1.0, 0.3, 0.1)],
    [Freedom(pull) for pull in (30.0, 10.0, 3.0, 1.0)],
)
"""The freedoms that are compared, each branch from little to much. The second one fits the noise anew. It must be
clearly better: where tasks have hardly more points than there are features, it takes noise for structure."""
FOLDS, MORE_FOLDS, FEW = 4, 8, 12
"""Groups of tasks that are left out in turn; there are more groups if there are fewer tasks than the third number."""
MANY = 30
"""With at least so many tasks, half of the groups are left out in turn, and the others never are."""
REPEATS = 4
"""How often each left-out task is divided into known and unknown points."""
CHOOSING = 48
"""Largest number of tasks that the freedom is chosen by."""
SHARES = (0.1, 0.5)
"""Between which shares of a left-out task's points are known."""


def most_freedom(
    tasks: Sequence[TaskPoints], simple: MixedModel, held: Float[Tensor, "out 5"] | None
) -> tuple[MixedModel, Sums]:
    """Fit a mixed model with the freedom that predicts left-out tasks best.

    Args:
        tasks: The points of every task.
        simple: The model without freedom.
        held: Parameters of the model that are known and not fitted; NaN for all others.

    Returns:
        The model, and the sums over the points of all tasks.
    """
    sums = Sums.of(tasks)
    folds = folds_of(tasks, held)
    start = [fold.fit(simple, SIMPLE) for fold in folds]
    best, chosen = _scores(folds, start), [SIMPLE]
    for branch in BRANCHES if folds else ():
        scores, path = _best_of(branch, folds, start)
        if not np.isfinite(scores).all():
            continue
        gains = scores - best
        if gains.mean() > (0.0 if branch[0].noise_held else standard_error(gains)):
            best, chosen = scores, [SIMPLE, *path]
    model = simple
    for freedom in chosen:
        model = fit_mixed(sums, model, freedom, held)[0]
    return model, sums


def _best_of(
    branch: Sequence[Freedom], folds: Sequence["Fold"], models: Sequence[MixedModel]
) -> tuple[np.ndarray, Sequence[Freedom]]:
    """Scores of left-out tasks with the best freedom of a branch, and the freedoms up to it."""
    found = []
    for freedom in branch:
        models = [fold.fit(model, freedom) for fold, model in zip(folds, models, strict=True)]
        found.append(_scores(folds, models))
        if len(found) > 1 and found[-1].mean() < found[-2].mean():
            break
    best = max(range(len(found)), key=lambda place: found[place].mean())
    return found[best], branch[: best + 1]


def standard_error(gains: np.ndarray) -> float:
    """Standard error of the mean of one gain per task; infinite for one task."""
    return float(gains.std(ddof=1)) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf


@dataclass(frozen=True)
class Fold:
    """Some tasks to learn from, and others to predict.

    Attributes:
        known: Which tasks to learn from.
        left_out: Which others to predict.
        tasks: The points of all of them.
        held: Parameters of the model that are known and not fitted; NaN for all others.
    """

    known: Sequence[int]
    left_out: Sequence[int]
    tasks: Sequence[TaskPoints]
    held: Float[Tensor, "out 5"] | None

    @cached_property
    def sums(self) -> Sums:
        """Sums over the points of the tasks to learn from."""
        return Sums.of([self.tasks[task] for task in self.known])

    def fit(self, first: MixedModel, freedom: Freedom) -> MixedModel:
        return fit_mixed(self.sums, first, freedom, self.held)[0]

    def scores(self, model: MixedModel) -> list[float]:
        """Mean log-density of the unknown points of each left-out task.

        It is minus infinity if the noise is so small that predictions cannot be computed: such a model is not taken.
        """
        mean, covariance = model.of_new_task(self.sums)
        factor = _factor(covariance)
        try:
            return [_score(self.tasks[task], mean, factor, model.noise, n) for n, task in enumerate(self.left_out)]
        except torch.linalg.LinAlgError:  # pyright: ignore
            return [-math.inf] * len(self.left_out)


def _scores(folds: Sequence[Fold], models: Sequence[MixedModel]) -> np.ndarray:
    """Scores of all left-out tasks."""
    return np.array([score for fold, model in zip(folds, models, strict=True) for score in fold.scores(model)])


def left_out_score(tasks: Sequence[TaskPoints], simple: MixedModel, held: Float[Tensor, "out 5"] | None) -> float:
    """Mean log-density of left-out tasks under the model without freedom; arguments as for `most_freedom`."""
    folds = folds_of(tasks, held)
    scores = _scores(folds, [fold.fit(simple, SIMPLE) for fold in folds])
    return float(scores.mean()) if len(scores) else 0.0


def folds_of(tasks: Sequence[TaskPoints], held: Tensor | None) -> list[Fold]:
    """The first tasks, with groups of them left out in turn. Tasks with fewer than two points are never left out.

    If there are no others, nothing is left out, and there are no folds.
    """
    count = min(len(tasks), CHOOSING)
    order = torch.randperm(count, generator=child(0)).tolist()
    number = min(MORE_FOLDS if count < FEW else FOLDS, count)
    groups = [order[start::number] for start in range(number)] if count > 1 else []
    folds = [
        Fold(
            [task for task in range(count) if task not in group],
            [task for task in group if len(tasks[task].y) > 1],
            tasks,
            held,
        )
        for group in (groups if count < MANY else groups[: FOLDS // 2])
    ]
    return [fold for fold in folds if fold.left_out]


def _score(task: TaskPoints, mean: Tensor, factor: Tensor, noise: Tensor, seed: int) -> float:
    """Mean log-density of the unknown points of a task given its known ones, over several divisions."""
    generator, total, count = child(seed, 1), 0.0, len(task.y)
    for _ in range(REPEATS):
        share = SHARES[0] + (SHARES[1] - SHARES[0]) * float(torch.rand(1, generator=generator))
        order = torch.randperm(count, generator=generator)
        known, rest = order.split([k := min(count - 1, max(1, round(share * count))), count - k])
        total += _log_density(task.take(known), task.take(rest), mean, factor, noise)
    return total / REPEATS


def _log_density(known: TaskPoints, rest: TaskPoints, mean: Tensor, factor: Tensor, noise: Tensor) -> float:
    """Mean marginal log-density of the outputs of some points given others, for weights `mean + factor z`."""
    variance, (phi, y), (phi_new, y_new) = noise.square()[:, None, None], known.of_equal_noise(), rest.of_equal_noise()
    seen, asked = phi @ factor, phi_new @ factor
    inside = torch.linalg.cholesky(torch.eye(seen.shape[-1], dtype=seen.dtype) + seen.mT @ seen / variance)
    misfit = y.unsqueeze(-1) - phi @ mean.unsqueeze(-1)
    z = torch.cholesky_solve(seen.mT @ misfit / variance, inside)
    centre = (phi_new @ mean.unsqueeze(-1) + asked @ z)[..., 0]
    spread = torch.linalg.solve_triangular(inside, asked.mT, upper=False).square().sum(-2) + variance[..., 0]
    density = -0.5 * ((y_new - centre).square() / spread + spread.log() + math.log(2 * math.pi))
    return float(density.mean()) - (0.0 if rest.log_noise is None else float(rest.log_noise.mean()))


def _factor(covariance: Float[Tensor, "out d d"]) -> Float[Tensor, "out d d"]:
    """A factor of a covariance that may be singular to rounding."""
    values, vectors = torch.linalg.eigh(covariance)
    return vectors * values.clamp(min=0).sqrt().unsqueeze(-2)
