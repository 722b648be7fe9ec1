"""Functions drawn from a prior or a posterior, as things one can call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.arrays import as_columns
from bnnp._core.columns import Columns
from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import AnyNetwork


def identity(outputs: Tensor) -> Tensor:
    return outputs


@dataclass(frozen=True, eq=False)
class View:
    """How the user sees functions of a network.

    Attributes:
        columns: Shift and scale of the user's columns.
        link: From outputs of the network to the mean of an observation.
    """

    columns: Columns
    link: Callable[[Tensor], Tensor] = identity


@dataclass(frozen=True, eq=False)
class Function:
    """One drawn function: NumPy or tensor inputs (n, in) to NumPy outputs (n, out), without observation noise.

    Inputs and outputs are those of the user, through a `View`.
    """

    network: AnyNetwork
    weights: tuple[Float[Tensor, "_d _out"], ...]
    view: View

    def __call__(self, x: ArrayLike | Tensor) -> np.ndarray:
        inputs = as_columns(x, "x", self.network.sizes[0]).to(self.weights[0].device)
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
