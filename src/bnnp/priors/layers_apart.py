"""What priors share that keep layers independent: Gaussians of each layer's own."""

import torch
from torch import nn

from bnnp.networks.base import AnyNetwork
from bnnp.numerics.gaussian import UnitPrior
from bnnp.priors.base import Prior, standard_variance
from bnnp.priors.learnable import GaussianUnits


class LayersApart(Prior):
    """A prior of which every layer is independent of all others.

    Args:
        network: The network whose weights the prior is over.
        dtype: Precision of the prior's parameters.

    Attributes:
        correlated: Whether the weights of a unit may be correlated.
    """

    correlated: bool

    def __init__(self, network: AnyNetwork, dtype: torch.dtype = torch.float32):
        super().__init__(network)
        of_layers = []
        for layer, (d, _) in enumerate(network.weight_shapes):
            units, size = self.unit_shape(layer)
            variance = standard_variance(network, layer, dtype, size // d)
            of_layers.append(GaussianUnits(units, variance, correlated=self.correlated))
        self.gaussians = nn.ModuleList(of_layers)

    def layer(self, index: int, earlier) -> UnitPrior:
        return self.parts()[index].prior()
