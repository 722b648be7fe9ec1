"""Samples of the weights of a network, and the predictions and functions that follow from them."""

import abc
from collections.abc import Callable, Sequence

import torch
from numpy.typing import ArrayLike

from bnnp._core.columns import Columns
from bnnp._core.memory import check_memory
from bnnp._core.shapes import Float, Tensor
from bnnp._core.show import Shown
from bnnp._core.threads import in_parallel
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.gaussian import at_points
from bnnp.likelihoods.shown import rows_of
from bnnp.networks.base import AnyNetwork
from bnnp.networks.functions import Function, View, functions_of
from bnnp.prediction.base import Predictive
from bnnp.prediction.sampled import SampledPredictive

NUMBERS_AT_ONCE = 2**22
"""Activations held at once while predicting: 16 MB in float32, which stays in the cache of a large processor."""


class WeightSamples(Shown, abc.ABC):
    """Samples of the weights of a network, with the predictions and functions that follow from them.

    Attributes:
        weights: The samples of every layer (samples, d_in + 1, d_out); the last row is the bias.
    """

    weights: list[Float[Tensor, "samples _d _out"]]

    @property
    @abc.abstractmethod
    def network(self) -> AnyNetwork:
        """The network."""

    @property
    @abc.abstractmethod
    def likelihood(self) -> Likelihood:
        """The likelihood of an observation."""

    @property
    @abc.abstractmethod
    def columns(self) -> Columns:
        """Names, shifts and scales of the user's columns."""

    @property
    def num_samples(self) -> int:
        """Number of weight samples."""
        return self.weights[0].shape[0]

    @abc.abstractmethod
    def predict(self, x: ArrayLike | Tensor) -> Predictive:
        """Predict at new inputs.

        Args:
            x: Inputs (points, in).

        Returns:
            The predictions: `mean`, `std`, `quantile([0.05, 0.95])` and more.

        Example:
            >>> post.predict(x_new).mean.shape
            (2, 1)
        """

    def predict_by_samples(self, x: ArrayLike | Tensor) -> SampledPredictive:
        """Predict with the samples of all layers: no layer is integrated.

        Args:
            x: Inputs (points, in).
        """
        inputs = self.prepared_inputs(x)
        outputs = network_outputs(self.network, self.weights, inputs)
        predictive = SampledPredictive(outputs, at_points(self.likelihood, inputs), self.columns)
        return predictive.at(self.columns.inputs(x))

    def prepared_inputs(self, x: ArrayLike | Tensor) -> Float[Tensor, "points x"]:
        """A user's inputs in the model's units and precision, with a warning where they are far from the training's."""
        inputs = self.columns.inputs(x)
        self.columns.warn_outside(inputs)
        return self.columns.standardise_x(inputs.to(self.weights[0].device)).to(self.weights[0])

    def functions(self) -> list[Function]:
        """Functions drawn from the posterior, one per weight sample.

        Returns:
            Functions from inputs (points, in) to outputs (points, out), in the user's units.

        Example:
            >>> post.functions()[0](x_new).shape
            (2, 1)
        """
        return functions_of(self.network, self.weights, View(self.columns, self.likelihood.mean))

    def _described(self) -> dict[str, object]:
        sizes = " - ".join(str(size) for size in self.network.sizes)
        return {"samples": self.num_samples, "network": sizes, **rows_of(self.columns, self.likelihood)}


def network_outputs(
    network: AnyNetwork, weights: Sequence[Float[Tensor, "samples _d _out"]], x: Float[Tensor, "points x"]
) -> Float[Tensor, "samples points y"]:
    """Outputs of every weight sample at every input, in chunks of points and samples that keep memory bounded."""
    widest = max(network.sizes) + 1
    check_room(weights[0].shape[0], len(x), network.sizes[-1])
    outputs = x.new_empty(weights[0].shape[0], len(x), network.sizes[-1])

    def compute(some: slice, here: slice) -> Tensor:
        return network([w[some] for w in weights], x[here])

    return fill_in_blocks(outputs, compute, widest, whole_rows=network.mixes_points)


def check_room(samples: int, points: int, numbers: int) -> None:
    """Refuse predictions that do not fit into memory.

    Args:
        samples: Samples of the weights.
        points: Inputs to predict at.
        numbers: Numbers for each sample and input.

    Raises:
        ValueError: If they do not fit.
    """
    cure = "predict at fewer inputs at a time, or give `condition` a smaller num_samples"
    check_memory(f"predictions of {samples} samples at {points} inputs", samples * points * numbers, cure)


def fill_in_blocks(
    outputs: Float[Tensor, "samples points out"],
    compute: Callable[[slice, slice], Tensor],
    numbers: int,
    *,
    whole_rows: bool = False,
) -> Float[Tensor, "samples points out"]:
    """Fill outputs block by block, so that memory stays bounded.

    Args:
        outputs: The array to fill.
        compute: Gives the outputs of some samples at some points.
        numbers: How many numbers are held at once for one sample at one point.
        whole_rows: Whether a block must have all points.
    """
    count, n, _ = outputs.shape
    points = max(1, n if whole_rows else min(n, NUMBERS_AT_ONCE // numbers))
    samples = max(1, NUMBERS_AT_ONCE // (numbers * points))

    def fill(corner: tuple[int, int]) -> None:
        some, here = (slice(start, start + size) for start, size in zip(corner, (samples, points), strict=True))
        outputs[some, here] = compute(some, here)

    with torch.no_grad():
        in_parallel(fill, [(k, i) for k in range(0, count, samples) for i in range(0, n, points)])
    return outputs
