"""Other ways to infer the same weights, for any prior of the library."""

from bnnp.inference.base import Diagnostics, Effort, Method
from bnnp.inference.gaussian_vi import GaussianVI
from bnnp.inference.inducing import GIVI
from bnnp.inference.infer import METHODS, InferenceWarning, InferredPosterior, infer, infer_many
from bnnp.inference.mcmc import HMC, SGHMC, SGLD
from bnnp.inference.modes import Ensemble, Laplace
from bnnp.inference.nuts import NUTS
from bnnp.inference.single_task import SingleTaskBNNP
from bnnp.inference.swag import SWAG
from bnnp.inference.target import Target

__all__ = [
    "GIVI",
    "HMC",
    "METHODS",
    "NUTS",
    "SGHMC",
    "SGLD",
    "SWAG",
    "Diagnostics",
    "Effort",
    "Ensemble",
    "GaussianVI",
    "InferenceWarning",
    "InferredPosterior",
    "Laplace",
    "Method",
    "SingleTaskBNNP",
    "Target",
    "infer",
    "infer_many",
]
