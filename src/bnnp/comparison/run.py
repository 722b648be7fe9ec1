"""Data sets that are left out, predicted by a BNNP and by simple methods."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bnnp._core.checks import check_count, check_flag, check_positive
from bnnp._core.optional import optional_module
from bnnp._core.progress import ProgressBar
from bnnp._core.random import as_integer
from bnnp._core.show import Shown
from bnnp.comparison.methods import METHODS, Method, Normal, Predict
from bnnp.comparison.plan import Plan
from bnnp.evaluation.score import score
from bnnp.plots.figure import make_figure
from bnnp.prediction import ExtrapolationWarning
from bnnp.prediction.base import Predictive
from bnnp.tasks.source import Collection
from bnnp.tasks.tables import from_table
from bnnp.tasks.task import Split, Task

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SCORES = ("lppd", "crps", "rmse", "coverage")
REAL = 2.0
"""A difference of so many standard errors counts as real."""
PACKAGES = ("sklearn", "statsmodels")
"""What the simple methods are made of."""
CONTEXTS = 4
"""Contexts of each task that is left out."""


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Shown):
    """Scores of left-out data sets by several methods, in units of the training outputs' standard deviation.

    Attributes:
        per_task: One row per method and data set: log-density per point (`lppd`, larger is better), CRPS and RMSE
            (smaller is better), and the share of points within 90 % intervals (`coverage`).
        seconds: The time of each method, for all folds.

    Example:
        >>> import pandas as pd
        >>> rows = pd.DataFrame({"method": ["bnnp", "other"] * 2, "task": list("aabb"), "lppd": [1.0, 0.2, 2.0, 0.8]})
        >>> rows = rows.assign(crps=0.1, rmse=0.1, coverage=0.9)
        >>> bnnp.Comparison(rows, {"bnnp": 2.0, "other": 1.0}).table()["lppd"].tolist()
        [1.5, 0.5]
    """

    per_task: pd.DataFrame
    seconds: dict[str, float]

    def table(self) -> pd.DataFrame:
        """Means over data sets with their standard errors, by method, and the time."""
        groups: Any = self.per_task.groupby("method", sort=False)[list(SCORES)]
        errors = groups.sem().add_suffix("_error")
        return groups.mean().join(errors).assign(seconds=self.seconds)

    def differences(self) -> pd.DataFrame:
        """What the first method gains on each other one, with standard errors over data sets, and what is real.

        A gain is positive where the first method is better. It is called real if it is more than two standard errors.
        """
        import pandas as pd

        names, rows = list(self.seconds), []
        wide = {name: part.set_index("task") for name, part in self.per_task.groupby("method")}
        for other in names[1:]:
            for kind, sign in (("lppd", 1), ("crps", -1), ("rmse", -1)):
                gain: Any = sign * (wide[names[0]][kind] - wide[other][kind])
                mean, error = float(gain.mean()), float(gain.sem())
                rows.append({"than": other, "in": kind, "gain": mean, "error": error, "real": abs(mean) > REAL * error})
        return pd.DataFrame(rows)

    def figure(self) -> Figure:
        """The means with their standard errors, one panel per score."""
        table, figure = self.table(), make_figure((10.0, 0.6 + 0.35 * len(self.seconds)))
        panels = figure.subplots(1, len(SCORES), sharey=True)
        for panel, kind in zip(panels, SCORES, strict=True):
            panel.errorbar(table[kind], range(len(table)), xerr=table[f"{kind}_error"], fmt="o")
            panel.set_xlabel(kind)
        panels[0].set_yticks(range(len(table)), list(table.index))
        panels[0].invert_yaxis()
        return figure

    def _described(self) -> dict[str, object]:
        means = self.table()["lppd"]
        return {"data sets": self.per_task["task"].nunique(), **{f"lppd of {n}": f"{v:.3f}" for n, v in means.items()}}


def compare(
    table: Any,
    *,
    task: str,
    x: str | Sequence[str],
    y: str,
    folds: int = 4,
    minutes: float = 10.0,
    progress: bool = True,
    seed: int = 0,
) -> Comparison:
    """Compare a BNNP with simple methods on data sets that are left out, by the same folds and contexts.

    A third of the points of each data set that is left out is known, four times anew. The methods are a population
    curve and a hierarchical Gaussian process by scikit-learn, and a linear mixed model with splines by statsmodels.

    Args:
        table: A data frame, the path of a file, or what `bnnp.tasks.read_table` gives.
        task: The column that names the data set of each row.
        x: Input columns.
        y: The output column, of numbers.
        folds: Number of folds.
        minutes: Time per fold after which no new round of training begins.
        progress: Whether to show a progress bar.
        seed: Seed of the folds, the contexts and the training.

    Returns:
        The scores of every method.

    Raises:
        ImportError: If scikit-learn or statsmodels is not installed.
        ValueError: If the table does not fit, or has fewer data sets than folds.

    Example:
        >>> import pandas as pd
        >>> two = pd.DataFrame({"who": list("aabb"), "time": [0, 1, 0, 1], "conc": [1.0, 2.0, 1.5, 2.5]})
        >>> bnnp.compare(two, task="who", x="time", y="conc", folds=3)
        Traceback (most recent call last):
        ValueError: folds: got 3 for 2 data sets, expected at most as many folds
    """
    tasks = from_table(table, task=task, x=x, y=y, min_points=1)
    return compare_tasks(tasks, folds=folds, minutes=minutes, progress=progress, seed=seed)


def compare_tasks(tasks: Collection, *, folds: int, minutes: float, progress: bool, seed: int) -> Comparison:
    """The comparison of `compare`, of data sets that were read before.

    Raises:
        ImportError: If scikit-learn or statsmodels is not installed.
        ValueError: If an argument is out of range, outputs are not one column of numbers, or there are fewer data sets
            than folds.
    """
    check_count("folds", folds, "whole number of folds, as in 4")
    check_positive("minutes", minutes, "as in 10.0")
    check_flag("progress", progress)
    if tasks.out_size != 1 or tasks.has_labels:
        raise ValueError(f"y: got {', '.join(tasks.y_names)}, expected one column of numbers")
    for name in PACKAGES:
        optional_module(name, "bnnp compare", "tables")
    plan = Plan.drawn(tasks, folds, CONTEXTS, as_integer(seed))
    return compared(tasks, plan, METHODS, minutes=minutes, progress=progress, seed=as_integer(seed))


def compared(
    tasks: Collection, plan: Plan, methods: Mapping[str, Method], *, minutes: float, progress: bool, seed: int
) -> Comparison:
    """The scores of methods by a plan.

    Args:
        tasks: The data sets.
        plan: Folds and contexts.
        methods: The methods by name.
        minutes: Time per fold after which no new round of training begins.
        progress: Whether to show a progress bar.
        seed: Seed of the training.
    """
    import pandas as pd

    rows, seconds = [], dict.fromkeys(methods, 0.0)
    with ProgressBar(len(plan.folds) * len(methods), enabled=progress, label="comparing") as bar:
        for fold in range(len(plan.folds)):
            known, splits = plan.parts(tasks, fold)
            for name, method in methods.items():
                bar.advance()
                if name not in seconds:
                    continue
                began = time.perf_counter()
                try:
                    rows += _of_fold(name, fold, method(known, minutes, seed), splits)
                    seconds[name] += time.perf_counter() - began
                except np.linalg.LinAlgError as error:
                    warnings.warn(f"{name}: it cannot be fitted to fold {fold + 1} ({error}); left out", stacklevel=3)
                    del seconds[name]
    groups: Any = pd.DataFrame([row for row in rows if row["method"] in seconds]).groupby(
        ["method", "fold", "task"], sort=False
    )[list(SCORES)]
    return Comparison(groups.mean().reset_index(), seconds)


def _of_fold(name: str, fold: int, predict: Predict, splits: Sequence[Split]) -> list[dict[str, Any]]:
    """The scores of a method, one row per split."""
    return [
        {
            **{"method": name, "fold": fold, "task": split.target.name},
            **_scores(_quietly(predict, split.context, split.target), split.target),
        }
        for split in splits
    ]


def _quietly(predict: Any, known: Task, target: Task) -> Normal | Predictive:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        return predict(known, target.x)


def _scores(found: Normal | Predictive, target: Task) -> dict[str, float]:
    if isinstance(found, Predictive):
        own = score(found, target.y, estimator="all")
        names = ("marginal_lppd@all", "crps", "rmse", "coverage_90")
        return {kind: own[name] for kind, name in zip(SCORES, names, strict=True)}
    import scoringrules
    from scipy.stats import norm

    y = target.y.numpy()[:, 0]
    low, high = norm.interval(0.9, found.mean, found.std)
    return {
        "lppd": float(norm.logpdf(y, found.mean, found.std).mean()),
        "crps": float(np.mean(np.asarray(scoringrules.crps_normal(y, found.mean, found.std)))),
        "rmse": float(np.sqrt(np.square(found.mean - y).mean())),
        "coverage": float(((low < y) & (y < high)).mean()),
    }
