"""The exact predictive of a synthetic process in the form of a model, to compare scores with the best possible."""

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from bnnp._core.arrays import as_columns
from bnnp._core.random import Seed, as_generator, as_integer
from bnnp._core.shapes import Float, Tensor
from bnnp._core.show import Shown
from bnnp.evaluation.one_gaussian import as_prediction
from bnnp.prediction.mixture import MixturePredictive
from bnnp.tasks.exact import ExactPredictive


@runtime_checkable
class ExactSource(Protocol):
    """A source of tasks that knows its exact predictive."""

    def oracle(self, x: Any, y: Any, x_new: Any) -> ExactPredictive: ...


@dataclass(frozen=True)
class Oracle:
    """The exact posterior of a synthetic process, in the form of a model.

    `bnnp.evaluate` of it gives the best possible scores. Its densities are exact; `num_samples` is only the number of
    its function samples.

    Args:
        source: A source of tasks with an exact predictive, such as `bnnp.tasks.sawtooth()`.

    Raises:
        ValueError: If the source has no exact predictive.

    Example:
        >>> oracle = bnnp.Oracle(bnnp.tasks.sawtooth())
        >>> oracle.condition(x, y, num_samples=10).predict(x_new).samples.shape
        (10, 2, 1)
    """

    source: ExactSource

    def __post_init__(self):
        if not isinstance(self.source, ExactSource):
            raise ValueError(f"source: got {type(self.source).__name__}, which has no exact predictive")

    def condition(self, x: Any, y: Any, *, num_samples: int = 1000, seed: Seed = 0) -> "OraclePosterior":
        """Condition on one data set.

        Args:
            x: Inputs (points, in).
            y: Outputs (points, 1).
            num_samples: Number of function samples.
            seed: Seed of the function samples.

        Returns:
            The exact posterior, with `predict`.
        """
        return OraclePosterior(self.source, x, y, num_samples, as_integer(seed))


@dataclass(frozen=True, eq=False, repr=False)
class OraclePosterior(Shown):
    """The exact posterior given one data set.

    Attributes:
        source: The source of tasks.
        x: Inputs of the data set.
        y: Outputs of the data set.
        num_samples: Number of function samples.
        seed: Seed of the function samples.
    """

    source: ExactSource
    x: Any
    y: Any
    num_samples: int
    seed: int

    def predict(self, x: Any) -> MixturePredictive:
        """The exact predictions at new inputs (points, in)."""
        inputs = as_columns(x, "x")
        exact = self.source.oracle(self.x, self.y, inputs)
        variance = exact.covariance.diagonal().clamp(min=0).unsqueeze(1)
        components = _ExactGaussian(exact, self.num_samples, self.seed)
        return as_prediction(inputs, exact.mean, variance, exact.noise, components)

    def _described(self) -> dict[str, object]:
        return {"points": len(self.x), "samples": self.num_samples, "source": type(self.source).__name__}


@dataclass(frozen=True)
class _ExactGaussian:
    """The exact predictive as a mixture of one Gaussian."""

    process: ExactPredictive
    num_samples: int
    seed: int

    @property
    def exact(self) -> bool:
        return True

    def functions(self) -> Float[Tensor, "samples points 1"]:
        return self.process.sample(self.num_samples, as_generator(self.seed))

    def log_density(
        self, y: Float[Tensor, "points 1"], noise: Float[Tensor, "points 1"], *, together: bool
    ) -> Float[Tensor, "1 _groups"]:
        exact = ExactPredictive(self.process.mean, self.process.covariance, float(noise[0]) if len(noise) else 1.0)
        if together:
            return exact.mean.new_tensor([[exact.joint_log_prob(y)]])
        return exact.marginal_log_prob(y).unsqueeze(0)
