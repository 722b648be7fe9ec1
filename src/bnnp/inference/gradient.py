"""Gradients of log posterior densities, many data sets and samples at once.

Networks are small and gradients are many, so that the calls cost more than the arithmetic: autograd makes many of them.
"""

from collections.abc import Callable, Sequence

import torch

from bnnp._shapes import Float, Tensor
from bnnp.network import Network, activation_by_name

SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda before, after: after > 0,
    "tanh": lambda before, after: 1 - after.square(),
    "silu": lambda before, after: torch.sigmoid(before) * (1 + before - after),
    "identity": lambda before, after: torch.ones_like(after),
}
"""Derivatives of nonlinearities from their input and output; autograd finds the others."""


def by_autograd(
    function: Callable[[Tensor], Tensor], position: Float[Tensor, "*batch size"]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch size"]]:
    """A function of positions, one value each, and its gradient."""
    with torch.enable_grad():
        leaf = position.detach().requires_grad_()
        value = function(leaf)
        (gradient,) = torch.autograd.grad(value.sum(), leaf)
    return value.detach(), gradient


@torch.no_grad()
def by_backpropagation(
    network: Network,
    units: Sequence[Float[Tensor, "batch _out _d"]],
    x: Float[Tensor, "batch points x"],
    slope_of: Callable[[Float[Tensor, "batch points y"]], Float[Tensor, "batch points y"]],
) -> tuple[Float[Tensor, "batch points y"], list[Float[Tensor, "batch _out _d"]]]:
    """A network's outputs, and the gradient by the weights, unit by unit, of what has the slope `slope_of(outputs)`.

    Two products a layer on the way back, `O(points weights)`.
    """
    activation = activation_by_name(network.activation) if isinstance(network.activation, str) else network.activation
    inputs, before = [x], []
    outputs = x
    for layer, w in enumerate(units):
        if layer:
            before.append(outputs)
            inputs.append(activation(outputs))
        outputs = torch.baddbmm(w[:, None, :, -1], inputs[layer], w[:, :, :-1].mT)
    slope = slope_of(outputs)
    gradients: list[Tensor] = []
    for layer in reversed(range(len(units))):
        gradient = torch.empty_like(units[layer])
        gradient[:, :, -1] = slope.sum(1)
        gradient[:, :, :-1] = torch.bmm(slope.mT, inputs[layer])
        gradients.append(gradient)
        if layer:
            by_input = torch.bmm(slope, units[layer][:, :, :-1])
            slope = by_input * _activation_slope(network, activation, before[layer - 1], inputs[layer])
    return outputs, gradients[::-1]


def _activation_slope(network: Network, activation: Callable, before: Tensor, after: Tensor) -> Tensor:
    if isinstance(network.activation, str) and network.activation in SLOPES:
        return SLOPES[network.activation](before, after)
    return by_autograd(lambda h: activation(h).sum(-1), before)[1]
