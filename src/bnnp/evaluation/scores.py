"""Scores of predictions: log densities, errors and calibration, each with its standard error over tasks."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from bnnp._core.random import Seed, as_integer, child
from bnnp._core.show import Shown
from bnnp._core.threads import in_parallel
from bnnp.evaluation.crps import crps_of_mixture
from bnnp.likelihoods.categorical import Categorical
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.prediction.base import Predictive
from bnnp.prediction.mixture import MixturePredictive
from bnnp.prediction.sampled import SampledPredictive
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.split import context_size, random_split
from bnnp.tasks.task import Split

if TYPE_CHECKING:
    import pandas as pd

COVERAGE_LEVELS = (0.5, 0.9, 0.95)
_SPLIT, _CONDITION, _OBSERVE = 1, 2, 3


class Posterior(Protocol):
    """Anything that predicts at new inputs."""

    def predict(self, x: Any) -> Predictive: ...


class Conditionable(Protocol):
    """Anything that predicts from a context: a model, a neural process, the oracle."""

    def condition(self, x: Any, y: Any, *, num_samples: int = ..., seed: Seed) -> Posterior: ...


@dataclass(frozen=True, eq=False, repr=False)
class Scores(Shown):
    """Scores of every task, with their means and standard errors. `scores["mae"]` is a mean over tasks.

    The names of log predictive densities say how they are estimated. `joint_lppd@1000` is from 1000 weight samples: its
    bias depends on this number, so compare only values with the same number. `joint_lppd@20 integrated` integrates the
    last layer given 20 samples of the hidden layers, `joint_lppd@integrated` given as many as each task needs, and
    `joint_lppd@exact` is exact. `scores["joint_lppd"]` finds each of them.

    Args:
        per_task: A table with one row per task and one column per score.

    Example:
        >>> import pandas as pd
        >>> scores = bnnp.Scores(pd.DataFrame({"mae": [0.25, 0.75]}, index=["first", "second"]))
        >>> scores["mae"], scores.standard_error("mae")
        (0.5, 0.25)
        >>> scores.names()
        ['mae']
    """

    per_task: "pd.DataFrame"

    def __getitem__(self, name: str) -> float:
        """The mean of a score over tasks."""
        return float(self._values(name).mean())

    def standard_error(self, name: str) -> float:
        """The standard error of a score's mean over tasks; NaN for a single task."""
        values = self._values(name)
        return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan

    def names(self) -> list[str]:
        """The names of all scores."""
        return [str(name) for name in self.per_task.columns]

    def table(self) -> "pd.DataFrame":
        """One row per score: mean and standard error over tasks."""
        import pandas as pd

        rows = {name: {"mean": self[name], "standard error": self.standard_error(name)} for name in self.names()}
        return pd.DataFrame.from_dict(rows, orient="index")

    def to_dict(self) -> dict[str, Any]:
        """All scores as plain values for JSON: None stands for a number that is not finite."""
        means = {
            name: {"mean": _plain(self[name]), "standard_error": _plain(self.standard_error(name))}
            for name in self.names()
        }
        per_task = {name: [_plain(value) for value in self._values(name)] for name in self.names()}
        labels = [str(label) for label in self.per_task.index]
        return {"tasks": len(labels), "scores": means, "task": labels, "per_task": per_task}

    def to_json(self) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=1, allow_nan=False)

    def __str__(self) -> str:
        return self.table().to_string(float_format=lambda value: f"{value:.4f}")

    def _values(self, name: str) -> np.ndarray:
        return np.asarray(self.per_task[self._column(name)], dtype=np.float64)

    def _column(self, name: str) -> str:
        for column in self.names():
            if column == name or column.split("@")[0] == name:
                return column
        raise KeyError(f"{name}: expected one of {', '.join(self.names())}")

    def _described(self) -> dict[str, object]:
        scores = {name: f"{self[name]:.4f} ± {self.standard_error(name):.4f}" for name in self.names()}
        return {"tasks": len(self.per_task), **scores}


