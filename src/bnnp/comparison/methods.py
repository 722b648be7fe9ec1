"""The methods that are compared, each by a library of its own: what they learn from tasks, and what they then predict.

Inputs and outputs are standardised. A method is a function of tasks that gives a function of a context and new inputs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bnnp.likelihoods.gaussian import Gaussian
from bnnp.prediction.base import Predictive
from bnnp.recipe import default_models, learn
from bnnp.tasks.source import collect
from bnnp.tasks.task import Task, stacked

LENGTHS, SIZES = (0.05, 50.0), (1e-4, 1e2)
"""Bounds of length scales and variances of Gaussian processes, for standardised columns."""
NEAR, FAR = 1e-3, 1e6
"""Length scales over the numbers of tasks by which two tasks have nothing, or everything, in common."""
RANK = 1e-8
"""Singular values of the mixed model's design below this, by point, count as zero."""
SPLINE = 6
"""Degrees of freedom of the mixed model's spline of an input; one less than its values, where these are few."""


@dataclass(frozen=True, eq=False)
class Normal:
    """Normal predictions, one per point."""

    mean: np.ndarray
    std: np.ndarray


Predict = Callable[[Task, torch.Tensor], "Normal | Predictive"]
Method = Callable[[Sequence[Task], float, int], Predict]


def bnnp(tasks: Sequence[Task], minutes: float, seed: int) -> Predict:
    """A BNNP as `bnnp train` makes it."""
    source = collect(tasks, standardise=False)
    models = default_models(source.in_size, 1, (64, 64), Gaussian(0.1), seed=seed)
    model = learn(models, source, minutes=minutes, progress=False, seed=seed).model
    return lambda known, x: model.condition(known.x, known.y, seed=seed).predict(x)


def population(tasks: Sequence[Task], minutes: float, seed: int) -> Predict:
    """One curve for all: a Gaussian process (scikit-learn) that does not know which task a point is of."""
    x, y = stacked(tasks)
    model = _process(_kernel(np.full(x.shape[1], 1.0)), x.numpy(), y.numpy()[:, 0])
    return lambda known, x: Normal(*model.predict(x.numpy(), return_std=True))


def hierarchical(tasks: Sequence[Task], minutes: float, seed: int) -> Predict:
    """A hierarchical Gaussian process (scikit-learn): a function that all tasks share, and one of each task's own."""
    x, y = stacked(tasks)
    place = np.repeat(np.arange(len(tasks)), [len(task) for task in tasks])[:, None]
    ones = np.ones(x.shape[1])
    kernel = _kernel(np.append(ones, FAR), own=np.append(ones, NEAR))
    points, values = np.hstack([x.numpy(), place]), y.numpy()[:, 0]
    found = _process(kernel, points, values).kernel_

    def predict(known: Task, new: torch.Tensor) -> Normal:
        def of_new(rows: torch.Tensor) -> np.ndarray:
            return np.hstack([rows.numpy(), np.full((len(rows), 1), len(tasks))])

        everything = np.vstack([points, of_new(known.x)]), np.append(values, known.y.numpy()[:, 0])
        return Normal(*_process(found, *everything, optimise=False).predict(of_new(new), return_std=True))

    return predict


