"""Inference networks that see each point of a context by itself (paper, section 2.2)."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from bnnp._core.random import normal
from bnnp._core.shapes import Bool, Float, Tensor
from bnnp.inference_nets.base import Encoder
from bnnp.networks.base import run
from bnnp.networks.perceptron import Network


class PointEncoder(Encoder):
    """A multilayer perceptron that is applied to each point by itself.

    Args:
        in_size: Numbers that it sees of a point.
        out_size: Numbers that it makes for a point.
        hidden: Units of its hidden layers.
        activation: A name or a function of a tensor.
        generator: The generator of its starting weights.
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden: Sequence[int],
        activation: str | Callable[[Tensor], Tensor],
        generator: torch.Generator,
    ):
        super().__init__()
        self.network = Network((in_size, *hidden, out_size), activation)
        self.weights = nn.ParameterList(
            nn.Parameter(initial_weights(d, out, generator)) for d, out in self.network.weight_shapes
        )

    def forward(
        self, inputs: Float[Tensor, "*batch points features"], mask: Bool[Tensor, "tasks points"] | None = None
    ) -> Float[Tensor, "*batch points out"]:
        return self.network(list(self.weights), inputs)

    def from_first_layer(self, outputs: Float[Tensor, "*batch points d"]) -> Float[Tensor, "*batch points out"]:
        """The outputs of the network, given the outputs of its first layer."""
        weights = list(self.weights)
        program = self.network.program(outputs[..., :0])
        return run(program, lambda layer, features: features @ weights[layer] if layer else outputs)

    @torch.no_grad()
    def set_output_bias(self, columns: slice, value: float) -> None:
        self.weights[-1][-1, columns] = value


def side_by_side(
    encoders: Sequence[PointEncoder], inputs: Float[Tensor, "*batch points features"]
) -> list[Float[Tensor, "*batch points _out"]]:
    """The outputs of several networks at the same inputs; the networks differ in the number of outputs alone.

    Each hidden layer is one batched product for all networks, since a product of small matrices costs little more than
    the call. Networks whose weights differ between data sets are computed one after the other.

    Args:
        encoders: The networks.
        inputs: What they see of every point.
    """
    if any(e.weights[0].ndim > 2 for e in encoders):
        return [e(inputs) for e in encoders]
    network = encoders[0].network
    assert all(
        (e.network.sizes[:-1], e.network.activation) == (network.sizes[:-1], network.activation) for e in encoders
    )

    def outputs(layer: int, features: Tensor) -> Tensor:
        if layer == network.num_layers - 1:
            last.extend(of_one @ e.weights[layer] for of_one, e in zip(features.unbind(0), encoders, strict=True))
            return features
        return features @ torch.stack([e.weights[layer] for e in encoders])

    last: list[Tensor] = []
    points = inputs.flatten(0, -2)
    run(network.program(points.expand(len(encoders), *points.shape)), outputs)
    return [out.view(*inputs.shape[:-1], out.shape[-1]) for out in last]


def initial_weights(d: int, out: int, generator: torch.Generator) -> Float[Tensor, "d out"]:
    """Random weights of variance `1/(d - 1)` with bias 0; d counts the bias."""
    weights = normal((d, out), torch.empty(0), generator) / math.sqrt(d - 1)
    weights[-1] = 0
    return weights