def evaluate(
    model: Conditionable,
    tasks: TaskSource | Sequence[Split],
    *,
    num_samples: int | None = None,
    num_tasks: int = 64,
    context_share: float | tuple[float, float] = (0.1, 0.5),
    context_count: int | tuple[int, int] | None = None,
    noise: float | None = None,
    seed: Seed = 0,
) -> Scores:
    """Score a model's predictions of the targets of test tasks, in the user's units.

    Args:
        model: A model, a neural process, or the oracle.
        tasks: A source, of which `num_tasks` are drawn (all of a collection) and split at random, or ready splits.
        num_samples: Samples of a task's posterior; by default as many as the model chooses.
        num_tasks: Number of tasks that are drawn from a source.
        context_share: Range of the share of a task's points that is given as context.
        context_count: Range of the number of context points, instead of their share.
        noise: Score as if the observation noise had this standard deviation (Gaussian likelihood only).
        seed: Seed of splits, posterior samples and observations.

    Returns:
        The scores of every task, their means and standard errors.

    Raises:
        ValueError: If a number is not positive, there are no tasks, or `noise` does not fit the likelihood.

    Example:
        >>> scores = bnnp.evaluate(model, tasks, num_samples=20, seed=0)
        >>> len(scores.per_task)
        6
        >>> scores.names()[3:6]
        ['mae', 'rmse', 'crps']
    """
    import pandas as pd

    for name, value in (("num_samples", num_samples), ("num_tasks", num_tasks)):
        if value is not None and value < 1:
            raise ValueError(f"{name}: got {value}, expected a positive number")
    number = as_integer(seed)
    splits = _splits(tasks, num_tasks, context_share, context_count, child(number, _SPLIT))
    rows = in_parallel(lambda i: _score_one(model, splits[i], num_samples, noise, (number, i)), range(len(splits)))
    return Scores(pd.DataFrame(rows, index=[split.target.name or str(i) for i, split in enumerate(splits)]))


def _score_one(
    model: Conditionable, split: Split, num_samples: int | None, noise: float | None, keys: tuple[int, int]
) -> dict[str, float]:
    """All scores of one task. `keys` are the seed and the number of the task."""
    number, index = keys
    choices = {} if num_samples is None else {"num_samples": num_samples}
    posterior = model.condition(split.context.x, split.context.y, seed=child(number, _CONDITION, index), **choices)
    predictive = posterior.predict(split.target.x)
    if noise is not None:
        predictive = with_noise(predictive, noise)
    by_itself = num_samples is None and isinstance(predictive, MixturePredictive) and not predictive.components.exact
    estimator = "integrated" if by_itself else None
    return score(predictive, split.target.y, seed=child(number, _OBSERVE, index), estimator=estimator)


def score(predictive: Predictive, y: torch.Tensor, seed: Seed = 0, estimator: str | None = None) -> dict[str, float]:
    """All scores of one prediction: log densities (see `lppd`), errors, CRPS and coverage, or accuracy for classes.

    Args:
        predictive: The prediction.
        y: The true outputs (points, out), in the user's units.
        seed: Seed of the observations, where a score needs draws of them.
        estimator: The part after the `@` in the names of log densities; by default the result of `estimator_of`.

    Returns:
        The scores by name.

    Example:
        >>> import torch
        >>> found = bnnp.evaluation.score(post.predict(x), torch.as_tensor(y))
        >>> sorted(found)[:3]
        ['coverage_50', 'coverage_90', 'coverage_95']
    """
    terms = predictive.pointwise_log_prob(y)
    densities = {**lppd(terms), "joint": predictive.joint_log_prob(y) / len(y)}  # not all know it from single points
    name = estimator_of(predictive, len(terms)) if estimator is None else estimator
    result = {f"{kind}_lppd@{name}": value for kind, value in densities.items()}
    if isinstance(predictive.likelihood, Categorical):
        labels = y.squeeze(-1).numpy()
        return {**result, "accuracy": float((predictive.mean.argmax(-1) == labels).mean())}
    observed = y.numpy()
    error = predictive.mean - observed
    result["mae"] = float(np.abs(error).mean())
    result["rmse"] = float(np.sqrt(np.square(error).mean()))
    if isinstance(predictive, MixturePredictive):
        means, spreads = (values.reshape(len(values), -1).T for values in predictive.standard_components())
        result["crps"] = float(crps_of_mixture(observed.reshape(-1), means, spreads).mean())
        ranks = predictive.cdf(y)
    else:
        import scoringrules

        draws = predictive.observations(seed)
        # the estimator of probability-weighted moments is the unbiased one in K log K, not K^2
        crps = scoringrules.crps_ensemble(observed, draws, m_axis=0, estimator="pwm")
        result["crps"], ranks = float(np.mean(np.asarray(crps))), None
    for level in COVERAGE_LEVELS:
        ends = (1 - level) / 2, (1 + level) / 2
        if ranks is None:
            low, high = np.quantile(draws, ends, axis=0)
            inside = (observed >= low) & (observed <= high)
        else:
            inside = (ranks >= ends[0]) & (ranks <= ends[1])
        result[f"coverage_{round(100 * level)}"] = float(inside.mean())
    return result


