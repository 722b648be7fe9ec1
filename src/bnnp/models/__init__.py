"""Models: networks with a prior over their weights and an amortised posterior."""

from bnnp.models.amortised import AmortisedModel
from bnnp.models.base import MetaLearner
from bnnp.models.bnam import BNAM, Transformer
from bnnp.models.bnnp import BNNP, AttBNNP
from bnnp.models.inferring import InferredWeights
from bnnp.models.many import WeightPosteriors
from bnnp.models.posterior import WeightPosterior
from bnnp.models.saving import load, load_posterior, zoo_names

__all__ = [
    "BNAM",
    "BNNP",
    "AmortisedModel",
    "AttBNNP",
    "InferredWeights",
    "MetaLearner",
    "Transformer",
    "WeightPosterior",
    "WeightPosteriors",
    "load",
    "load_posterior",
    "zoo_names",
]
