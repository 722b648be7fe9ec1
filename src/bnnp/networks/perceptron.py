"""The multilayer perceptron as a pure function of weights and inputs. It holds no parameters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bnnp._core.checks import check_sizes
from bnnp._core.memory import check_memory
from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import Program, activation_by_name, check_activation, run, with_bias


@dataclass(frozen=True)
class Network:
    """A multilayer perceptron as a pure function of its weights.

    The weights of layer l have shape `(*batch, sizes[l] + 1, sizes[l + 1])`; the last row is the bias. The activation
    acts on the input of every layer but the first.

    Args:
        sizes: Units of each layer, inputs first.
        activation: The name of an activation ("relu", "tanh", "silu", "gelu", "softplus", "identity"), or a function of
            a tensor.

    Raises:
        ValueError: If there are fewer than two sizes, a size is not positive, or no activation has this name.

    Example:
        >>> import torch
        >>> network = bnnp.Network((1, 8, 8, 1), activation="tanh")
        >>> network.weight_shapes
        [(2, 8), (9, 8), (9, 1)]
        >>> weights = [torch.zeros(shape) for shape in network.weight_shapes]
        >>> network(weights, torch.zeros(5, 1)).shape
        torch.Size([5, 1])
    """

    sizes: tuple[int, ...]
    activation: str | Callable[[Tensor], Tensor] = "relu"

    def __post_init__(self):
        if len(check_sizes("sizes", self.sizes)) < 2:
            raise ValueError(f"sizes: got {self.sizes}, expected at least two positive sizes, as in (1, 64, 64, 1)")
        check_memory("hidden", self.num_weights, "use smaller layers")
        check_activation(self.activation)

    @property
    def mixes_points(self) -> bool:
        """Whether outputs at one input depend on the other inputs: never."""
        return False

    @property
    def num_layers(self) -> int:
        """Number of linear layers."""
        return len(self.sizes) - 1

    @property
    def weight_shapes(self) -> list[tuple[int, int]]:
        """Rows (the bias included) and columns of the weights of each layer."""
        return [(size_in + 1, size_out) for size_in, size_out in zip(self.sizes, self.sizes[1:], strict=False)]

    @property
    def num_weights(self) -> int:
        """Number of weights of all layers, biases included."""
        return sum(d * out for d, out in self.weight_shapes)

    def program(self, x: Float[Tensor, "*batch points x"], mask: Tensor | None = None) -> Program:
        """The network, one linear layer after the other.

        Args:
            x: Inputs.
            mask: Ignored: points do not see each other.

        Returns:
            A program that yields the features of each linear layer and returns the outputs of the network.
        """
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
        """Compute the outputs at `x`, for any leading axes that broadcast.

        Args:
            weights: The weights of each layer.
            x: Inputs.
            mask: Ignored: points do not see each other.

        Returns:
            The outputs of the last layer.
        """
        return run(self.program(x), lambda layer, features: features @ weights[layer])
