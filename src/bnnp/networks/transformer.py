"""A transformer as a network whose linear layers have weights to be inferred (paper, App. E.1)."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from bnnp._core.shapes import Bool, Float, Tensor
from bnnp.networks.base import Program, activation_by_name, run, with_bias


class AttentionNetwork(nn.Module):
    """An input layer, blocks of self-attention, and a linear head. All points are processed together.

    Each block has queries, keys, values and an output layer of attention, a residual connection and a layer norm; then
    a perceptron of two layers, a residual connection and a layer norm. The layer norms have parameters of their own,
    which are learned but not inferred.

    Args:
        in_size: Number of inputs.
        out_size: Number of outputs.
        width: Features of each point between blocks; the heads must divide it.
        blocks: Number of blocks.
        heads: Heads of attention in each block.
        mlp: Hidden units of each block's perceptron.
        activation: Name of the perceptron's activation.

    Raises:
        ValueError: If a number is not positive, the heads do not divide the width, or no activation has this name.
    """

    def __init__(
        self, in_size: int, out_size: int, width: int, blocks: int, heads: int, mlp: int, activation: str = "relu"
    ):
        super().__init__()
        if width < 1 or heads < 1 or width % heads:
            raise ValueError(f"width and heads: got {width} and {heads}, expected a width that the heads divide")
        if min(in_size, out_size, blocks, mlp) < 1:
            raise ValueError(
                f"in_size, out_size, blocks, mlp: got {in_size}, {out_size}, {blocks}, {mlp}, expected positive numbers"
            )
        self.heads = heads
        self.blocks = blocks
        self.activation = activation
        activation_by_name(activation)
        block = [(width, width)] * 4 + [(width, mlp), (mlp, width)]
        layers = [(in_size, width), *block * blocks, (width, out_size)]
        self.weight_shapes = [(size_in + 1, size_out) for size_in, size_out in layers]
        self.sizes = (in_size, *(out for _, out in self.weight_shapes))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * blocks))

    @property
    def mixes_points(self) -> bool:
        """Whether outputs at one input depend on the other inputs: always."""
        return True

    @property
    def num_layers(self) -> int:
        """Number of linear layers."""
        return len(self.weight_shapes)

    @property
    def num_weights(self) -> int:
        """Number of weights of all linear layers, biases included."""
        return sum(d * out for d, out in self.weight_shapes)

    def program(
        self, x: Float[Tensor, "*batch points x"], mask: Bool[Tensor, "*#batch points"] | None = None
    ) -> Program:
        """The network, one linear layer after the other.

        Args:
            x: Inputs.
            mask: Which points there are. No point sees one that is masked out, except that point itself.
        """
        activation = activation_by_name(self.activation)
        h = yield with_bias(x)
        for block in range(self.blocks):
            features = with_bias(h)
            queries = yield features
            keys = yield features
            values = yield features
            attended = yield with_bias(attention(queries, keys, values, self.heads, mask))
            h = self.norms[2 * block](h + attended)
            inner = yield with_bias(h)
            inner = yield with_bias(activation(inner))
            h = self.norms[2 * block + 1](h + inner)
        return (yield with_bias(h))

    def forward(
        self,
        weights: Sequence[Float[Tensor, "*#batch _d _out"]],
        x: Float[Tensor, "*#batch points x"],
        mask: Bool[Tensor, "*#batch points"] | None = None,
    ) -> Float[Tensor, "*all points y"]:
        """Compute the outputs at `x`, all points together.

        Args:
            weights: The weights of each layer.
            x: Inputs.
            mask: Which points there are; all if None.
        """
        return run(self.program(x, mask), lambda layer, features: features @ weights[layer])


def attention(
    queries: Float[Tensor, "*#batch points width"],
    keys: Float[Tensor, "*#batch points width"],
    values: Float[Tensor, "*#batch points width"],
    heads: int,
    mask: Bool[Tensor, "*#batch points"] | None,
) -> Float[Tensor, "*all points width"]:
    """Multi-head dot-product attention of all points with each other.

    Args:
        queries: What each point looks for.
        keys: What each point is found by.
        values: What each point gives to those that find it.
        heads: Number of heads.
        mask: Which points there are; all if None.
    """

    def by_head(x: Tensor) -> Tensor:
        return x.unflatten(-1, (heads, -1)).transpose(-2, -3)

    visible = None
    if mask is not None:
        # absent points see themselves: attention to no point at all would be NaN
        alone = torch.eye(mask.shape[-1], dtype=torch.bool, device=mask.device)
        visible = (mask.unsqueeze(-2) | alone).unsqueeze(-3)
    attended = functional.scaled_dot_product_attention(
        *(by_head(x) for x in torch.broadcast_tensors(queries, keys, values)), attn_mask=visible
    )
    return attended.transpose(-2, -3).flatten(-2)
