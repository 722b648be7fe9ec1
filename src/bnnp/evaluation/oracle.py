"""The exact predictive of a synthetic process, dressed as a model, so that the best possible is one more row."""

from dataclasses import dataclass
from typing import Any, Protocol

from bnnp._core.arrays import as_columns
from bnnp._core.columns import Columns
from bnnp._core.random import Seed, as_generator, as_integer
from bnnp._core.shapes import Float, Tensor
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.prediction.mixture import MixturePredictive
from bnnp.tasks.exact import ExactPredictive


class ExactSource(Protocol):
    def oracle(self, x: Any, y: Any, x_new: Any) -> ExactPredictive: ...


@dataclass(frozen=True)
class Oracle:
    """`bnnp.evaluate(Oracle(bnnp.tasks.sawtooth()), ...)` scores the exact posterior of the process.

    Its densities are exact; `num_samples` is the number of its functions alone.
    """

    source: ExactSource

    def __post_init__(self):
        if not hasattr(self.source, "oracle"):
            raise ValueError(f"source: got {type(self.source).__name__}, which has no exact predictive")

    def condition(self, x: Any, y: Any, *, num_samples: int = 1000, seed: Seed = 0) -> "OraclePosterior":
        return OraclePosterior(self.source, x, y, num_samples, as_integer(seed))


@dataclass(frozen=True, eq=False)
class OraclePosterior:
    source: ExactSource
    x: Any
    y: Any
    num_samples: int
    seed: int

    def predict(self, x: Any) -> MixturePredictive:
        inputs = as_columns(x, "x")
        exact = self.source.oracle(self.x, self.y, inputs)
        means, variances = exact.mean.unsqueeze(0), exact.covariance.diagonal().clamp(min=0).view(1, -1, 1)
        likelihood, units = Gaussian(exact.noise, learnable=False), Columns(inputs.shape[1], 1)
        noise = means.new_full(means.shape[1:], exact.noise)
        components = _ExactGaussian(exact, self.num_samples, self.seed)
        return MixturePredictive(means, variances, noise, components, likelihood, units)


@dataclass(frozen=True)
class _ExactGaussian:
    """The one Gaussian that the exact predictive is."""

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
