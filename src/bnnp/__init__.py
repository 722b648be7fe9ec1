"""bnnp: meta-learn a prior over the weights of a neural network, and an amortised posterior for each new data set."""

import bnnp._core.waiting  # noqa: F401, before torch
from bnnp import evaluation, inference, neural_processes, objectives, priors, tasks
from bnnp.evaluation import Oracle, Scores, evaluate
from bnnp.inference import infer
from bnnp.inference_nets.choices import Attentive, Pointwise
from bnnp.likelihoods.bernoulli import Bernoulli
from bnnp.likelihoods.categorical import Categorical
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.likelihoods.heteroscedastic import HeteroscedasticGaussian
from bnnp.models import BNAM, BNNP, AttBNNP, Transformer, WeightPosterior, load, load_posterior, zoo_names
from bnnp.networks.perceptron import Network
from bnnp.numerics.solve import FactorisationError
from bnnp.prediction.base import Predictive
from bnnp.prediction.mixture import MixturePredictive
from bnnp.prediction.sampled import SampledPredictive
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
    "Pointwise",
    "Attentive",
    "Transformer",
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