def mixed(tasks: Sequence[Task], minutes: float, seed: int) -> Predict:
    """A linear mixed model (statsmodels): splines for all, with an intercept and slopes of each task's own."""
    from patsy import build_design_matrices, dmatrix  # pyright: ignore[reportAttributeAccessIssue]
    from statsmodels.regression.mixed_linear_model import MixedLM

    x, y = stacked(tasks)
    varying = [j for j in range(x.shape[1]) if any(len(task.x[:, j].unique()) > 1 for task in tasks)]
    varying = [varying[place - 1] for place in _independent(_with_ones(x[:, varying]))[1:]]
    design = dmatrix(_formula(x, varying), _data(x))
    kept = _independent(np.asarray(design))
    groups = np.repeat(np.arange(len(tasks)), [len(task) for task in tasks])

    def own(rows: torch.Tensor) -> np.ndarray:
        return _with_ones(rows[:, varying])

    def shared(rows: torch.Tensor) -> np.ndarray:
        return np.asarray(build_design_matrices([design.design_info], _data(rows))[0])[:, kept]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of variances at 0, which few tasks often have
        found = MixedLM(y.numpy()[:, 0], np.asarray(design)[:, kept], groups, own(x)).fit(reml=True)
    effects, covariance, noise = np.asarray(found.fe_params), np.asarray(found.cov_re), float(found.scale)

    def precision(known: torch.Tensor) -> np.ndarray:
        z = own(known)
        return np.linalg.inv(z @ covariance @ z.T + noise * np.eye(len(z)))

    # of the shared effects, by generalised least squares; statsmodels' own fails where `covariance` is singular
    doubt = np.linalg.inv(sum(shared(task.x).T @ precision(task.x) @ shared(task.x) for task in tasks))

    def predict(known: Task, new: torch.Tensor) -> Normal:
        z, z_new, there = own(known.x), own(new), shared(new)
        gain = covariance @ z.T @ precision(known.x)
        mean = there @ effects + z_new @ gain @ (known.y.numpy()[:, 0] - shared(known.x) @ effects)
        left, away = covariance - gain @ z @ covariance, there - z_new @ gain @ shared(known.x)
        variance = np.einsum("ij,jk,ik->i", z_new, left, z_new) + np.einsum("ij,jk,ik->i", away, doubt, away) + noise
        if not (variance > 0).all():  # also where it is no number
            raise np.linalg.LinAlgError("its fit gives a variance that is not positive")
        return Normal(mean, np.sqrt(variance))

    return predict


METHODS: dict[str, Method] = {
    "bnnp": bnnp,
    "population curve": population,
    "hierarchical GP": hierarchical,
    "mixed model": mixed,
}
"""All methods by name; the first is compared with each of the others."""


def _kernel(shared: np.ndarray, own: np.ndarray | None = None) -> Any:
    """Functions that all tasks share, functions of each task's own, and noise."""
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    def part(lengths: Any) -> Any:
        bounds = [LENGTHS if length == 1 else (length, length) for length in lengths]
        return ConstantKernel(1.0, SIZES) * RBF(lengths, bounds)

    noise = WhiteKernel(0.1, SIZES)
    return part(shared) + noise if own is None else part(shared) + part(own) + noise


def _process(kernel: Any, x: np.ndarray, y: np.ndarray, *, optimise: bool = True) -> Any:
    from sklearn.gaussian_process import GaussianProcessRegressor

    how: Any = "fmin_l_bfgs_b" if optimise else None
    process = GaussianProcessRegressor(kernel, optimizer=how, alpha=1e-8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of hyperparameters at their bounds
        return process.fit(x, y)


def _formula(x: torch.Tensor, varying: Sequence[int]) -> str:
    values = [len(x[:, j].unique()) for j in range(x.shape[1])]
    terms = [
        f"cr(x{j}, df={min(SPLINE, count - 1)}, constraints='center')" if j in varying and count > 3 else f"x{j}"
        for j, count in enumerate(values)
    ]
    return " + ".join(["1", *terms])


def _with_ones(x: torch.Tensor) -> np.ndarray:
    return np.hstack([np.ones((len(x), 1)), x.numpy()])


def _independent(design: np.ndarray) -> list[int]:
    """The columns that are no sums of those before them, as inputs that are constant or repeat others are."""
    kept: list[int] = []
    for column in range(design.shape[1]):
        if np.linalg.matrix_rank(design[:, [*kept, column]], tol=RANK * len(design) ** 0.5) > len(kept):
            kept.append(column)
    return kept


def _data(x: torch.Tensor) -> dict[str, np.ndarray]:
    return {f"x{j}": x[:, j].numpy() for j in range(x.shape[1])}
