"""All weights of a layer correlated, layers independent (paper, App. B, 'Layerwise full-rank Gaussian')."""

import torch
from torch import nn

from bnnp.networks.base import AnyNetwork
from bnnp.numerics.gaussian import UnitPrior
from bnnp.priors.base import Prior, standard_variance
from bnnp.priors.factorised import independent_layer
from bnnp.priors.learnable import GaussianUnits


class Layerwise(Prior):
    """A full covariance over `vec(W)` of each layer. Inference costs `O((d out)^3)` a layer: for small networks."""

    couples_outputs = True

    def __init__(self, network: AnyNetwork, dtype: torch.dtype = torch.float32):
        super().__init__(network)
        self.blocks = nn.ModuleList(
            GaussianUnits(1, standard_variance(network, layer, dtype, out), correlated=True)
            for layer, (_, out) in enumerate(network.weight_shapes)
        )

    def layer(self, index: int, earlier) -> UnitPrior:
        return independent_layer(self, index)
