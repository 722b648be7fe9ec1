"""The contract of a network, and how it runs: a *program* yields the features of one linear layer after the other."""

import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch.nn import functional

from bnnp._core.shapes import Float, Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "softplus": functional.softplus,
    "identity": lambda h: h,
}


Program = Generator[Tensor, Tensor, Tensor]
"""A network in the making: it yields the features of one linear layer after the other, is sent that layer's outputs,
and returns its own. Who runs it decides what a linear layer is: a product with weights, given or to be inferred."""


@runtime_checkable
class AnyNetwork(Protocol):
    """What the library asks of a network: a pure function of the weights of its linear layers, and of inputs.

    mixes_points: whether outputs at one input depend on the other inputs.
    """

    @property
    def sizes(self) -> tuple[int, ...]: ...

    @property
    def weight_shapes(self) -> list[tuple[int, int]]: ...

    @property
    def num_layers(self) -> int: ...

    @property
    def num_weights(self) -> int: ...

    @property
    def mixes_points(self) -> bool: ...

    def program(self, x: Tensor, mask: Tensor | None = None) -> Program: ...

    def __call__(self, weights: Sequence[Tensor], x: Tensor, mask: Tensor | None = None) -> Tensor: ...


def activation_by_name(name: str) -> Callable[[Tensor], Tensor]:
    if name not in ACTIVATIONS:
        raise ValueError(
            f"activation: got {name!r}, expected one of {', '.join(ACTIVATIONS)}, or a function of a tensor"
        )
    return ACTIVATIONS[name]


def with_bias(h: Float[Tensor, "*batch points h"]) -> Float[Tensor, "*batch points d"]:
    """The features of a linear layer: its inputs and a constant 1 for the bias."""
    return functional.pad(h, (0, 1), value=1.0)


def run(program: Program, layer_outputs: Callable[[int, Tensor], Tensor]) -> Tensor:
    """What a network returns if `layer_outputs(layer, features)` are the outputs of its linear layers."""
    result = next(program)
    for layer in itertools.count():
        result, done = _sent(program, layer_outputs(layer, result))
        if done:
            break
    return result


def advance(program: Program, outputs: Tensor) -> Tensor:
    """The features of the next linear layer, once the last one has these outputs; after all layers, the outputs."""
    return _sent(program, outputs)[0]


def _sent(program: Program, outputs: Tensor) -> tuple[Tensor, bool]:
    try:
        return program.send(outputs), False
    except StopIteration as end:
        return end.value, True


def features_of_layer(
    program: Program, weights: Sequence[Float[Tensor, "*#batch _d _out"]]
) -> Float[Tensor, "*batch points d"]:
    """What comes to the linear layer after those whose weights are given (paper, Algorithm 2, partial forward pass)."""
    features = next(program)
    for w in weights:
        features = program.send(features @ w)
    return features
