"""All weights of a layer correlated, layers independent (paper, App. B, 'Layerwise full-rank Gaussian')."""

import torch
from torch import nn

from bnnp.networks.base import AnyNetwork
from bnnp.numerics.gaussian import UnitPrior
from bnnp.priors.base import Prior, standard_variance
from bnnp.priors.factorised import independent_layer
from bnnp.priors.learnable import GaussianUnits


class Layerwise(Prior):
    """A prior that correlates all weights of a layer: one mean vector and one full covariance over `vec(W)` per layer.

    Inference costs `O((d out)^3)` per layer, so it is for small networks.

    Args:
        network: The network whose weights the prior is over.
        dtype: Precision of the prior's parameters.

    Example:
        >>> prior = bnnp.priors.Layerwise(bnnp.Network((1, 4, 1)))
        >>> prior.layer(0, []).factor.shape
        torch.Size([1, 8, 8])
        >>> bnnp.BNNP(1, 1, hidden=(4,), prior="layerwise").prior.is_standard()
        True
    """

    couples_outputs = True

    def __init__(self, network: AnyNetwork, dtype: torch.dtype = torch.float32):
        super().__init__(network)
        self.blocks = nn.ModuleList(
            GaussianUnits(1, standard_variance(network, layer, dtype, out), correlated=True)
            for layer, (_, out) in enumerate(network.weight_shapes)
        )

    def layer(self, index: int, earlier) -> UnitPrior:
        return independent_layer(self, index)
