"""Other ways to infer the same weights, for any prior of the library."""

from bnnp.inference.gaussian_vi import GaussianVI
from bnnp.inference.inducing import GIVI
from bnnp.inference.infer import METHODS, Diagnostics, Effort, InferredPosterior, infer, infer_many
from bnnp.inference.mcmc import HMC, SGHMC, SGLD

__all__ = [
    "GIVI",
    "HMC",
    "METHODS",
    "SGHMC",
    "SGLD",
    "Diagnostics",
    "Effort",
    "GaussianVI",
    "InferredPosterior",
    "infer",
    "infer_many",
]
