"""The fit of the linear mixed model: its free parameters as one vector, and L-BFGS on its evidence."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.priors.starts.minimise import minimise
from bnnp.priors.starts.mixed import LEAST_NOISE, NOISE, Freedom, MixedModel
from bnnp.priors.starts.sums import Sums


def fit_mixed(
    sums: Sums, first: MixedModel, freedom: Freedom | None = None, held: Float[Tensor, "out 5"] | None = None
) -> tuple[MixedModel, float]:
    """Fit the parameters by evidence, with L-BFGS.

    Args:
        sums: The sums over the points of every task.
        first: Where the fit begins.
        freedom: How free the own covariance is; by default not at all.
        held: Parameters that are known and not fitted; NaN for all others.

    Returns:
        The model, and its log-evidence plus the log-density of its parameters.
    """
    freedom = freedom or Freedom()
    packed = Packed(first, freedom, held)

    def loss(vector: np.ndarray) -> tuple[float, np.ndarray]:
        return packed.loss(torch.from_numpy(vector), sums)

    found, value = minimise(loss, packed.start(), packed.least())
    return packed.model(torch.from_numpy(found)), -value


@dataclass(frozen=True)
class Packed:
    """The free parameters of a model as one vector."""

    first: MixedModel
    freedom: Freedom
    held: Tensor | None

    @property
    def free_theta(self) -> Tensor:
        """Which of the five numbers of each output are fitted."""
        free = torch.ones_like(self.first.theta, dtype=torch.bool) if self.held is None else self.held.isnan()
        if self.freedom.noise_held:
            free[:, NOISE] = False
        return free

    def start(self) -> np.ndarray:
        parts = [self._known_theta()[self.free_theta]]
        if self.freedom.pull is not None:
            diagonal = self.first.shape.diagonal(dim1=-2, dim2=-1).log()
            parts += [diagonal.flatten(), self.first.shape[(..., *self._below())].flatten()]
        return torch.cat(parts).numpy()

    def least(self) -> np.ndarray:
        """Lower bounds of the free parameters."""
        theta = torch.full_like(self.first.theta, -math.inf)
        theta[:, NOISE] = math.log(LEAST_NOISE)
        least = np.full(len(self.start()), -math.inf)
        least[: int(self.free_theta.sum())] = theta[self.free_theta].numpy()
        return least

    def loss(self, flat: Tensor, sums: Sums) -> tuple[float, np.ndarray]:
        """Minus the log-evidence and the log-density of the parameters, and its slope."""
        leaf = flat.clone().requires_grad_()
        with torch.enable_grad():
            model = self.model(leaf)
            value = -(model.evidence(sums).sum() + model.log_belief(self.freedom.pull))
        (slope,) = torch.autograd.grad(value, leaf)
        return value.item(), slope.numpy()

    def model(self, flat: Tensor) -> MixedModel:
        outputs, d, free = len(self.first.theta), len(self.first.values), self.free_theta
        count = int(free.sum())
        theta = self._known_theta().masked_scatter(free, flat[:count])
        if self.freedom.pull is None:
            return replace(self.first, theta=theta)
        shape = torch.diag_embed(flat[count : count + outputs * d].reshape(outputs, d).exp())
        shape[(..., *self._below())] = flat[count + outputs * d :].reshape(outputs, -1)
        return replace(self.first, theta=theta, shape=shape)

    def _known_theta(self) -> Tensor:
        return self.first.theta if self.held is None else torch.where(self.held.isnan(), self.first.theta, self.held)

    def _below(self) -> tuple[Tensor, Tensor]:
        below = torch.tril_indices(len(self.first.values), len(self.first.values), -1)
        return below[0], below[1]
