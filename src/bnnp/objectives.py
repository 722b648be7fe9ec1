"""Training objectives (paper, section 2.3 and App. A), each a sum of shared estimators.

An objective is called with a model, a batch and a generator, and returns its terms by name, one value a task. All are
maximised. Terms are sums over the points of a task.
"""

import abc
import math
import operator
from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import torch

from bnnp._shapes import Float, Tensor
from bnnp.tasks.task import SplitBatch, TaskBatch


class Inferred(Protocol):
    """What a model makes of contexts.

    latent: samples of its latent variable, as `log_likelihood` takes them: the weights of a network, or whatever a
        neural process predicts from.
    """

    @property
    def latent(self) -> Any: ...

    def total_kl(self) -> Tensor: ...


class Model(Protocol):
    """What an objective asks of a model. One that lacks a part says so by a `ValueError`.

    infer_and_score: samples given the contexts, with the log-likelihoods of contexts and targets: what `infer`,
        `context_log_likelihood` and `log_likelihood` give, which a model may compute more cheaply together.
    infer_with_targets: samples given all points, and as their KL that to the posterior given the contexts alone.
    """

    def infer(self, context: TaskBatch, num_samples: int, random: torch.Generator) -> Inferred: ...

    def infer_and_score(
        self, batch: SplitBatch, num_samples: int, random: torch.Generator
    ) -> tuple[Inferred, Tensor, Tensor]: ...

    def infer_with_targets(
        self, context: TaskBatch, everything: TaskBatch, num_samples: int, random: torch.Generator
    ) -> Inferred: ...

    def log_likelihood(self, latent: Any, batch: TaskBatch, /) -> Tensor: ...

    def context_log_likelihood(self, inferred: Any, context: TaskBatch) -> Tensor: ...


@dataclass(frozen=True)
class Terms:
    """The terms of an objective by name, weighted as they enter the sum; one value a task."""

    by_name: dict[str, Float[Tensor, "tasks"]]

    def total(self) -> Float[Tensor, "tasks"]:
        return reduce(operator.add, self.by_name.values())


# --- the three estimators --------------------------------------------------------------------------------------------


def log_expected_likelihood(log_likelihood: Float[Tensor, "tasks samples points"]) -> Float[Tensor, "tasks"]:
    """`log (1/K) sum_k p(Y | W_k)`, the log posterior predictive density. Biased downwards for finite K."""
    return torch.logsumexp(log_likelihood.sum(-1), dim=1) - math.log(log_likelihood.shape[1])


def expected_log_likelihood(log_likelihood: Float[Tensor, "tasks samples points"]) -> Float[Tensor, "tasks"]:
    """`(1/K) sum_k log p(Y | W_k)`. Unbiased."""
    return log_likelihood.sum(-1).mean(1)


def kl_to_prior(inferred: Inferred) -> Float[Tensor, "tasks"]:
    """The layerwise KLs in closed form, summed over layers and averaged over samples of the layers before."""
    return inferred.total_kl()


def elbo_terms(
    inferred: Inferred,
    log_likelihood: Float[Tensor, "tasks samples points"],
    likelihood_weight: float,
    kl_weight: float,
) -> dict[str, Float[Tensor, "tasks"]]:
    """The evidence lower bound of the contexts, as `E_q[log p(Y_c | W)]` and `-KL[q || p]`."""
    return {
        "likelihood": likelihood_weight * expected_log_likelihood(log_likelihood),
        "kl": -kl_weight * kl_to_prior(inferred),
    }


# --- the objectives --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective(abc.ABC):
    """num_samples: weight samples a task and step."""

    num_samples: int = 32

    def __post_init__(self):
        if self.num_samples < 1:
            raise ValueError(f"num_samples: got {self.num_samples}, expected a positive number")

    @abc.abstractmethod
    def __call__(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Terms:
        """The terms for a prepared batch."""


@dataclass(frozen=True)
class PPAVI(Objective):
    """Posterior-predictive amortised variational inference, the paper's objective: `log q(Y_t | D_c) + ELBO(D_c)`.

    The weights temper the terms; 1 is the paper's definition, and 0.1 for `predictive_weight` and `kl_weight` its
    choice for Heaviside functions.
    """

    predictive_weight: float = 1.0
    likelihood_weight: float = 1.0
    kl_weight: float = 1.0

    def __call__(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Terms:
        inferred, context, target = model.infer_and_score(batch, self.num_samples, generator)
        predictive = self.predictive_weight * log_expected_likelihood(target)
        elbo = elbo_terms(inferred, context, self.likelihood_weight, self.kl_weight)
        return Terms({"predictive": predictive, **elbo})


@dataclass(frozen=True)
class AVI(Objective):
    """Amortised variational inference, meta-level empirical Bayes: `ELBO(D_c)`."""

    likelihood_weight: float = 1.0
    kl_weight: float = 1.0

    def __call__(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Terms:
        inferred = model.infer(batch.context, self.num_samples, generator)
        context = model.context_log_likelihood(inferred, batch.context)
        return Terms(elbo_terms(inferred, context, self.likelihood_weight, self.kl_weight))


@dataclass(frozen=True)
class NPML(Objective):
    """Neural-process maximum likelihood: `log q(Y_t | D_c)`."""

    predictive_weight: float = 1.0

    def __call__(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Terms:
        inferred = model.infer(batch.context, self.num_samples, generator)
        target = model.log_likelihood(inferred.latent, batch.target)
        return Terms({"predictive": self.predictive_weight * log_expected_likelihood(target)})


@dataclass(frozen=True)
class NPVI(Objective):
    """Neural-process variational inference: `E_q(W|D)[log p(Y_t | W)] - KL[q(W | D) || q(W | D_c)]`.

    The KL between the two approximate posteriors is in closed form where the model has one (latent neural processes);
    over the weights of a network it is estimated by their samples, without bias.
    """

    likelihood_weight: float = 1.0
    kl_weight: float = 1.0

    def __call__(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Terms:
        inferred = model.infer_with_targets(batch.context, batch.joined(), self.num_samples, generator)
        target = model.log_likelihood(inferred.latent, batch.target)
        return Terms(
            {
                "likelihood": self.likelihood_weight * expected_log_likelihood(target),
                "kl": -self.kl_weight * inferred.total_kl(),
            }
        )


@dataclass(frozen=True)
class TELLAVI(Objective):
    """Target-expected-log-likelihood AVI: `E_q(W|D_c)[log p(Y_t | W)] + ELBO(D_c)`; unbiased with any `num_samples`."""

    target_weight: float = 1.0
    likelihood_weight: float = 1.0
    kl_weight: float = 1.0

    def __call__(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Terms:
        inferred, context, target = model.infer_and_score(batch, self.num_samples, generator)
        expected = self.target_weight * expected_log_likelihood(target)
        elbo = elbo_terms(inferred, context, self.likelihood_weight, self.kl_weight)
        return Terms({"target": expected, **elbo})
