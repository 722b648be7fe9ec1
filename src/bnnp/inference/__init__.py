"""Other methods to infer the same weights, under any prior of the library."""

from bnnp.inference.base import Diagnostics, Effort, Method
from bnnp.inference.infer import METHODS, infer, infer_many
from bnnp.inference.mcmc.nuts import NUTS
from bnnp.inference.mcmc.steps import HMC, SGHMC, SGLD
from bnnp.inference.modes.modes import Ensemble, Laplace
from bnnp.inference.modes.swag import SWAG
from bnnp.inference.posterior import InferenceWarning, InferredPosterior
from bnnp.inference.target import Target
from bnnp.inference.vi.gaussian import GaussianVI
from bnnp.inference.vi.inducing import GIVI
from bnnp.inference.vi.single_task import SingleTaskBNNP

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
