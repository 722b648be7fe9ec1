"""What all neural processes share: no prior over weights, a network that reads contexts, one that predicts."""

import abc
from typing import Any, NoReturn

import torch
from numpy.typing import ArrayLike

from bnnp._core.random import Seed, as_integer
from bnnp._core.shapes import Float, Tensor
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.heteroscedastic import HeteroscedasticGaussian
from bnnp.models.base import MetaLearner, check_num_samples
from bnnp.neural_processes.posterior import Posterior
from bnnp.tasks.task import Task, TaskBatch


class NeuralProcess(MetaLearner):
    """A network that maps a data set to predictions. `fit`, `condition`, `save` work as for `bnnp.BNNP`.

    likelihood: where not given, a Gaussian whose mean and noise are predicted for every point, without a floor. With
        `bnnp.Gaussian(0.1)` there is one learned noise, as in the paper; `Bernoulli` and `Categorical` work too.
    """

    def __init__(self, in_size: int, out_size: int, likelihood: Likelihood | None):
        if min(in_size, out_size) < 1:
            raise ValueError(f"in_size, out_size: got {in_size}, {out_size}, expected positive numbers")
        super().__init__(in_size, out_size, likelihood if likelihood is not None else HeteroscedasticGaussian())
        self.numbers = self.likelihood.numbers_an_output * out_size

    @property
    def weight_prior(self) -> None:
        return None

    def summary(self) -> dict[str, object]:
        rest = {name: value for name, value in self._config.items() if name not in ("in_size", "out_size", "hidden")}
        sizes = " - ".join(str(size) for size in self._config["hidden"])
        return {"network": sizes, **{name.replace("_", " "): value for name, value in rest.items()}}

    @abc.abstractmethod
    def decode(self, latent: Any, x: Float[Tensor, "tasks points x"]) -> Float[Tensor, "tasks samples points out"]:
        """Outputs at inputs in the model's units, given what `infer` made of the contexts."""

    @abc.abstractmethod
    def numbers_a_point(self, context: int) -> int:
        """Numbers held at once for one sample at one input, given a context of so many points."""

    @abc.abstractmethod
    def posterior(self, task: Task, num_samples: int, seed: int) -> Posterior:
        """`condition`, after its checks."""

    def condition(
        self, x: ArrayLike | Tensor, y: ArrayLike | Tensor, *, num_samples: int = 1000, seed: Seed = 0
    ) -> Posterior:
        """Predictions given one data set, which may have no points.

        Example: `post = model.condition(x, y, num_samples=1000, seed=0)`; then `post.predict(x_new).mean`.
        """
        check_num_samples(num_samples)
        return self.posterior(self.checked_task(x, y), num_samples, as_integer(seed))

    def prepared(self, task: Task) -> TaskBatch:
        return self.prepare(TaskBatch.of([task], device=self.device))

    def log_likelihood(self, latent: Any, batch: TaskBatch, /) -> Float[Tensor, "tasks samples points"]:
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
