"""Simple methods to compare a model with, in the form of a model: `bnnp.evaluate` scores them like any other.

Each is a Gaussian at every new point, made from the training tasks by averages alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from bnnp._core.arrays import as_columns
from bnnp._core.random import Seed, as_generator, normal
from bnnp._core.shapes import Float, Tensor
from bnnp.evaluation.one_gaussian import as_prediction
from bnnp.prediction.mixture import MixturePredictive
from bnnp.tasks.task import Task, stacked

LEAST_SPREAD = 1e-6
"""The least standard deviation, as a share of that of all training outputs."""
Moments = tuple[Float[Tensor, "points y"], Float[Tensor, "points y"]]


class SimpleMethod(Protocol):
    """What predicts a mean and a variance for every new point."""

    def moments(self, x: Tensor, y: Tensor, x_new: Tensor) -> Moments: ...


@dataclass(frozen=True, eq=False)
class Simple:
    """A simple method in the form of a model.

    Attributes:
        method: What it predicts.
    """

    method: SimpleMethod

    def condition(self, x: Any, y: Any, *, num_samples: int = 1000, seed: Seed = 0) -> "SimplePosterior":
        """The predictions given the known points of one data set."""
        return SimplePosterior(self.method, as_columns(x, "x"), as_columns(y, "y"), num_samples, seed)


@dataclass(frozen=True, eq=False)
class SimplePosterior:
    """The predictions of a simple method for one data set."""

    method: SimpleMethod
    x: Tensor
    y: Tensor
    num_samples: int
    seed: Seed

    def predict(self, x: Any) -> MixturePredictive:
        """A Gaussian at every new point."""
        inputs = as_columns(x, "x")
        mean, variance = self.method.moments(self.x, self.y, inputs)
        return as_prediction(inputs, mean, variance, 0.0, _Independent(mean, variance, self.num_samples, self.seed))


@dataclass(frozen=True, eq=False)
class _Independent:
    """Gaussians that are independent at all points."""

    mean: Float[Tensor, "points y"]
    variance: Float[Tensor, "points y"]
    num_samples: int
    seed: Seed

    @property
    def exact(self) -> bool:
        return True

    def functions(self) -> Float[Tensor, "samples points y"]:
        draws = normal((self.num_samples, *self.mean.shape), self.mean, as_generator(self.seed))
        return self.mean + self.variance.sqrt() * draws

    def log_density(self, y: Tensor, noise: Tensor, *, together: bool) -> Float[Tensor, "1 _groups"]:
        deviation = (self.variance + noise.square()).sqrt()
        terms = torch.distributions.Normal(self.mean, deviation).log_prob(y).sum(-1)
        return terms.sum().view(1, 1) if together else terms[None]


@dataclass(frozen=True, eq=False)
class MeanOfAll:
    """The mean and the standard deviation of all training outputs, everywhere."""

    tasks: Sequence[Task]

    def moments(self, x: Tensor, y: Tensor, x_new: Tensor) -> Moments:
        values = stacked(self.tasks)[1]
        variance = values.var(0) if len(values) > 1 else torch.ones_like(values[0])
        return values.mean(0).expand(len(x_new), -1), variance.clamp(min=1e-300).expand(len(x_new), -1)


@dataclass(frozen=True, eq=False)
class OwnMean:
    """The mean of the known points, shrunk towards that of all: a random intercept, with variances by moments."""

    tasks: Sequence[Task]
    within: Tensor = field(init=False)
    between: Tensor = field(init=False)

    def __post_init__(self):
        rest = torch.cat([task.y - task.y.mean(0) for task in self.tasks])
        means, floor = torch.stack([task.y.mean(0) for task in self.tasks]), _floor(self.tasks)
        object.__setattr__(self, "within", (rest.square().sum(0) / max(1, len(rest) - len(means))).clamp(min=floor))
        object.__setattr__(self, "between", means.var(0, correction=0).clamp(min=floor))

    def moments(self, x: Tensor, y: Tensor, x_new: Tensor) -> Moments:
        centre = torch.stack([task.y.mean(0) for task in self.tasks]).mean(0)
        precision = 1 / self.between + len(y) / self.within
        mean = (centre / self.between + y.sum(0) / self.within) / precision
        return mean.expand(len(x_new), -1), (1 / precision + self.within).expand(len(x_new), -1)


@dataclass(frozen=True, eq=False)
class CurveOfAll:
    """The mean and the standard deviation of the nearest training points of all tasks: one curve for everybody."""

    tasks: Sequence[Task]

    def moments(self, x: Tensor, y: Tensor, x_new: Tensor) -> Moments:
        inputs, outputs = stacked(self.tasks)
        scale = inputs.std(0).clamp(min=1e-300)
        count = min(len(inputs), max(5, round(len(inputs) ** 0.5)))
        near = torch.cdist(x_new / scale, inputs / scale).topk(count, largest=False).indices
        values = outputs[near]
        return values.mean(1), values.var(1).clamp(min=_floor(self.tasks))


def _floor(tasks: Sequence[Task]) -> Tensor:
    return (LEAST_SPREAD * stacked(tasks)[1].std(0)).square().clamp(min=1e-300)


SIMPLE = {
    "the mean of all": MeanOfAll,
    "each one's own mean": OwnMean,
    "one curve for all": CurveOfAll,
}
"""The simple methods by their names."""
