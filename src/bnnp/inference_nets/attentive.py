"""Inference networks that see all points of a context together (paper, section 2.6)."""

from collections.abc import Sequence

import torch
from torch import nn

from bnnp._core.random import starting_from
from bnnp._core.shapes import Bool, Float, Tensor
from bnnp.inference_nets.base import Encoder


class SetEncoder(Encoder):
    """A transformer over all points of a context, without positions: points attend to each other.

    Args:
        in_size: Numbers that it sees of a point.
        out_size: Numbers that it makes for a point.
        hidden: The width of each block of attention and perceptron, one entry per block; all are equal.
        heads: Heads of attention; they divide the width.
        generator: The generator of its starting weights.

    Raises:
        ValueError: If the widths differ, or the heads do not divide them.
    """

    def __init__(self, in_size: int, out_size: int, hidden: Sequence[int], heads: int, generator: torch.Generator):
        super().__init__()
        width = hidden[0] if hidden else 0
        if set(hidden) != {width} or min(width, heads) < 1 or width % heads:
            raise ValueError(
                f"inference: got hidden {tuple(hidden)}, expected equal sizes that {heads} heads of attention divide"
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
