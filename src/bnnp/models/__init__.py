"""Models: networks with a prior over their weights and an amortised posterior."""

from bnnp.models.bnnp import BNNP, InferredWeights
from bnnp.models.posterior import WeightPosterior
from bnnp.models.saving import load, zoo_names

__all__ = ["BNNP", "InferredWeights", "WeightPosterior", "load", "zoo_names"]
