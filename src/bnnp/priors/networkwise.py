"""All weights of the network correlated (paper, App. B, 'Full-rank Gaussian')."""

from collections.abc import Sequence

import torch
from torch import nn

from bnnp._core.shapes import Tensor
from bnnp.networks.base import AnyNetwork
from bnnp.numerics.gaussian import UnitPrior
from bnnp.priors.base import Prior, standard_variance
from bnnp.priors.learnable import GaussianUnits


class Networkwise(Prior):
    """A prior that correlates all weights of the network: one mean vector and one full covariance.

    With a block lower-triangular factor `L` and whitened weights `v`, layer l given the earlier ones is
    `N(mu_l + sum_{j<l} L_lj v_j, L_ll L_ll^T)`. These are the paper's conditionals, without an inverse.

    Args:
        network: The network whose weights the prior is over.
        dtype: Precision of the prior's parameters.

    Example:
        >>> prior = bnnp.priors.Networkwise(bnnp.Network((1, 4, 1)))
        >>> prior.couples_layers
        True
        >>> [tuple(weights.shape) for weights in prior.sample(3, seed=0)]
        [(3, 2, 4), (3, 5, 1)]
    """

    couples_outputs = True
    couples_layers = True

    def __init__(self, network: AnyNetwork, dtype: torch.dtype = torch.float32):
        super().__init__(network)
        self.sizes = [d * out for d, out in network.weight_shapes]
        variance = torch.cat(
            [standard_variance(network, layer, dtype, out) for layer, (_, out) in enumerate(network.weight_shapes)]
        )
        self.gaussians = nn.ModuleList([GaussianUnits(1, variance, correlated=True)])

    def layer(self, index: int, earlier: Sequence[Tensor]) -> UnitPrior:
        (gaussian,) = self.parts()
        start = sum(self.sizes[:index])
        stop = start + self.sizes[index]
        rows = gaussian.factor()[:, start:stop, :]
        mean = gaussian.means()[None, None, :, start:stop]
        if earlier:
            mean = mean + torch.cat(list(earlier), dim=-1) @ rows[0, :, :start].mT
        return UnitPrior(mean, rows[:, :, start:stop])
