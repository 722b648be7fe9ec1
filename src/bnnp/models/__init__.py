"""Models: networks with a prior over their weights and an amortised posterior."""

from bnnp.models.amortised import AmortisedModel, InferredWeights
from bnnp.models.base import MetaLearner
from bnnp.models.bnam import BNAM
from bnnp.models.bnnp import BNNP, AttBNNP
from bnnp.models.posterior import WeightPosterior
from bnnp.models.saving import load, load_posterior, zoo_names

__all__ = [
    "BNAM",
    "BNNP",
    "AmortisedModel",
    "AttBNNP",
    "InferredWeights",
    "MetaLearner",
    "WeightPosterior",
    "load",
    "load_posterior",
    "zoo_names",
]
