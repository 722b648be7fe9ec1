"""All weights of a layer correlated, layers independent (paper, App. B, 'Layerwise full-rank Gaussian')."""

from bnnp.priors.layers_apart import LayersApart


class Layerwise(LayersApart):
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
    correlated = True
