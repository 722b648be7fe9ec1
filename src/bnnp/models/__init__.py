"""Models: networks with a prior over their weights and an amortised posterior."""

from bnnp.models.bnnp import BNNP, InferredWeights
from bnnp.models.posterior import WeightPosterior

__all__ = ["BNNP", "InferredWeights", "WeightPosterior"]
