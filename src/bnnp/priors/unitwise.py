"""The weights into one unit correlated, units independent (paper, section 2.2)."""

import torch
from torch import nn

from bnnp.networks.base import AnyNetwork
from bnnp.numerics.gaussian import UnitPrior
from bnnp.priors.base import Prior, standard_variance
from bnnp.priors.factorised import independent_layer
from bnnp.priors.learnable import GaussianUnits


class Unitwise(Prior):
    """A prior that correlates the weights into one unit: one mean vector and one full covariance per unit.

    Args:
        network: The network whose weights the prior is over.
        dtype: Precision of the prior's parameters.

    Example:
        >>> prior = bnnp.priors.Unitwise(bnnp.Network((1, 4, 1)))
        >>> prior.layer(0, []).factor.shape
        torch.Size([4, 2, 2])
        >>> bnnp.BNNP(1, 1, hidden=(4,), prior="unitwise").prior.is_standard()
        True
    """

    couples_outputs = False

    def __init__(self, network: AnyNetwork, dtype: torch.dtype = torch.float32):
        super().__init__(network)
        self.blocks = nn.ModuleList(
            GaussianUnits(out, standard_variance(network, layer, dtype), correlated=True)
            for layer, (_, out) in enumerate(network.weight_shapes)
        )

    def layer(self, index: int, earlier) -> UnitPrior:
        return independent_layer(self, index)
