"""Attention of queries to the points of a context, for networks whose weights are learned rather than inferred."""

import torch
from torch import nn

from bnnp._core.random import normal, starting_from
from bnnp._core.shapes import Bool, Float, Tensor
from bnnp.inference_nets.pointwise import PointEncoder


class Attention(nn.Module):
    """Multi-head attention to a set of tokens; a mask leaves some of them out."""

    def __init__(self, width: int, heads: int, generator: torch.Generator):
        super().__init__()
        if width < 1 or heads < 1 or width % heads:
            raise ValueError(f"hidden and heads: got a width of {width} and {heads} heads, expected heads to divide it")
        with starting_from(generator):
            self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(
        self,
        queries: Float[Tensor, "tasks points width"],
        keys: Float[Tensor, "tasks tokens width"],
        values: Float[Tensor, "tasks tokens width"],
        mask: Bool[Tensor, "tasks tokens"],
    ) -> Float[Tensor, "tasks points width"]:
        hidden = None if bool(mask.all()) else ~mask
        return self.attention(queries, keys, values, key_padding_mask=hidden, need_weights=False)[0]


class AttentionBlock(nn.Module):
    """Attention to tokens, then a perceptron on each query. Each normalises first and is added to the queries."""

    def __init__(self, width: int, heads: int, activation: str, generator: torch.Generator):
        super().__init__()
        self.attention = Attention(width, heads, generator)
        self.perceptron = PointEncoder(width, width, (2 * width,), activation, generator)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(
        self,
        queries: Float[Tensor, "tasks points width"],
        tokens: Float[Tensor, "tasks tokens width"],
        mask: Bool[Tensor, "tasks tokens"],
    ) -> Float[Tensor, "tasks points width"]:
        seen = self.norms[0](tokens)
        h = queries + self.attention(self.norms[0](queries), seen, seen, mask)
        return h + self.perceptron(self.norms[1](h))


class StartToken(nn.Module):
    """A learned token before those of a context, so that attention works on an empty context too."""

    def __init__(self, width: int, generator: torch.Generator):
        super().__init__()
        self.token = nn.Parameter(normal((width,), torch.empty(0), generator))

    def forward(self, tokens: Float[Tensor, "tasks points width"]) -> Float[Tensor, "tasks tokens width"]:
        return torch.cat([self.token.expand(len(tokens), 1, -1), tokens], dim=1)

    @staticmethod
    def mask(mask: Bool[Tensor, "tasks points"]) -> Bool[Tensor, "tasks tokens"]:
        return torch.cat([mask.new_ones(len(mask), 1), mask], dim=1)
