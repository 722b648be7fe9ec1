"""Smooth functions of the inputs that stay bounded: sums of bends, each along one input.

A bend is `tanh(slope (x - place)) - mean`, where the mean over the training inputs is taken off. It becomes constant
outside the range of these inputs, so that nothing grows without bound there.
"""

from collections.abc import Sequence

import torch

from bnnp._core.shapes import Float, Tensor

LEVELS = (0.5, 0.2, 0.5, 0.8)
"""Quantiles of an input at which it bends."""
STEEPNESS = (1.0, 6.0, 6.0, 6.0)
"""How steep the bend at each of them is, for inputs whose middle 90 % have width 1: the first is nearly a line."""
NUMBERS = 4
"""Numbers that a bend has: its input, place, slope and mean."""


def bends_over(x: Float[Tensor, "points x"], inputs: Sequence[int]) -> Float[Tensor, "terms 4"]:
    """Bends along some of the inputs, placed where the points are. Inputs that are constant have none."""
    levels = x.new_tensor(LEVELS)
    table = x.new_zeros(0, NUMBERS)
    for column in inputs:
        values = x[:, column]
        if not float(values.max() - values.min()) > 0:
            continue
        low, high = torch.quantile(values, x.new_tensor([0.05, 0.95]))
        width = high - low if high > low else values.max() - values.min()
        own = torch.stack(
            [
                torch.full_like(levels, column),
                torch.quantile(values, levels),
                x.new_tensor(STEEPNESS) / width,
                torch.zeros_like(levels),
            ],
            dim=-1,
        )
        own[:, 3] = bends_at(own, x).mean(0)
        table = torch.cat([table, own])
    return table


def bends_at(table: Float[Tensor, "terms 4"], x: Float[Tensor, "*batch x"]) -> Float[Tensor, "*batch terms"]:
    """The values of bends at some inputs."""
    inputs, places, slopes, means = table.unbind(-1)
    return torch.tanh((x[..., inputs.long()] - places) * slopes) - means


def in_units(
    table: Float[Tensor, "terms 4"], shift: Float[Tensor, "x"], scale: Float[Tensor, "x"]
) -> Float[Tensor, "terms 4"]:
    """The same bends as functions of `x scale + shift`."""
    inputs, places, slopes, means = table.unbind(-1)
    own = inputs.long()
    return torch.stack([inputs, places * scale[own] + shift[own], slopes / scale[own], means], dim=-1)
