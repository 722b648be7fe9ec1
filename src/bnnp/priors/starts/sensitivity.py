"""How much hidden weights move functions, which says how uncertain they may be and how fast they may learn."""

import itertools
from collections.abc import Sequence

import torch

from bnnp._core.random import child
from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import AnyNetwork, features_of_layer

DRAWS = 8
"""Draws of the last layer by which the effect of hidden weights is measured."""
HIDDEN_NOISE = 0.03
"""How much the uncertainty of each hidden layer moves functions at first, as a share of the noise at each point."""


def moves_of_functions(
    network: AnyNetwork,
    hidden: Sequence[Float[Tensor, "_d _out"]],
    x: Float[Tensor, "points x"],
    mean: Float[Tensor, "out d"],
    factor: Float[Tensor, "out d d"],
    noise: Float[Tensor, "points out"],
) -> list[Float[Tensor, "out"]]:
    """How much functions move if all weights of a hidden layer move independently by one: as shares of the noise.

    The squared norm of the derivatives of all outputs is estimated by random signs, anew for each draw of the last
    layer.

    Args:
        network: The network.
        hidden: Weights of the hidden layers.
        x: Inputs.
        mean: Mean of the weights of the last layer, for each output.
        factor: A factor of their covariance.
        noise: The noise at every point, for each output.

    Returns:
        For each hidden layer, the moves of all outputs, root mean square over points.
    """
    if not hidden:
        return []
    white = torch.randn(DRAWS, *mean.shape, 1, dtype=x.dtype, generator=child(1))
    last = (mean + (factor @ white)[..., 0]).mT
    total = [x.new_zeros(last.shape[-1]) for _ in hidden]
    generator = child(0)
    with torch.enable_grad():
        parameters = [weights.clone().requires_grad_() for weights in hidden]
        features = features_of_layer(network.program(x), parameters)
        for draw, unit in itertools.product(range(len(last)), range(last.shape[-1])):
            signs = 2.0 * torch.randint(2, (len(x),), generator=generator).to(x) - 1
            moved = (signs / noise[:, unit]) @ (features @ last[draw, :, unit])
            slopes = torch.autograd.grad(moved, parameters, retain_graph=True)
            for layer, slope in enumerate(slopes):
                total[layer][unit] += slope.square().sum() / len(x) / len(last)
    return [layer.sqrt().clamp(min=torch.finfo(x.dtype).eps) for layer in total]
