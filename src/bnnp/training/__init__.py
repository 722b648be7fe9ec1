"""Meta-training."""

from bnnp.training.checkpoint import Checkpointing
from bnnp.training.fit import FallbackWarning, FitResult, fit
from bnnp.training.history import History
from bnnp.training.prepare import start_prior
from bnnp.training.run import TrainingDiverged
from bnnp.training.settings import Evaluation, FitSettings

__all__ = [
    "Checkpointing",
    "Evaluation",
    "FallbackWarning",
    "FitResult",
    "FitSettings",
    "History",
    "TrainingDiverged",
    "fit",
    "start_prior",
]
