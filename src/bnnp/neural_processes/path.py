"""The deterministic path of an attentive neural process: attention from inputs to context points (Kim et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from bnnp._core.shapes import Bool, Float, Tensor
from bnnp.inference_nets.pointwise import PointEncoder
from bnnp.neural_processes.attention import Attention, StartToken


@dataclass(frozen=True)
class Codes:
    """Keys and values of the context points; the start token is the first."""

    keys: Float[Tensor, "tasks tokens width"]
    values: Float[Tensor, "tasks tokens width"]
    mask: Bool[Tensor, "tasks tokens"]


class DeterministicPath(nn.Module):
    """Attention from an input to the context points: keys come from their inputs, values from inputs and outputs."""

    def __init__(
        self, in_size: int, seen: int, hidden: Sequence[int], heads: int, activation: str, generator: torch.Generator
    ):
        super().__init__()
        width = hidden[-1]
        self.places = PointEncoder(in_size, width, hidden, activation, generator)
        self.contents = PointEncoder(seen, width, hidden, activation, generator)
        self.start_key, self.start_value = StartToken(width, generator), StartToken(width, generator)
        self.attention = Attention(width, heads, generator)

    def codes(
        self,
        x: Float[Tensor, "tasks points x"],
        points: Float[Tensor, "tasks points features"],
        mask: Bool[Tensor, "tasks points"],
    ) -> Codes:
        keys, values = self.start_key(self.places(x)), self.start_value(self.contents(points))
        return Codes(keys, values, StartToken.mask(mask))

    def forward(self, codes: Codes, x: Float[Tensor, "tasks points x"]) -> Float[Tensor, "tasks points width"]:
        return self.attention(self.places(x), codes.keys, codes.values, codes.mask)
