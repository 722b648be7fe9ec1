"""The multilayer perceptron as a pure function of weights and inputs. It holds no parameters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import Program, activation_by_name, run, with_bias


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
    def mixes_points(self) -> bool:
        return False

    @property
    def num_layers(self) -> int:
        return len(self.sizes) - 1

    @property
    def weight_shapes(self) -> list[tuple[int, int]]:
        return [(size_in + 1, size_out) for size_in, size_out in zip(self.sizes, self.sizes[1:], strict=False)]

    @property
    def num_weights(self) -> int:
        return sum(d * out for d, out in self.weight_shapes)

    def program(self, x: Float[Tensor, "*batch points x"], mask: Tensor | None = None) -> Program:
        """The network, one linear layer after the other. Points do not see each other, so that no mask is needed."""
        activation = activation_by_name(self.activation) if isinstance(self.activation, str) else self.activation
        h = yield with_bias(x)
        for _ in range(self.num_layers - 1):
            h = yield with_bias(activation(h))
        return h

    def __call__(
        self,
        weights: Sequence[Float[Tensor, "*#batch _d _out"]],
        x: Float[Tensor, "*#batch points x"],
        mask: Tensor | None = None,
    ) -> Float[Tensor, "*all points y"]:
        """Outputs at `x`, for any leading axes that broadcast."""
        return run(self.program(x), lambda layer, features: features @ weights[layer])
