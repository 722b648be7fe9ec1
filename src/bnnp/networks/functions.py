"""Functions drawn from a prior or a posterior, as objects that can be called."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.columns import Columns
from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import AnyNetwork


def identity(outputs: Tensor) -> Tensor:
    """The link of a likelihood whose mean is the network's output."""
    return outputs


@dataclass(frozen=True, eq=False)
class View:
    """How the user sees functions of a network.

    Attributes:
        columns: Shift and scale of the user's columns.
        link: Turns outputs of the network into the mean of an observation.
    """

    columns: Columns
    link: Callable[[Tensor], Tensor] = identity


@dataclass(frozen=True, eq=False)
class Function:
    """One drawn function, from inputs (n, in) to outputs (n, out), without observation noise.

    Inputs are arrays or tensors, outputs are NumPy arrays. Both are in the user's units.

    Attributes:
        network: The network.
        weights: The drawn weights of each layer.
        view: How the user sees the function.
    """

    network: AnyNetwork
    weights: tuple[Float[Tensor, "_d _out"], ...]
    view: View

    def __call__(self, x: ArrayLike | Tensor) -> np.ndarray:
        """The values of the function at `x`."""
        inputs = self.view.columns.inputs(x).to(self.weights[0].device)
        with torch.no_grad():
            outputs = self.network(self.weights, self.view.columns.standardise_x(inputs).to(self.weights[0]))
            return self.view.columns.restore_y(self.view.link(outputs)).cpu().numpy()


def functions_of(
    network: AnyNetwork,
    weights: Sequence[Float[Tensor, "samples _d _out"]],
    view: View,
) -> list[Function]:
    """One function per weight sample."""
    return [Function(network, tuple(w[k] for w in weights), view) for k in range(weights[0].shape[0])]
