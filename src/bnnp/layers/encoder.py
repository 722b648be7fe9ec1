"""Inference networks: from the points of a context to pseudo-observations of a layer (paper, section 2.2)."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from bnnp._random import normal
from bnnp._shapes import Float, Tensor
from bnnp.network import Network


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

    def forward(self, inputs: Float[Tensor, "*batch points features"]) -> Float[Tensor, "*batch points out"]:
        return self.network(list(self.weights), inputs)

    @torch.no_grad()
    def set_output_bias(self, columns: slice, value: float) -> None:
        self.weights[-1][-1, columns] = value


def initial_weights(d: int, out: int, generator: torch.Generator) -> Float[Tensor, "d out"]:
    """Weights of variance `1/(d - 1)` and no bias, where d counts the bias."""
    weights = normal((d, out), torch.empty(0), generator) / math.sqrt(d - 1)
    weights[-1] = 0
    return weights
