"""The weights into one unit correlated, units independent (paper, section 2.2)."""

from bnnp.priors.layers_apart import LayersApart


class Unitwise(LayersApart):
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
    correlated = True
