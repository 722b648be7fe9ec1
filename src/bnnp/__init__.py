"""bnnp: meta-learn a prior over the weights of a neural network, and an amortised posterior for each new data set."""

from typing import TYPE_CHECKING

import bnnp._core.waiting  # noqa: F401, before torch
from bnnp._core.lazy import lazily

if TYPE_CHECKING:  # the same names once more, for editors and type checkers
    from bnnp import evaluation as evaluation
    from bnnp import inference as inference
    from bnnp import likelihoods as likelihoods
    from bnnp import models as models
    from bnnp import networks as networks
    from bnnp import neural_processes as neural_processes
    from bnnp import objectives as objectives
    from bnnp import plots as plots
    from bnnp import prediction as prediction
    from bnnp import priors as priors
    from bnnp import tasks as tasks
    from bnnp import training as training
    from bnnp.comparison import Comparison as Comparison
    from bnnp.comparison import compare as compare
    from bnnp.estimator import BNNPClassifier as BNNPClassifier
    from bnnp.estimator import BNNPRegressor as BNNPRegressor
    from bnnp.estimator import ContextSplit as ContextSplit
    from bnnp.estimator import fit_table as fit_table
    from bnnp.evaluation import Oracle as Oracle
    from bnnp.evaluation import Scores as Scores
    from bnnp.evaluation import evaluate as evaluate
    from bnnp.exchange import to_arviz as to_arviz
    from bnnp.inference import infer as infer
    from bnnp.inference_nets.choices import Attentive as Attentive
    from bnnp.inference_nets.choices import Pointwise as Pointwise
    from bnnp.likelihoods.bernoulli import Bernoulli as Bernoulli
    from bnnp.likelihoods.categorical import Categorical as Categorical
    from bnnp.likelihoods.gaussian import Gaussian as Gaussian
    from bnnp.likelihoods.heteroscedastic import HeteroscedasticGaussian as HeteroscedasticGaussian
    from bnnp.models import BNAM as BNAM
    from bnnp.models import BNNP as BNNP
    from bnnp.models import AttBNNP as AttBNNP
    from bnnp.models import Transformer as Transformer
    from bnnp.models import WeightPosterior as WeightPosterior
    from bnnp.models import WeightPosteriors as WeightPosteriors
    from bnnp.models import load as load
    from bnnp.models import load_posterior as load_posterior
    from bnnp.models import zoo_names as zoo_names
    from bnnp.networks.perceptron import Network as Network
    from bnnp.numerics.solve import FactorisationError as FactorisationError
    from bnnp.prediction import ExtrapolationWarning as ExtrapolationWarning
    from bnnp.prediction.base import Predictive as Predictive
    from bnnp.prediction.mixture import MixturePredictive as MixturePredictive
    from bnnp.prediction.sampled import SampledPredictive as SampledPredictive
    from bnnp.priors import starts as starts
    from bnnp.recipe import Learned as Learned
    from bnnp.recipe import learn as learn
    from bnnp.training import Checkpointing as Checkpointing
    from bnnp.training import Evaluation as Evaluation
    from bnnp.training import FitResult as FitResult
    from bnnp.training import FitSettings as FitSettings
    from bnnp.training import History as History
    from bnnp.training import TrainingDiverged as TrainingDiverged
    from bnnp.training import fit as fit
    from bnnp.training import start_prior as start_prior

__version__ = "0.1.0"

_PLACES = {
    # data
    "tasks": "bnnp.tasks",
    # the model
    "priors": "bnnp.priors",
    "starts": "bnnp.priors",
    "likelihoods": "bnnp.likelihoods",
    "Gaussian": "bnnp.likelihoods.gaussian",
    "HeteroscedasticGaussian": "bnnp.likelihoods.heteroscedastic",
    "Bernoulli": "bnnp.likelihoods.bernoulli",
    "Categorical": "bnnp.likelihoods.categorical",
    "networks": "bnnp.networks",
    "Network": "bnnp.networks.perceptron",
    "models": "bnnp.models",
    "BNNP": "bnnp.models",
    "AttBNNP": "bnnp.models",
    "BNAM": "bnnp.models",
    "Pointwise": "bnnp.inference_nets.choices",
    "Attentive": "bnnp.inference_nets.choices",
    "Transformer": "bnnp.models",
    "WeightPosterior": "bnnp.models",
    "WeightPosteriors": "bnnp.models",
    "load": "bnnp.models",
    "load_posterior": "bnnp.models",
    "zoo_names": "bnnp.models",
    # training
    "objectives": "bnnp.objectives",
    "training": "bnnp.training",
    "fit": "bnnp.training",
    "FitSettings": "bnnp.training",
    "Evaluation": "bnnp.training",
    "Checkpointing": "bnnp.training",
    "start_prior": "bnnp.training",
    "FitResult": "bnnp.training",
    "History": "bnnp.training",
    "TrainingDiverged": "bnnp.training",
    "FactorisationError": "bnnp.numerics.solve",
    # other ways to infer the same weights
    "inference": "bnnp.inference",
    "infer": "bnnp.inference",
    # peers
    "neural_processes": "bnnp.neural_processes",
    # prediction and evaluation
    "prediction": "bnnp.prediction",
    "Predictive": "bnnp.prediction.base",
    "MixturePredictive": "bnnp.prediction.mixture",
    "ExtrapolationWarning": "bnnp.prediction",
    "SampledPredictive": "bnnp.prediction.sampled",
    "evaluation": "bnnp.evaluation",
    "evaluate": "bnnp.evaluation",
    "learn": "bnnp.recipe",
    "Learned": "bnnp.recipe",
    "Oracle": "bnnp.evaluation",
    "Scores": "bnnp.evaluation",
    "plots": "bnnp.plots",
    "to_arviz": "bnnp.exchange",
    # tables and scikit-learn
    "BNNPRegressor": "bnnp.estimator",
    "BNNPClassifier": "bnnp.estimator",
    "ContextSplit": "bnnp.estimator",
    "fit_table": "bnnp.estimator",
    "compare": "bnnp.comparison",
    "Comparison": "bnnp.comparison",
}

__all__ = list(_PLACES)  # pyright: ignore[reportUnsupportedDunderAll]
__getattr__, __dir__ = lazily(__name__, _PLACES)
