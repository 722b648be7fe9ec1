"""bnnp: meta-learn a prior over the weights of a neural network, and an amortised posterior for each new data set."""

import bnnp._waiting  # noqa: F401, before torch
from bnnp import evaluation, inference, neural_processes, objectives, priors, tasks
from bnnp.evaluation import Oracle, Scores, evaluate
from bnnp.inference import infer
from bnnp.inverse import FactorisationError
from bnnp.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian
from bnnp.mixture import MixturePredictive
from bnnp.models import BNAM, BNNP, AttBNNP, WeightPosterior, load, load_posterior, zoo_names
from bnnp.network import Network
from bnnp.prediction import Predictive, SampledPredictive
from bnnp.training import FitResult, History, TrainingDiverged, fit

__version__ = "0.1.0"

__all__ = [
    # data
    "tasks",
    # the model
    "priors",
    "Gaussian",
    "HeteroscedasticGaussian",
    "Bernoulli",
    "Categorical",
    "Network",
    "BNNP",
    "AttBNNP",
    "BNAM",
    "WeightPosterior",
    "load",
    "load_posterior",
    "zoo_names",
    # training
    "objectives",
    "fit",
    "FitResult",
    "History",
    "TrainingDiverged",
    "FactorisationError",
    # other ways to infer the same weights
    "inference",
    "infer",
    # peers
    "neural_processes",
    # prediction and evaluation
    "Predictive",
    "MixturePredictive",
    "SampledPredictive",
    "evaluation",
    "evaluate",
    "Oracle",
    "Scores",
]
