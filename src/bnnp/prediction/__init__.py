"""Predictions at new inputs."""

from bnnp._core.columns import ExtrapolationWarning
from bnnp.prediction.base import Predictive
from bnnp.prediction.mixture import MixturePredictive
from bnnp.prediction.sampled import SampledPredictive

__all__ = ["ExtrapolationWarning", "MixturePredictive", "Predictive", "SampledPredictive"]
