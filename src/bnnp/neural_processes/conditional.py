"""Neural processes without a latent variable: every target is predicted by itself, or after those before it."""

from __future__ import annotations

import abc
import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import torch

from bnnp._core.checks import check_dtype
from bnnp._core.random import Seed, as_generator
from bnnp._core.shapes import Float, Tensor
from bnnp.inference_nets.pointwise import PointEncoder
from bnnp.likelihoods.base import Likelihood
from bnnp.neural_processes.aggregate import mean_of_points
from bnnp.neural_processes.autoregressive import AutoregressivePosterior
from bnnp.neural_processes.base import NeuralProcess
from bnnp.neural_processes.posterior import ProcessPosterior
from bnnp.prediction.sampled import SampledPredictive
from bnnp.prediction.weights import fill_in_blocks
from bnnp.tasks.task import Task, TaskBatch


@dataclass(frozen=True)
class Represented:
    """The representation of a context in the place of a latent variable: the same in every sample."""

    latent: Any

    def total_kl(self) -> NoReturn:
        raise ValueError("kl: there is no latent variable, and so no KL")


class ConditionalProcess(NeuralProcess):
    """A representation of the context, and predictions of single targets from it.

    Args:
        in_size: Number of input columns.
        out_size: Number of outputs (for `Categorical`, the number of classes).
        hidden: Units of the hidden layers; at least one.
        activation: Name of the nonlinearity.
        likelihood: See `NeuralProcess`.
        autoregressive: Whether `condition` draws functions point by point, see `AutoregressivePosterior`. Training is
            the same.
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden: Sequence[int],
        activation: str,
        likelihood: Likelihood | None,
        autoregressive: bool,
    ):
        super().__init__(in_size, out_size, hidden, activation, likelihood)
        self.autoregressive = autoregressive
        self._config["autoregressive"] = autoregressive

    @abc.abstractmethod
    def represent(self, context: TaskBatch) -> Any:
        """A representation of prepared contexts, from which `decode` predicts."""

    def infer(self, context: TaskBatch, num_samples: int, random: torch.Generator) -> Represented:
        return Represented(self.represent(context))

    def infer_with_targets(
        self, context: TaskBatch, everything: TaskBatch, num_samples: int, random: torch.Generator
    ) -> NoReturn:
        raise ValueError(
            f"objective: NPVI needs a latent variable, and a {type(self).__name__} has none; train it with "
            "bnnp.objectives.NPML()"
        )

    def as_autoregressive(self) -> Self:
        """A model that shares its parameters with this one and draws functions point by point.

        Example:
            >>> import bnnp
            >>> model = bnnp.neural_processes.CNP(in_size=1, out_size=1, hidden=(8,), seed=0).as_autoregressive()
            >>> len(model.condition([0.0, 1.0], [0.5, -0.5], num_samples=10).functions())
            10
        """
        other = copy.copy(self)
        other.autoregressive = True
        other._config = {**self._config, "autoregressive": True}
        return other

    def posterior(self, task: Task, num_samples: int, seed: int) -> ProcessPosterior:
        if self.autoregressive:
            return AutoregressivePosterior(self, task, num_samples, seed)
        with torch.no_grad():
            return MarginalPosterior(self, task, num_samples, seed, self.represent(self.prepared(task)))


@dataclass(frozen=True, eq=False, repr=False)
class MarginalPosterior(ProcessPosterior):
    """Predictions of single targets. All uncertainty is in their noise: the mean is the only function.

    Samples of observations have independent noise at every input.

    Attributes:
        representation: The representation of the context.
    """

    representation: Any

    def predictive(self, x: Float[Tensor, "points x"]) -> SampledPredictive:
        model: ConditionalProcess = self.model

        def compute(_: slice, here: slice) -> Tensor:
            return model.decode(self.representation, x[None, here])[0]

        outputs = x.new_empty(1, len(x), model.numbers)
        outputs = fill_in_blocks(outputs, compute, model.numbers_per_point(len(self.task)))
        return SampledPredictive(outputs.expand(self.num_samples, -1, -1), model.likelihood, model.columns)

    def functions(self) -> NoReturn:
        name = type(self.model).__name__
        raise ValueError(
            f"functions: a {name} predicts each target by itself and has no function samples; draw them point by point "
            f"with `model.as_autoregressive()`, or use a latent neural process"
        )


class CNP(ConditionalProcess):
    """The conditional neural process (Garnelo et al. 2018): predictions from the mean of the points' codes.

    It has no latent variable. Its arguments are those of `NP` but for that, and one of its own.

    Args:
        autoregressive: Whether to draw functions point by point (Bruinsma et al. 2023).

    Raises:
        ValueError: If a size is not positive or `hidden` is empty.

    Example:
        >>> cnp = bnnp.neural_processes.CNP(in_size=1, out_size=1, hidden=(8, 8), seed=0)
        >>> cnp.condition(x, y, num_samples=10, seed=0).predict(x_new).mean.shape
        (2, 1)
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden: Sequence[int] = (128, 128),
        activation: str = "silu",
        likelihood: Likelihood | None = None,
        *,
        autoregressive: bool = False,
        dtype: torch.dtype = torch.float32,
        seed: Seed = 0,
    ):
        super().__init__(in_size, out_size, hidden, activation, likelihood, autoregressive)
        hidden = self._config["hidden"]
        generator, width = as_generator(seed), hidden[-1]
        self.encoder = PointEncoder(in_size + out_size, width, hidden, activation, generator)
        self.decoder = PointEncoder(width + in_size, self.numbers, hidden, activation, generator)
        self.to(check_dtype(dtype))

    def represent(self, context: TaskBatch) -> Float[Tensor, "tasks width"]:
        return mean_of_points(self.encoder(self.points_of(context)), context.mask)

    def decode(
        self, latent: Float[Tensor, "tasks width"], x: Float[Tensor, "tasks points x"]
    ) -> Float[Tensor, "tasks one points out"]:
        code = latent.unsqueeze(1).expand(-1, x.shape[1], -1)
        return self.decoder(torch.cat([code, x], dim=-1)).unsqueeze(1)

    def numbers_per_point(self, context: int) -> int:
        return max(self.decoder.network.sizes)
