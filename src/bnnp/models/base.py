"""What all models that learn from tasks share: the user's columns, units and precision, and the file on disk."""

import abc
from pathlib import Path
from typing import Any, Protocol

import torch
from numpy.typing import ArrayLike
from torch import Generator, nn

from bnnp._core.checks import check_count
from bnnp._core.columns import Columns
from bnnp._core.random import Seed
from bnnp._core.shapes import Float, Tensor
from bnnp._core.show import Shown
from bnnp._core.tensor_files import write_tensors
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.by_name import LIKELIHOODS
from bnnp.likelihoods.shown import rows_of
from bnnp.models.estimates import Integrated, Sampled
from bnnp.priors import Prior
from bnnp.tasks.task import SplitBatch, Task, TaskBatch


class MetaLearner(Shown, nn.Module, abc.ABC):
    """A model that `bnnp.fit` trains on tasks: one with weights to be inferred, or a neural process.

    It has the methods that objectives call (`bnnp.objectives.Model`). A model that lacks one raises a `ValueError`.

    Args:
        in_size: Input columns.
        out_size: Outputs as the user counts them. The likelihood may need several numbers for each of them.
        likelihood: The likelihood of an observation.

    Attributes:
        in_size: Input columns.
        y_size: Columns of the observed outputs.
        likelihood: The likelihood of an observation.
        columns: Names, shifts and scales of the user's inputs and outputs.
    """

    likelihood: Likelihood
    columns: Columns

    def __init__(self, in_size: int, out_size: int, likelihood: Likelihood):
        super().__init__()
        check_count("in_size", in_size, "whole number of input columns, as in 1")
        check_count("out_size", out_size, "whole number of outputs, as in 1")
        self.in_size = in_size
        self.likelihood = likelihood.for_outputs(likelihood.outputs_per_target * out_size)
        self.y_size = self.likelihood.y_size(likelihood.outputs_per_target * out_size)
        self.columns = Columns(in_size, out_size, y_names=[f"y{i}" for i in range(self.y_size)])
        self._config: dict[str, Any] = {}

    @property
    @abc.abstractmethod
    def weight_prior(self) -> Prior | None:
        """The prior over weights that training learns; None for models without one."""

    @abc.abstractmethod
    def summary(self) -> dict[str, object]:
        """The rows that describe this kind of model, by name."""

    @abc.abstractmethod
    def condition(self, x: Any, y: Any, *, num_samples: int = 1000, seed: Seed = 0) -> Any:
        """Give the posterior for one data set: an object with `predict`, `functions` and `update`.

        Args:
            x: Inputs (points, in).
            y: Outputs (points, out).
            num_samples: Number of samples.
            seed: Seed of the draws.
        """

    @abc.abstractmethod
    def infer(self, context: TaskBatch, num_samples: int, random: Generator) -> Any:
        """Samples of the latent variable given prepared contexts."""

    def estimate(
        self, batch: SplitBatch, num_samples: int, random: Generator, *, integrate: bool, group_size: int | None = None
    ) -> Sampled | Integrated:
        """The terms of objectives, from samples given the contexts.

        Args:
            batch: Prepared contexts and targets.
            num_samples: Samples per task.
            random: The generator of the draws.
            integrate: Whether to integrate the last layer in closed form, where the model can.
            group_size: Targets per group; None for all targets in one group.
        """
        return estimate_by_samples(self, batch, self.infer(batch.context, num_samples, random), group_size)

    def estimate_with_targets(
        self, batch: SplitBatch, num_samples: int, random: Generator, *, integrate: bool
    ) -> Sampled | Integrated:
        """The terms of objectives, from samples given all points. The KL is to the posterior given the contexts alone.

        It takes what `estimate` takes.
        """
        inferred = self.infer_with_targets(batch.context, batch.joined(), num_samples, random)
        return Sampled(
            inferred,
            lambda: self.log_likelihood(inferred.latent, batch.context),
            lambda: self.log_likelihood(inferred.latent, batch.target),
        )

    @abc.abstractmethod
    def infer_with_targets(self, context: TaskBatch, everything: TaskBatch, num_samples: int, random: Generator) -> Any:
        """Samples given all points of the tasks, with their KL to the posterior given the contexts alone."""

    @abc.abstractmethod
    def log_likelihood(self, latent: Any, batch: TaskBatch, /) -> Float[Tensor, "tasks samples points"]:
        """Log-density of every point under every sample; 0 where there is no point."""

    @abc.abstractmethod
    def context_log_likelihood(self, inferred: Any, context: TaskBatch) -> Float[Tensor, "tasks samples points"]:
        """`log_likelihood` of the contexts that the samples were inferred from."""

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the model."""
        return self.columns.x_shift.dtype

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return self.columns.x_shift.device

    def checked_task(self, x: ArrayLike | Tensor, y: ArrayLike | Tensor) -> Task:
        """A user's data as a task that fits this model.

        Raises:
            ValueError: If the columns or the numbers of points do not fit.
        """
        inputs = self.columns.inputs(x)
        outputs = self.columns.outputs(y, real_valued=self.likelihood.real_valued)
        if len(inputs) != len(outputs):
            raise ValueError(f"x and y: got {len(inputs)} and {len(outputs)} points, expected as many of each")
        self.likelihood.check(outputs)
        return Task(inputs, outputs)

    def prepare(self, batch: TaskBatch) -> TaskBatch:
        """The batch in the model's own units and precision. Units are converted first, in the batch's own float64."""
        y = self.columns.standardise_y(batch.y) if self.likelihood.real_valued else batch.y
        return TaskBatch(self.columns.standardise_x(batch.x).to(self.dtype), y.to(self.dtype), batch.mask)

    def save(self, path: str | Path) -> Path:
        """Write the model to one file, which `bnnp.load` reads: safetensors with a JSON header.

        Args:
            path: The file to write.

        Returns:
            The path of the file.

        Raises:
            ValueError: If a part of the model is an object of your own, which a file cannot hold.

        Example:
            >>> model.save("model.bnnp").name
            'model.bnnp'
        """
        return write_tensors(path, "model", self.state_dict(), model_header(self))

    def config(self) -> dict[str, Any]:
        """The arguments of the constructor as plain values, from which `bnnp.models.saving.rebuild` makes the model."""
        return {**self._config, "likelihood": self.likelihood.config()}

    def _described(self) -> dict[str, object]:
        count, precision = sum(p.numel() for p in self.parameters()), str(self.dtype).removeprefix("torch.")
        return {**rows_of(self.columns, self.likelihood), **self.summary(), "parameters": f"{count} in {precision}"}


class Scoring(Protocol):
    """The methods of a model, or of a model with contexts in chunks, that estimates by samples call."""

    def log_likelihood(self, latent: Any, batch: TaskBatch, /) -> Tensor: ...

    def context_log_likelihood(self, inferred: Any, context: TaskBatch) -> Tensor: ...


def estimate_by_samples(model: Scoring, batch: SplitBatch, inferred: Any, group_size: int | None) -> Sampled:
    """The terms of objectives, from samples of the latent variable given the contexts.

    Args:
        model: The model, which scores the points.
        batch: Prepared contexts and targets.
        inferred: The samples.
        group_size: Targets per group; None for all targets in one group.
    """
    return Sampled(
        inferred,
        lambda: model.context_log_likelihood(inferred, batch.context),
        lambda: model.log_likelihood(inferred.latent, batch.target),
        group_size,
    )


def model_header(model: MetaLearner) -> dict[str, Any]:
    """What a file holds of a model beside its tensors.

    Raises:
        ValueError: If a part of the model is an object of the user's own, which a file cannot hold.
    """
    config = model.config()
    own = [name for name in ("activation", "prior", "inference") if not isinstance(config.get(name, ""), (str, dict))]
    if type(model.likelihood) not in LIKELIHOODS.values():
        own.append("likelihood")
    if own:
        raise ValueError(
            f"{own[0]}: a model whose {own[0]} is an object of your own cannot be saved; use a name instead"
        )
    header = {
        "class": type(model).__name__,
        "config": config,
        "dtype": str(model.dtype).removeprefix("torch."),
        "columns": model.columns.record(),
    }
    if model.weight_prior is not None:
        header["prior_learnability"] = model.weight_prior.learnability
    return header
