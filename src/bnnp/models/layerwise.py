"""The walk through the layers of a network: features enter a layer, an update makes its weights, the next follows.

Whole contexts, contexts in chunks, streamed contexts, inducing points and the density of given weights differ in how
one layer is updated. The update is an argument of `through_layers`; the walk itself is written here alone:

    update                              a layer's weights come from
    `bnnp.models.inferring.FromPoints`  pseudo-observations of a whole context, or of one chunk with sums over others
    `bnnp.models.inferring.DensityOf`   given weights, whose density under the posterior is wanted
    `bnnp.models.streaming.FromStream`  sums over chunks that are read one after the other
    `bnnp.models.online.RenewedLast`    given weights, but for the last layer's, which sees more points
    `bnnp.inference.vi.inducing.FromInducing`   pseudo-observations of invented points
    `Given`                             given weights, which is a forward pass
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch

from bnnp._core.shapes import Bool, Float, Tensor
from bnnp.networks.base import AnyNetwork, advance
from bnnp.numerics.gaussian import NaturalParameters, UnitPrior
from bnnp.numerics.solve import FactorisationError
from bnnp.priors.base import Prior


@dataclass(frozen=True)
class Updated:
    """The result of an update of one layer.

    Attributes:
        weights: Samples of the layer's weights.
        whiten: Makes their whitened form, for priors whose later layers depend on it.
        kl: KL of the layer's posterior to its prior, given the samples of the layers before.
        log_density: Log-density of the layer's posterior at the weights.
        sums: The sums over all points that the layer was conditioned on, where they are kept.
    """

    weights: Float[Tensor, "tasks _samples d out"]
    whiten: Callable[[], Tensor]
    kl: Float[Tensor, "tasks _kl_samples"] | None = None
    log_density: Float[Tensor, "tasks _density_samples"] | None = None
    sums: NaturalParameters | None = None

    @cached_property
    def whitened(self) -> Float[Tensor, "tasks _samples units d"]:
        return self.whiten()


@dataclass(frozen=True)
class Turn:
    """The state of a walk at the layer that is next to be updated. After all layers, the end of the walk.

    Attributes:
        index: Number of the layer, from 0.
        of: The prior over the weights of all layers.
        outputs: Outputs of the layer before at the points of the walk; for the first layer, their inputs.
        features: Features that enter this layer; after the last layer, the outputs of the network.
        done: The results for the layers before.
    """

    index: int
    of: Prior
    outputs: Float[Tensor, "tasks _samples points _h"]
    features: Float[Tensor, "tasks _samples points _d"]
    done: tuple[Updated, ...] = ()

    @cached_property
    def prior(self) -> UnitPrior:
        """The layer's prior, given the weights of the layers before."""
        earlier = [layer.whitened.to(self.of.dtype) for layer in self.done] if self.of.couples_layers else []
        return self.of.layer(self.index, earlier)

    @property
    def weights(self) -> list[Float[Tensor, "tasks _samples _d _out"]]:
        """The weights of the layers before."""
        return [layer.weights for layer in self.done]

    def at_first(self, points: int) -> Turn:
        """The same turn with the first `points` points only."""
        return replace(self, outputs=self.outputs[:, :, :points], features=self.features[:, :, :points])


class LayerUpdate(Protocol):
    """How a layer is updated when its turn comes."""

    def __call__(self, turn: Turn) -> Updated: ...


def through_layers(
    network: AnyNetwork,
    prior: Prior,
    x: Float[Tensor, "tasks points x"],
    update: LayerUpdate,
    *,
    mask: Bool[Tensor, "tasks points"] | None = None,
    count: int | None = None,
    apart: bool = False,
) -> Turn:
    """Go through the layers of a network, each updated given the weights of those before.

    Args:
        network: The network.
        prior: The prior over its weights.
        x: Inputs of the points that go through the network, in the units of the model; there may be none.
        update: How a layer is updated.
        mask: Which points are present, for networks whose points see each other.
        count: How many layers to go through; all of them by default.
        apart: Whether to make products task by task, so that no bit of a task depends on its place in the batch.

    Returns:
        The turn of the layer after them, with the results for all layers before.

    Raises:
        FactorisationError: If an update fails; the message names the layer.
    """
    h = x.unsqueeze(1)
    program = network.program(h, None if mask is None else mask.unsqueeze(1))
    turn = Turn(0, prior, h, next(program))
    for index in range(network.num_layers if count is None else count):
        try:
            new = update(turn)
        except FactorisationError as error:
            message = f"layer {index + 1}, task {error.task} of the batch: {error}"
            raise FactorisationError(message, error.task) from None
        outputs = _outputs_apart(turn.features, new.weights) if apart else turn.features @ new.weights
        turn = Turn(index + 1, prior, outputs, advance(program, outputs), (*turn.done, new))
    return turn


def _outputs_apart(features: Tensor, weights: Tensor) -> Float[Tensor, "tasks _samples points _out"]:
    """Products of copies: the last bits of a product of small matrices depend on where in memory they begin."""
    both = zip(features.split(1), weights.split(1), strict=True)
    return torch.cat([here.clone() @ w.clone() for here, w in both])


@dataclass(frozen=True)
class Given:
    """An update that takes given weights.

    Attributes:
        weights: The weights of every layer.
    """

    weights: Sequence[Float[Tensor, "tasks _samples _d _out"]]

    def __call__(self, turn: Turn) -> Updated:
        w = self.weights[turn.index]
        return Updated(w, lambda: turn.prior.whiten(turn.of.to_units(w)))


def arrive(
    network: AnyNetwork,
    prior: Prior,
    x: Float[Tensor, "tasks points x"],
    weights: Sequence[Float[Tensor, "tasks _samples _d _out"]],
    mask: Bool[Tensor, "tasks points"] | None = None,
) -> Turn:
    """The turn of the layer after those whose weights are given (paper, Algorithm 2, partial forward pass).

    Args:
        network: The network.
        prior: The prior over its weights.
        x: Inputs of the points that go through the network, in the units of the model.
        weights: The weights of the first layers.
        mask: Which points are present, for networks whose points see each other.
    """
    return through_layers(network, prior, x, Given(weights), mask=mask, count=len(weights))
