"""The weights into one unit correlated, units independent (paper, section 2.2)."""

import torch
from torch import nn

from bnnp.networks.base import AnyNetwork
from bnnp.numerics.gaussian import UnitPrior
from bnnp.priors.base import Prior, standard_variance
from bnnp.priors.factorised import independent_layer
from bnnp.priors.learnable import GaussianUnits


class Unitwise(Prior):
    """A mean vector and a full covariance a unit."""

    couples_outputs = False

    def __init__(self, network: AnyNetwork, dtype: torch.dtype = torch.float32):
        super().__init__(network)
        self.blocks = nn.ModuleList(
            GaussianUnits(out, standard_variance(network, layer, dtype), correlated=True)
            for layer, (_, out) in enumerate(network.weight_shapes)
        )

    def layer(self, index: int, earlier) -> UnitPrior:
        return independent_layer(self, index)
