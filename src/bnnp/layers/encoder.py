"""Inference networks: from the points of a context to pseudo-observations of a layer (paper, sections 2.2 and 2.6)."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from bnnp._random import normal, starting_from
from bnnp._shapes import Bool, Float, Tensor
from bnnp.network import Network, run


class PointEncoder(nn.Module):
    """A multilayer perceptron applied to each point by itself."""

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
        """The rest of the network, given the outputs of its first layer: a sum whose terms may share axes."""
        weights = list(self.weights)
        program = self.network.program(outputs[..., :0])
        return run(program, lambda layer, features: features @ weights[layer] if layer else outputs)

    @torch.no_grad()
    def set_output_bias(self, columns: slice, value: float) -> None:
        self.weights[-1][-1, columns] = value

    @torch.no_grad()
    def scale_output(self, column: int, factor: float) -> None:
        self.weights[-1][:, column] *= factor


def side_by_side(
    encoders: Sequence[PointEncoder], inputs: Float[Tensor, "*batch points features"]
) -> list[Float[Tensor, "*batch points _out"]]:
    """What several networks make of the same inputs, if they differ in the number of outputs alone.

    Their hidden layers are one product each: a product of small matrices costs little more than the call. Networks
    with weights of their own for every data set go one after the other.
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


class SetEncoder(nn.Module):
    """A transformer over all points of a context, without positions: points attend to each other.

    hidden: one block of attention and a perceptron for each entry, all of the same width.
    """

    def __init__(self, in_size: int, out_size: int, hidden: Sequence[int], heads: int, generator: torch.Generator):
        super().__init__()
        width = hidden[0] if hidden else 0
        if set(hidden) != {width} or width < 1 or width % heads:
            raise ValueError(
                f"inference_hidden: got {tuple(hidden)}, expected equal sizes that {heads} heads of attention divide"
            )
        with starting_from(generator):
            self.inputs = nn.Linear(in_size, width)
            block = nn.TransformerEncoderLayer(
                width, heads, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.blocks = nn.TransformerEncoder(block, len(hidden), nn.LayerNorm(width), enable_nested_tensor=False)
            self.outputs = nn.Linear(width, out_size)
            for layer in self.blocks.layers:  # they are copies of one block
                for parameter in layer.parameters():
                    if parameter.ndim > 1:
                        nn.init.xavier_uniform_(parameter)
        self.heads = heads

    def forward(
        self, inputs: Float[Tensor, "tasks samples points features"], mask: Bool[Tensor, "tasks points"] | None = None
    ) -> Float[Tensor, "tasks samples points out"]:
        tasks, samples, points, _ = inputs.shape
        if points == 0:
            return inputs.new_zeros(tasks, samples, 0, self.outputs.out_features)
        hidden = None
        if mask is not None and not bool(mask.all()):
            # absent points are seen by nobody but themselves: attention to nothing at all would not be a number
            visible = mask.unsqueeze(-2) | torch.eye(points, dtype=torch.bool, device=mask.device)
            hidden = ~visible.repeat_interleave(samples * self.heads, dim=0)
        out = self.blocks(self.inputs(inputs.flatten(0, 1)), mask=hidden)
        return self.outputs(out).view(tasks, samples, points, -1)

    @torch.no_grad()
    def set_output_bias(self, columns: slice, value: float) -> None:
        self.outputs.bias[columns] = value

    @torch.no_grad()
    def scale_output(self, column: int, factor: float) -> None:
        self.outputs.weight[column] *= factor
        self.outputs.bias[column] *= factor


def initial_weights(d: int, out: int, generator: torch.Generator) -> Float[Tensor, "d out"]:
    """Weights of variance `1/(d - 1)` and no bias, where d counts the bias."""
    weights = normal((d, out), torch.empty(0), generator) / math.sqrt(d - 1)
    weights[-1] = 0
    return weights
