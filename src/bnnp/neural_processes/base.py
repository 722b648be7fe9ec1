"""What all neural processes share: no prior over weights, a network that reads contexts, one that predicts."""

import abc
from collections.abc import Sequence
from typing import Any, NoReturn

import torch
from numpy.typing import ArrayLike

from bnnp._core.checks import check_samples, check_sizes
from bnnp._core.random import Seed, as_integer
from bnnp._core.shapes import Float, Tensor
from bnnp.likelihoods.base import Likelihood, checked_likelihood
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.likelihoods.heteroscedastic import HeteroscedasticGaussian
from bnnp.models.base import MetaLearner
from bnnp.neural_processes.posterior import ProcessPosterior
from bnnp.tasks.task import Task, TaskBatch


class NeuralProcess(MetaLearner):
    """The base of all neural processes: networks that map a data set to predictions.

    `fit`, `condition` and `save` work as for `bnnp.BNNP`.

    Args:
        in_size: Number of input columns.
        out_size: Number of outputs (for `Categorical`, the number of classes).
        hidden: Units of the hidden layers; at least one.
        activation: Name of the nonlinearity.
        likelihood: By default a Gaussian whose mean and noise are predicted for every point, without a floor. With
            `bnnp.Gaussian(0.1)` there is one learned noise, as in the paper; `Bernoulli` and `Categorical` work too.

    Raises:
        ValueError: If a size is not positive, `hidden` is empty, or the noise of the likelihood varies with the inputs.

    Example:
        >>> issubclass(bnnp.neural_processes.CNP, bnnp.neural_processes.NeuralProcess)
        True
    """

    def __init__(
        self, in_size: int, out_size: int, hidden: Sequence[int], activation: str, likelihood: Likelihood | None
    ):
        likelihood = HeteroscedasticGaussian() if likelihood is None else checked_likelihood(likelihood)
        if isinstance(likelihood, Gaussian) and likelihood.varies:
            raise ValueError(
                "likelihood: got a noise that varies with the inputs, which belongs to a prior over weights; expected "
                "HeteroscedasticGaussian(), whose noise the network predicts"
            )
        super().__init__(in_size, out_size, likelihood)
        self.numbers = self.likelihood.outputs_per_target * out_size
        widths = check_sizes("hidden", hidden)
        if not widths:
            raise ValueError(f"hidden: got {hidden}, expected at least one layer, as in (128, 128)")
        self._config = {"in_size": in_size, "out_size": out_size, "hidden": list(widths), "activation": activation}

    @property
    def weight_prior(self) -> None:
        return None

    def summary(self) -> dict[str, object]:
        rest = {name: value for name, value in self._config.items() if name not in ("in_size", "out_size", "hidden")}
        sizes = " - ".join(str(size) for size in self._config["hidden"])
        return {"network": sizes, **{name.replace("_", " "): value for name, value in rest.items()}}

    @abc.abstractmethod
    def decode(self, latent: Any, x: Float[Tensor, "tasks points x"]) -> Float[Tensor, "tasks samples points out"]:
        """Outputs at inputs in the model's units, given the latent variable from `infer`."""

    @abc.abstractmethod
    def numbers_per_point(self, context: int) -> int:
        """Numbers in memory for one sample at one input, given a context of `context` points."""

    @abc.abstractmethod
    def posterior(self, task: Task, num_samples: int, seed: int) -> ProcessPosterior:
        """The posterior for a checked task; `condition` calls it."""

    def condition(
        self, x: ArrayLike | Tensor, y: ArrayLike | Tensor, *, num_samples: int = 1000, seed: Seed = 0
    ) -> ProcessPosterior:
        """Condition on one data set, which may have no points.

        Args:
            x: Inputs (points, in).
            y: Outputs (points, out).
            num_samples: Number of samples of predictions and functions.
            seed: Seed of all draws.

        Returns:
            The posterior, with `predict`, `functions` and `update`.

        Raises:
            ValueError: If the data do not fit the model, or `num_samples` is not positive.

        Example:
            >>> import bnnp
            >>> model = bnnp.neural_processes.NP(in_size=1, out_size=1, hidden=(8,), seed=0)
            >>> post = model.condition([0.0, 1.0], [0.5, -0.5], num_samples=10, seed=0)
            >>> post.predict([0.25]).mean.shape
            (1, 1)
        """
        check_samples(num_samples)
        return self.posterior(self.checked_task(x, y), num_samples, as_integer(seed))

    def prepared(self, task: Task) -> TaskBatch:
        """A task as a batch of one, in the model's units."""
        return self.prepare(TaskBatch.of([task], device=self.device))

    def log_likelihood(self, latent: Any, batch: TaskBatch, /) -> Float[Tensor, "tasks samples points"]:
        """Log-density of every point under every sample; 0 for padding."""
        terms = self.likelihood.log_prob(self.decode(latent, batch.x), batch.y.unsqueeze(1))
        return terms * batch.mask.unsqueeze(1)

    def context_log_likelihood(self, inferred: Any, context: TaskBatch) -> NoReturn:
        """Neural processes have no evidence lower bound of a context."""
        raise ValueError(
            f"objective: the ELBO of a context needs a prior over weights, and a {type(self).__name__} has none; train "
            "it with bnnp.objectives.NPML(), or a latent neural process with NPVI()"
        )

    def points_of(self, context: TaskBatch) -> Float[Tensor, "tasks points features"]:
        """Inputs and outputs side by side, as the networks see them."""
        return torch.cat([context.x, self.likelihood.encode(context.y)], dim=-1)
