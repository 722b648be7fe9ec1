"""Scores of predictions, the best possible scores, and the calibration of inference."""

from bnnp.evaluation.calibration import Calibration, simulation_based_calibration
from bnnp.evaluation.oracle import Oracle
from bnnp.evaluation.score import lppd, score, with_noise
from bnnp.evaluation.scores import Scores, evaluate
from bnnp.evaluation.trust import check
from bnnp.models.trust import Trust

__all__ = [
    "Calibration",
    "Oracle",
    "Scores",
    "Trust",
    "check",
    "evaluate",
    "lppd",
    "score",
    "simulation_based_calibration",
    "with_noise",
]
