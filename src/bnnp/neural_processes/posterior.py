"""The posterior of a neural process for one data set."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.columns import Columns
from bnnp._core.shapes import Float, Tensor
from bnnp._core.show import Shown
from bnnp.likelihoods.shown import rows_of
from bnnp.prediction.sampled import SampledPredictive
from bnnp.tasks.task import Task

if TYPE_CHECKING:
    from bnnp.neural_processes.base import NeuralProcess


@dataclass(frozen=True, eq=False, repr=False)
class ProcessPosterior(Shown, abc.ABC):
    """The base of what `condition` returns: predictions given one data set.

    Attributes:
        model: The neural process.
        task: The points of the data set, in the user's units.
        num_samples: Number of samples of predictions and functions.
        seed: Seed of all draws.

    Example:
        >>> anp = bnnp.neural_processes.ANP(in_size=1, out_size=1, hidden=(8, 8), seed=0)
        >>> given = anp.condition(x, y, num_samples=5, seed=0)
        >>> isinstance(given, bnnp.neural_processes.ProcessPosterior)
        True
        >>> given.predict(x_new).mean.shape, len(given.functions())
        ((2, 1), 5)
        >>> len(given.update([[2.0]], [[1.0]]).task)
        4
    """

    model: Any
    task: Task
    num_samples: int
    seed: int

    @property
    def columns(self) -> Columns:
        """Names, shifts and scales of the user's columns."""
        return self.model.columns

    @property
    def known(self) -> Task:
        """The points of the data set, in the user's units."""
        return self.task

    def predict(self, x: ArrayLike | Tensor) -> SampledPredictive:
        """Predictions at new inputs.

        Args:
            x: Inputs (points, in).

        Returns:
            The predictions, with `mean`, `std`, `quantile` and `samples`, in the user's units.
        """
        model: NeuralProcess = self.model
        inputs = model.columns.inputs(x)
        model.columns.warn_outside(inputs)
        with torch.no_grad():
            prepared = model.columns.standardise_x(inputs.to(model.device)).to(model.dtype)
            return self.predictive(prepared).at(inputs)

    def update(self, x: ArrayLike | Tensor, y: ArrayLike | Tensor) -> ProcessPosterior:
        """A new posterior given these points and the earlier ones. This posterior stays as it is.

        Args:
            x: Inputs of the new points (points, in).
            y: Outputs of the new points (points, out).

        Returns:
            The posterior given all points.
        """
        more = self.model.checked_task(x, y)
        both = Task(torch.cat([self.task.x, more.x]), torch.cat([self.task.y, more.y]))
        return self.model.posterior(both, self.num_samples, self.seed)

    @abc.abstractmethod
    def predictive(self, x: Float[Tensor, "points x"]) -> SampledPredictive:
        """Predictions at inputs in the model's units."""

    @abc.abstractmethod
    def functions(self) -> Sequence[SampledFunction]:
        """Drawn functions, one per sample: `fs[0](x)` is a NumPy array (n, out), without observation noise."""

    def _described(self) -> dict[str, object]:
        rows = rows_of(self.model.columns, self.model.likelihood)
        return {"model": type(self.model).__name__, "points": len(self.task), "samples": self.num_samples, **rows}


@dataclass(frozen=True, eq=False)
class SampledFunction:
    """One drawn function: NumPy or tensor inputs (n, in) to NumPy outputs (n, out), in the user's units."""

    posterior: ProcessPosterior

    def __call__(self, x: ArrayLike | Tensor) -> np.ndarray:
        return self.posterior.predict(x).samples[0]
