"""What an inference gives: samples of the weights for one data set, and how far to trust them."""

from dataclasses import dataclass

from numpy.typing import ArrayLike

from bnnp._core.columns import Columns
from bnnp._core.shapes import Float, Tensor
from bnnp.inference.base import Diagnostics
from bnnp.likelihoods.base import Likelihood
from bnnp.networks.base import AnyNetwork
from bnnp.prediction.sampled import SampledPredictive
from bnnp.prediction.weights import WeightSamples


class InferenceWarning(UserWarning):
    """A warning that the result of an inference may be wrong; `post.diagnostics.warnings` holds the reasons.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     short = bnnp.infer(model, x, y, method="sgld", num_samples=4, chains=2, warmup=0)
        >>> caught[0].category.__name__
        'InferenceWarning'
    """


@dataclass(frozen=True, eq=False, repr=False)
class InferredPosterior(WeightSamples):
    """Samples of the weights given one data set. `bnnp.infer` makes it.

    It has `predict` and `functions`, like the posterior of a BNNP.

    Attributes:
        of_network: The network whose weights these are.
        of_likelihood: The likelihood, with its noise.
        of_columns: Names, shifts and scales of the user's inputs and outputs.
        weights: Samples of every layer (samples, d_in + 1, d_out); the last row is the bias.
        chains: Number of Markov chains that the samples come from, chain after chain; 1 for other methods.
        diagnostics: How the inference went.

    Example:
        >>> found = bnnp.infer(model, x, y, method="ensemble", num_samples=3, steps=5)
        >>> found.num_samples, found.predict(x_new).mean.shape
        (3, (2, 1))
        >>> [f(x_new).shape for f in found.functions()]
        [(2, 1), (2, 1), (2, 1)]
    """

    of_network: AnyNetwork
    of_likelihood: Likelihood
    of_columns: Columns
    weights: list[Float[Tensor, "samples _d _out"]]
    chains: int
    diagnostics: Diagnostics

    @property
    def network(self) -> AnyNetwork:
        return self.of_network

    @property
    def likelihood(self) -> Likelihood:
        return self.of_likelihood

    @property
    def columns(self) -> Columns:
        return self.of_columns

    def predict(self, x: ArrayLike | Tensor) -> SampledPredictive:
        """Predictions at new inputs, from the functions of all weight samples.

        Args:
            x: Inputs (points, in).

        Returns:
            The predictions, in the user's units.
        """
        return self.predict_by_samples(x)

    def _described(self) -> dict[str, object]:
        return {**super()._described(), "chains": self.chains, "warnings": len(self.diagnostics.warnings)}
