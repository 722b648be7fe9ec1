"""Starts: objects that set a prior before training (`docs/training.md`)."""

from bnnp.priors.starts.base import Examples, Needs, Start
from bnnp.priors.starts.by_name import STARTS, as_start
from bnnp.priors.starts.deciding import Floor, Switch
from bnnp.priors.starts.fitted import Fitted
from bnnp.priors.starts.place import Place
from bnnp.priors.starts.spread import Spread
from bnnp.priors.starts.standard import Standard

__all__ = [
    "STARTS",
    "Examples",
    "Fitted",
    "Floor",
    "Needs",
    "Place",
    "Spread",
    "Standard",
    "Start",
    "Switch",
    "as_start",
]
