"""Predictions at new inputs."""

from bnnp.prediction.base import Predictive
from bnnp.prediction.mixture import MixturePredictive
from bnnp.prediction.sampled import SampledPredictive

__all__ = ["MixturePredictive", "Predictive", "SampledPredictive"]
