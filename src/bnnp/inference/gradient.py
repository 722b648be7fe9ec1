"""Gradients of log posterior densities, many data sets and samples at once.

Networks are small and gradients are many, so that function calls cost more than arithmetic. Autograd makes many calls.
"""

from collections.abc import Callable, Sequence

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import activation_by_name, with_bias
from bnnp.networks.perceptron import Network

SLOPES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": lambda before, after: after > 0,
    "tanh": lambda before, after: 1 - after.square(),
    "silu": lambda before, after: torch.sigmoid(before) * (1 + before - after),
    "identity": lambda before, after: torch.ones_like(after),
}
"""Derivatives of nonlinearities from their input and output; autograd computes those of all others."""


def by_autograd(
    function: Callable[[Tensor], Tensor], position: Float[Tensor, "*batch size"]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch size"]]:
    """The value of a function at every position, and its gradient."""
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
    """A network's outputs, and the gradient of a function of them in the weights.

    The way back takes two products per layer, `O(points weights)`.

    Args:
        network: The network.
        units: Weights of every layer, unit by unit.
        x: Inputs.
        slope_of: The gradient of the function in the outputs, given the outputs.

    Returns:
        The outputs, and the gradient for every layer, unit by unit.
    """
    activation = activation_by_name(network.activation) if isinstance(network.activation, str) else network.activation
    features, before = [with_bias(x)], []
    outputs = torch.bmm(features[0], units[0].mT)
    for w in units[1:]:
        before.append(outputs)
        features.append(with_bias(activation(outputs)))
        outputs = torch.bmm(features[-1], w.mT)
    slope = slope_of(outputs)
    gradients = [torch.bmm(slope.mT, features[-1])]
    for layer in reversed(range(1, len(units))):
        by_input = torch.bmm(slope, units[layer])[:, :, :-1]
        slope = by_input * _activation_slope(network, activation, before[layer - 1], features[layer][:, :, :-1])
        gradients.append(torch.bmm(slope.mT, features[layer - 1]))
    return outputs, gradients[::-1]


def _activation_slope(network: Network, activation: Callable, before: Tensor, after: Tensor) -> Tensor:
    if isinstance(network.activation, str) and network.activation in SLOPES:
        return SLOPES[network.activation](before, after)
    return by_autograd(lambda h: activation(h).sum(-1), before)[1]
