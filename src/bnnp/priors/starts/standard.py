"""The standard prior as the start."""

from dataclasses import dataclass

import torch

from bnnp.priors.base import Prior
from bnnp.priors.starts.base import Examples, Start


@dataclass(frozen=True)
class Standard(Start):
    """Leave the prior at the standard one, `N(0, 1/(d_in + 1))` for every weight: the paper's start.

    Example:
        bnnp.fit(model, tasks, settings=bnnp.FitSettings(prior_start=bnnp.starts.Standard()))
    """

    def set(self, prior: Prior, examples: Examples, generator: torch.Generator) -> None:
        """Do nothing: the standard prior is where every prior is already."""
