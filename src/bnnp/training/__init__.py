"""Meta-training."""

from bnnp.training.fit import FitResult, TrainingDiverged, fit
from bnnp.training.history import History

__all__ = ["FitResult", "History", "TrainingDiverged", "fit"]
