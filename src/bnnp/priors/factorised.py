"""Every weight independent (paper, App. B, 'Fully factorised')."""

from bnnp.priors.layers_apart import LayersApart


class Factorised(LayersApart):
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
    correlated = False
