"""Scores, and the best possible ones."""

from bnnp.evaluation.oracle import Oracle
from bnnp.evaluation.scores import Scores, evaluate, lppd, score, with_noise

__all__ = ["Oracle", "Scores", "evaluate", "lppd", "score", "with_noise"]
