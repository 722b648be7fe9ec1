"""Functions drawn from a prior or a posterior, as things one can call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import AnyNetwork
from bnnp.tasks.standardise import Standardiser
from bnnp.tasks.task import as_columns


@dataclass(frozen=True)
class Function:
    """One drawn function: NumPy or tensor inputs (n, in) to NumPy outputs (n, out), without observation noise.

    Inputs and outputs are in the user's units; `link` takes the network's outputs to the mean of an observation.
    """

    network: AnyNetwork
    weights: tuple[Float[Tensor, "_d _out"], ...]
    standardiser: Standardiser
    link: Callable[[Tensor], Tensor]

    def __call__(self, x: ArrayLike | Tensor) -> np.ndarray:
        inputs = as_columns(x, "x", self.network.sizes[0]).to(self.weights[0].device)
        with torch.no_grad():
            outputs = self.network(self.weights, self.standardiser.x(inputs).to(self.weights[0]))
            return self.standardiser.undo_y(self.link(outputs)).cpu().numpy()


def functions_of(
    network: AnyNetwork,
    weights: Sequence[Float[Tensor, "samples _d _out"]],
    standardiser: Standardiser,
    link: Callable[[Tensor], Tensor],
) -> list[Function]:
    """One function a weight sample."""
    return [Function(network, tuple(w[k] for w in weights), standardiser, link) for k in range(weights[0].shape[0])]


def identity(outputs: Tensor) -> Tensor:
    return outputs
