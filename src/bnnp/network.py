"""The plain network: sizes, nonlinearity, and the map from weights and inputs to outputs. It holds no parameters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from bnnp._shapes import Float, Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "softplus": functional.softplus,
    "identity": lambda h: h,
}


def activation_by_name(name: str) -> Callable[[Tensor], Tensor]:
    if name not in ACTIVATIONS:
        raise ValueError(
            f"activation: got {name!r}, expected one of {', '.join(ACTIVATIONS)}, or a function of a tensor"
        )
    return ACTIVATIONS[name]


@dataclass(frozen=True)
class Network:
    """A multilayer perceptron as a pure function of its weights.

    sizes: units of each layer, inputs first, as in `(1, 64, 64, 1)`.
    activation: a name (see `ACTIVATIONS`) or a function of a tensor. It acts on the input of every layer but the first.

    The weights of layer l have shape `(*batch, sizes[l] + 1, sizes[l + 1])`; the last row is the bias.
    """

    sizes: tuple[int, ...]
    activation: str | Callable[[Tensor], Tensor] = "relu"

    def __post_init__(self):
        if len(self.sizes) < 2 or min(self.sizes) < 1:
            raise ValueError(f"sizes: got {self.sizes}, expected at least two positive sizes, as in (1, 64, 64, 1)")
        if isinstance(self.activation, str):
            activation_by_name(self.activation)

    @property
    def num_layers(self) -> int:
        return len(self.sizes) - 1

    @property
    def weight_shapes(self) -> list[tuple[int, int]]:
        return [(size_in + 1, size_out) for size_in, size_out in zip(self.sizes, self.sizes[1:], strict=False)]

    @property
    def num_weights(self) -> int:
        return sum(d * out for d, out in self.weight_shapes)

    def features(self, layer: int, h: Float[Tensor, "*batch points h"]) -> Float[Tensor, "*batch points d"]:
        """The input of a layer: activations after the nonlinearity, with a constant 1 for the bias."""
        if layer > 0:
            h = (activation_by_name(self.activation) if isinstance(self.activation, str) else self.activation)(h)
        return functional.pad(h, (0, 1), value=1.0)

    def __call__(
        self, weights: Sequence[Float[Tensor, "*#batch _d _out"]], x: Float[Tensor, "*#batch points x"]
    ) -> Float[Tensor, "*all points y"]:
        """Outputs at `x`, for any leading axes that broadcast."""
        h = x
        for layer, w in enumerate(weights):
            h = self.features(layer, h) @ w
        return h
