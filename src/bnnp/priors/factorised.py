"""Every weight independent (paper, App. B, 'Fully factorised')."""

import torch
from torch import nn

from bnnp.networks.base import AnyNetwork
from bnnp.numerics.gaussian import UnitPrior
from bnnp.priors.base import Prior, standard_variance
from bnnp.priors.learnable import GaussianUnits


class Factorised(Prior):
    """A prior that keeps all weights independent: one mean and one standard deviation per weight.

    Args:
        network: The network whose weights the prior is over.
        dtype: Precision of the prior's parameters.

    Example:
        >>> prior = bnnp.priors.Factorised(bnnp.Network((1, 4, 1)))
        >>> prior.log_prob(prior.sample(3, seed=0)).shape
        torch.Size([3])
        >>> bnnp.BNNP(1, 1, hidden=(4,), prior="factorised").prior.is_standard()
        True
    """

    couples_outputs = False

    def __init__(self, network: AnyNetwork, dtype: torch.dtype = torch.float32):
        super().__init__(network)
        self.blocks = nn.ModuleList(
            GaussianUnits(out, standard_variance(network, layer, dtype), correlated=False)
            for layer, (_, out) in enumerate(network.weight_shapes)
        )

    def layer(self, index: int, earlier) -> UnitPrior:
        return independent_layer(self, index)


def independent_layer(prior: Prior, index: int) -> UnitPrior:
    """The prior of a layer that does not depend on earlier ones."""
    block = prior.blocks[index]
    assert isinstance(block, GaussianUnits)
    return block.prior()
