"""The contract of a network, and how a network is run, one linear layer after the other."""

import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Any, Protocol, runtime_checkable

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
"""A network as a generator: it yields the features of each linear layer in turn, is sent that layer's outputs, and
returns the outputs of the network. The caller computes each layer: it multiplies the features by weights, which are
given or are inferred on the way."""


@runtime_checkable
class AnyNetwork(Protocol):
    """What the library asks of a network: a pure function of inputs and of the weights of its linear layers."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of inputs, then the outputs of each linear layer."""
        ...

    @property
    def weight_shapes(self) -> list[tuple[int, int]]:
        """Rows (the bias included) and columns of the weights of each layer."""
        ...

    @property
    def num_layers(self) -> int:
        """Number of linear layers."""
        ...

    @property
    def num_weights(self) -> int:
        """Number of weights of all layers, biases included."""
        ...

    @property
    def mixes_points(self) -> bool:
        """Whether outputs at one input depend on the other inputs."""
        ...

    def program(self, x: Tensor, mask: Tensor | None = None) -> Program:
        """The network, one linear layer after the other; `mask` says which points there are."""
        ...

    def __call__(self, weights: Sequence[Tensor], x: Tensor, mask: Tensor | None = None) -> Tensor:
        """The outputs at `x` with these weights; `mask` says which points there are."""
        ...


def activation_by_name(name: str) -> Callable[[Tensor], Tensor]:
    """The activation of this name, or a `ValueError` that lists the names."""
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise ValueError(
            f"activation: got {name!r}, expected one of {', '.join(ACTIVATIONS)}, or a function of a tensor"
        )
    return ACTIVATIONS[name]


def check_activation(activation: Any) -> None:
    """Refuse what is neither the name of an activation nor a function that gives finite numbers, one per number."""
    if not callable(activation):
        activation_by_name(activation)
        return
    probe = torch.linspace(-1, 1, 6).reshape(2, 3)
    try:
        found = activation(probe)
    except Exception as error:  # of the user's own function, of any kind
        raise ValueError(
            f"activation: got {activation!r}, which fails ({error}), expected a function of a tensor"
        ) from error
    if not (isinstance(found, Tensor) and found.shape == probe.shape and bool(torch.isfinite(found).all())):
        raise ValueError(
            f"activation: got {activation!r}, expected a function of a tensor that gives a finite number for each of "
            "its numbers, as torch.sin"
        )


def with_bias(h: Float[Tensor, "*batch points h"]) -> Float[Tensor, "*batch points d"]:
    """The features of a linear layer: its inputs and a constant 1 for the bias."""
    return functional.pad(h, (0, 1), value=1.0)


def run(program: Program, layer_outputs: Callable[[int, Tensor], Tensor]) -> Tensor:
    """Run a network to its end.

    Args:
        program: The network.
        layer_outputs: A function of the number of a linear layer and of its features, which returns the layer's
            outputs.

    Returns:
        The outputs of the network.
    """
    result = next(program)
    for layer in itertools.count():
        result, done = _sent(program, layer_outputs(layer, result))
        if done:
            break
    return result


def advance(program: Program, outputs: Tensor) -> Tensor:
    """Give a network the outputs of its current linear layer.

    Returns:
        The features of the next linear layer; after the last layer, the outputs of the network.
    """
    return _sent(program, outputs)[0]


def _sent(program: Program, outputs: Tensor) -> tuple[Tensor, bool]:
    """What the program yields or returns next, and whether it has ended."""
    try:
        return program.send(outputs), False
    except StopIteration as end:
        return end.value, True


def features_of_layer(
    program: Program, weights: Sequence[Float[Tensor, "*#batch _d _out"]]
) -> Float[Tensor, "*batch points d"]:
    """The features of the linear layer after those whose weights are given (paper, Algorithm 2, partial forward pass).

    Args:
        program: The network, not yet started.
        weights: The weights of the first layers.
    """
    features = next(program)
    for w in weights:
        features = program.send(features @ w)
    return features
