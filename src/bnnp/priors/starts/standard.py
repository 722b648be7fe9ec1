"""The standard prior as the start."""

from dataclasses import dataclass

import torch

from bnnp.priors.base import Prior
from bnnp.priors.starts.base import Examples, Start


@dataclass(frozen=True)
class Standard(Start):
    """Leave the prior at the standard one, `N(0, 1/(d_in + 1))` for every weight: the paper's start.

    Example:
        >>> small = bnnp.BNNP(1, 1, hidden=(4,))
        >>> bnnp.start_prior(small, tasks, bnnp.starts.Standard())
        >>> small.prior.is_standard()
        True
    """

    def set(self, prior: Prior, examples: Examples, generator: torch.Generator) -> None:
        """Do nothing: every prior is made as the standard one."""
