"""Starts: objects that set a prior before training (`docs/training.md`)."""

from bnnp.priors.starts.base import Examples, SmoothNoise, Start
from bnnp.priors.starts.by_name import STARTS, as_start
from bnnp.priors.starts.empirical import Empirical
from bnnp.priors.starts.spread import Spread
from bnnp.priors.starts.standard import Standard
from bnnp.priors.starts.warped import Warped

__all__ = ["STARTS", "Empirical", "Examples", "SmoothNoise", "Spread", "Standard", "Start", "Warped", "as_start"]
