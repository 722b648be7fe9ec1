"""Predictions: what a model says about new points."""

from bnnp.prediction.base import Predictive
from bnnp.prediction.mixture import MixturePredictive
from bnnp.prediction.sampled import SampledPredictive

__all__ = ["MixturePredictive", "Predictive", "SampledPredictive"]