def estimator_of(predictive: Predictive, samples: int) -> str:
    """How log-densities are estimated: from a number of samples, with the last layer integrated or not, or exactly."""
    if not isinstance(predictive, MixturePredictive):
        return str(samples)
    return "exact" if predictive.components.exact else f"{samples} integrated"


def lppd(terms: torch.Tensor) -> dict[str, float]:
    """The three kinds of log predictive density per point.

    - joint: `(1/n) log (1/K) sum_k prod_n p_kn`
    - marginal: `(1/n) sum_n log (1/K) sum_k p_kn`
    - pooled: `log 1/(K n) sum_k sum_n p_kn`

    Args:
        terms: Log-densities `log p_kn` (samples, points).

    Returns:
        The three values by name.

    Example:
        >>> import torch
        >>> bnnp.evaluation.lppd(torch.zeros(2, 3))
        {'joint': 0.0, 'marginal': 0.0, 'pooled': 0.0}
    """
    samples, points = terms.shape
    return {
        "joint": float((torch.logsumexp(terms.sum(1), 0) - math.log(samples)) / points),
        "marginal": float((torch.logsumexp(terms, 0) - math.log(samples)).mean()),
        "pooled": float(torch.logsumexp(terms.flatten(), 0) - math.log(samples * points)),
    }


def with_noise(predictive: Predictive, noise: float) -> Predictive:
    """The same prediction with another Gaussian observation noise.

    Args:
        predictive: The prediction.
        noise: Standard deviation of the new noise, in the user's units.

    Returns:
        The prediction of the same functions with the new noise.

    Raises:
        ValueError: If the likelihood is not Gaussian with one noise, or the functions depend on the model's noise.

    Example:
        >>> pred = post.predict(x_new)
        >>> other = bnnp.evaluation.with_noise(pred, 2.0)
        >>> bool((other.std >= 2.0).all()), bool((other.mean == pred.mean).all())
        (True, True)
    """
    if isinstance(predictive, MixturePredictive):
        return predictive.with_noise(noise)
    assert isinstance(predictive, SampledPredictive)
    if not isinstance(predictive.likelihood, Gaussian):
        raise ValueError(
            f"noise: got {noise}, but the likelihood is not Gaussian with a noise that is the same everywhere; "
            "leave it out"
        )
    if predictive.drawn is not None:
        raise ValueError(f"noise: got {noise}, but these functions were drawn with the model's own noise; leave it out")
    scaled = (noise / predictive.columns.y_scale).tolist()
    return SampledPredictive(predictive.outputs, Gaussian(scaled, learnable=False), predictive.columns)


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _splits(
    tasks: TaskSource | Sequence[Split], num_tasks: int, share: Any, count: Any, generator: torch.Generator
) -> Sequence[Split]:
    if not isinstance(tasks, TaskSource):
        if len(tasks) == 0:
            raise ValueError("tasks: got none, expected at least one")
        if not all(isinstance(split, Split) for split in tasks):
            raise ValueError("tasks: expected a task source, or a list of bnnp.tasks.Split(context, target)")
        return tasks
    if isinstance(tasks, Collection):
        if tasks.splits:
            return tasks.splits
        drawn = list(tasks.tasks)
    else:
        drawn = tasks.draw(num_tasks, generator)
    size = context_size(share, count)
    return [random_split(task, size, generator) for task in drawn]
