"""The exact predictive of a synthetic process, dressed as a model, so that the best possible is one more row."""

from dataclasses import dataclass
from typing import Any, Protocol

from bnnp._random import Seed, as_generator, as_integer
from bnnp.likelihoods import Gaussian
from bnnp.prediction import Predictive
from bnnp.tasks.exact import ExactPredictive
from bnnp.tasks.standardise import Standardiser
from bnnp.tasks.task import as_columns


class ExactSource(Protocol):
    def oracle(self, x: Any, y: Any, x_new: Any) -> ExactPredictive: ...


@dataclass(frozen=True)
class Oracle:
    """`bnnp.evaluate(Oracle(bnnp.tasks.sawtooth()), ...)` scores the exact posterior of the process."""

    source: ExactSource

    def __post_init__(self):
        if not hasattr(self.source, "oracle"):
            raise ValueError(f"source: got {type(self.source).__name__}, which has no exact predictive")

    def condition(self, x: Any, y: Any, *, num_samples: int = 1000, seed: Seed = 0) -> "OraclePosterior":
        return OraclePosterior(self.source, x, y, num_samples, as_integer(seed))


@dataclass(frozen=True)
class OraclePosterior:
    source: ExactSource
    x: Any
    y: Any
    num_samples: int
    seed: int

    def predict(self, x: Any) -> Predictive:
        inputs = as_columns(x, "x")
        exact = self.source.oracle(self.x, self.y, inputs)
        draws = exact.sample(self.num_samples, as_generator(self.seed))
        return Predictive(draws, Gaussian(exact.noise, learnable=False), Standardiser(inputs.shape[1], 1))
