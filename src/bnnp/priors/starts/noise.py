"""Whether the noise varies with the inputs, and how, decided by the evidence and by tasks that are left out."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.priors.starts.fitting import Packed, fit_mixed
from bnnp.priors.starts.freedom import SIMPLE, folds_of, standard_error
from bnnp.priors.starts.minimise import minimise
from bnnp.priors.starts.mixed import MixedModel
from bnnp.priors.starts.sums import Sums, TaskPoints

SIZES = torch.tensor([2.0, 0.5, 0.5, 0.5], dtype=torch.float64)
"""Standard deviations of the coefficients of an input's bends before the data are seen."""


@dataclass(frozen=True)
class VariedNoise:
    """A mixed model whose log-noise is a sum of bends.

    Attributes:
        coefficients: How much of each bend there is in the log-noise of each output.
        model: The model.
        value: Its log-evidence, with all parameters at their best and the coefficients integrated (Laplace).
        gain: What left-out tasks gain by it in log-density per point.
    """

    coefficients: Float[Tensor, "terms out"]
    model: MixedModel
    value: float
    gain: float = 0.0

    def log_noise(self, bends: Sequence[Float[Tensor, "_n terms"]]) -> list[Float[Tensor, "_n out"]]:
        """Logarithm of the relative noise at the points of every task."""
        return [bend @ self.coefficients for bend in bends]

    def on(self, tasks: Sequence[TaskPoints], bends: Sequence[Float[Tensor, "_n terms"]]) -> list[TaskPoints]:
        """Tasks with this noise."""
        return _with_noise(tasks, bends, self.coefficients)


def varied_noise(
    tasks: Sequence[TaskPoints],
    bends: Sequence[Float[Tensor, "_n terms"]],
    simple: MixedModel,
    held: Float[Tensor, "out 5"] | None,
) -> VariedNoise | None:
    """A noise that varies with the inputs, if it is better than one noise.

    It is better if the evidence says so and if the log-density of left-out tasks gains more than its standard error.

    Args:
        tasks: The points of every task.
        bends: The bends at the points of every task.
        simple: The model with one noise.
        held: Parameters of the model that are known and not fitted; NaN for all others.

    Returns:
        The noise; None if one noise is as good.
    """
    gains = []
    for fold in folds_of(tasks, held):
        one = fold.fit(simple, SIMPLE)
        known = fold.known
        varied = fit_noise([tasks[task] for task in known], [bends[task] for task in known], one, held)
        scores = replace(fold, tasks=varied.on(tasks, bends)).scores(varied.model)
        gains += [new - old for new, old in zip(scores, fold.scores(one), strict=True)]
    if not gains or not np.mean(gains) > standard_error(np.array(gains)):
        return None
    found, (_, value) = fit_noise(tasks, bends, simple, held), fit_mixed(Sums.of(tasks), simple, held=held)
    return replace(found, gain=float(np.mean(gains))) if found.value > value else None


def fit_noise(
    tasks: Sequence[TaskPoints],
    bends: Sequence[Float[Tensor, "_n terms"]],
    first: MixedModel,
    held: Float[Tensor, "out 5"] | None,
) -> VariedNoise:
    """Fit the coefficients of the bends together with the model, by evidence and a belief that they are small.

    Args:
        tasks: The points of every task.
        bends: The bends at the points of every task.
        first: The model that the fit begins with.
        held: As for `varied_noise`.
    """
    packed = Packed(first, SIMPLE, held)
    count, shape = len(packed.start()), (bends[0].shape[1], len(first.theta))
    sizes = SIZES.repeat(shape[0] // len(SIZES)).unsqueeze(-1)

    def loss(vector: np.ndarray) -> tuple[float, np.ndarray]:
        flat, coefficients = _divided(vector, count, shape)
        here = _with_noise(tasks, bends, coefficients)
        sums = Sums.of(here)
        value, slope = packed.loss(flat, sums)
        by_noise = coefficients / sizes.square() - _slope(packed.model(flat), here, sums, bends)
        return value + 0.5 * float((coefficients / sizes).square().sum()), np.append(slope, by_noise.numpy())

    least = np.append(packed.least(), np.full(shape, -np.inf))
    found, value = minimise(loss, np.append(packed.start(), np.zeros(shape)), least)
    flat, coefficients = _divided(found, count, shape)
    scaled = torch.cat(list(bends)) * sizes.T
    information = torch.eye(shape[0], dtype=scaled.dtype) + 2 * scaled.mT @ scaled
    return VariedNoise(coefficients, packed.model(flat), -value - 0.5 * shape[1] * float(torch.logdet(information)))


def _divided(vector: np.ndarray, count: int, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The parameters of the model, and the coefficients."""
    flat = torch.from_numpy(vector)
    return flat[:count], flat[count:].reshape(shape)


def _with_noise(tasks: Sequence[TaskPoints], bends: Sequence[Tensor], coefficients: Tensor) -> list[TaskPoints]:
    return [replace(task, log_noise=bend @ coefficients) for task, bend in zip(tasks, bends, strict=True)]


def _slope(
    model: MixedModel, tasks: Sequence[TaskPoints], sums: Sums, bends: Sequence[Tensor]
) -> Float[Tensor, "terms out"]:
    """The derivative of the evidence by the coefficients (Fisher): a noise rises where misfits exceed it."""
    total, variance = torch.zeros(bends[0].shape[1], len(model.noise), dtype=torch.float64), model.noise.square()
    for task, bend, weights, factor in zip(tasks, bends, *model.of_tasks(sums), strict=True):
        phi, y = task.of_equal_noise()
        misfit = (y - (phi @ weights.unsqueeze(-1))[..., 0]).square() + (phi @ factor).square().sum(-1)
        total += bend.mT @ (misfit.mT / variance - 1)
    return total
