"""Priors over the weights of a network, from independent weights to one covariance over all of them."""

import torch

from bnnp.networks.base import AnyNetwork
from bnnp.priors import base, starts
from bnnp.priors.base import Prior
from bnnp.priors.factorised import Factorised
from bnnp.priors.layerwise import Layerwise
from bnnp.priors.networkwise import Networkwise
from bnnp.priors.unitwise import Unitwise

PRIORS: dict[str, type[Factorised] | type[Unitwise] | type[Layerwise] | type[Networkwise]] = {
    "factorised": Factorised,
    "unitwise": Unitwise,
    "layerwise": Layerwise,
    "networkwise": Networkwise,
}


def by_name(name: str, network: AnyNetwork, dtype: torch.dtype = torch.float32) -> Prior:
    """Make a standard prior from its name.

    Args:
        name: "factorised", "unitwise", "layerwise" or "networkwise".
        network: The network whose weights the prior is over.
        dtype: Precision of the prior's parameters.

    Returns:
        The prior, with mean 0 and variance `1/(d_in + 1)` for every weight.

    Raises:
        ValueError: If there is no prior of that name.

    Example:
        >>> type(bnnp.priors.by_name("layerwise", bnnp.Network((1, 4, 1)))).__name__
        'Layerwise'
    """
    if name not in PRIORS:
        raise ValueError(f"prior: got {name!r}, expected one of {', '.join(PRIORS)}")
    return PRIORS[name](network, dtype)


__all__ = ["PRIORS", "Factorised", "Layerwise", "Networkwise", "Prior", "Unitwise", "base", "by_name", "starts"]
