"""Training objectives (paper, section 2.3 and App. A), each a sum of shared estimators.

An objective is called with a model, a batch and a generator, and returns its terms by name, one value per task. All are
maximised. Terms are sums over the points of a task.
"""

import abc
import math
import operator
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.models.estimates import Estimates, in_float64_where_needed
from bnnp.tasks.task import SplitBatch


class Model(Protocol):
    """What an objective asks of a model. One that lacks a part says so by a `ValueError`.

    estimate: given the contexts, and with the KL to the prior.
    estimate_with_targets: given all points, and with the KL to the posterior given the contexts alone.
    """

    def estimate(
        self,
        batch: SplitBatch,
        num_samples: int,
        random: torch.Generator,
        *,
        integrate: bool,
        group_size: int | None = None,
    ) -> Estimates: ...

    def estimate_with_targets(
        self, batch: SplitBatch, num_samples: int, random: torch.Generator, *, integrate: bool
    ) -> Estimates: ...


@dataclass(frozen=True)
class Terms:
    """The terms of an objective by name, weighted as they enter the sum; one value per task."""

    by_name: dict[str, Float[Tensor, "tasks"]]

    def total(self) -> Float[Tensor, "tasks"]:
        return reduce(operator.add, self.by_name.values())


# --- the two ways to average over samples ----------------------------------------------------------------------------


def log_expected(log_density: Float[Tensor, "tasks samples groups"]) -> Float[Tensor, "tasks"]:
    """`sum_g log (1/K) sum_k q_k(Y_g)`, the log predictive density of every group. Biased downwards for finite K."""
    return (torch.logsumexp(log_density, dim=1) - math.log(log_density.shape[1])).sum(-1)


def elbo_terms(estimates: Estimates, likelihood_weight: float, kl_weight: float) -> dict[str, Float[Tensor, "tasks"]]:
    """The evidence lower bound of the contexts, as `E_q[log p(Y_c | W)]` and `-KL[q || p]`."""
    return {"likelihood": likelihood_weight * estimates.context().mean(1), "kl": -kl_weight * estimates.kl().mean(1)}


# --- the objectives --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Objective(abc.ABC):
    """num_samples: samples of the hidden layers per task and step. A few are enough where the last layer is integrated;
        estimates by samples alone want about 32.
    integrate: integrate the last layer in closed form where the likelihood is Gaussian. Other likelihoods, and neural
        processes, are estimated by samples whatever this says; False does so for all, as the paper does.
    """

    num_samples: int = 4
    integrate: bool = True

    def __post_init__(self):
        if self.num_samples < 1:
            raise ValueError(f"num_samples: got {self.num_samples}, expected a positive number")

    def __call__(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Terms:
        """The terms for a prepared batch."""
        return in_float64_where_needed(self._estimates(model, batch, generator), self._terms)

    @abc.abstractmethod
    def _estimates(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Estimates: ...

    @abc.abstractmethod
    def _terms(self, estimates: Estimates) -> Terms: ...


@dataclass(frozen=True)
class _Predictive(Objective):
    """group_size: targets of a task whose joint density is one term; None for all of them together, as in the paper.

    Groups are random. A joint density of many targets needs one sample of the hidden layers that is right everywhere at
    once: where hidden weights have several modes, a few samples are not enough, and small groups learn better.
    `docs/training.md` compares sizes.
    """

    group_size: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.group_size is not None and self.group_size < 1:
            raise ValueError(f"group_size: got {self.group_size}, expected a positive number, or None for all targets")

    def _estimates(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Estimates:
        if self.group_size is not None and 1 < self.group_size < batch.target.x.shape[1]:
            batch = SplitBatch(batch.context, batch.target.shuffled(generator))
        return model.estimate(batch, self.num_samples, generator, integrate=self.integrate, group_size=self.group_size)


@dataclass(frozen=True)
class PPAVI(_Predictive):
    """Posterior-predictive amortised variational inference, the paper's objective: `log q(Y_t | D_c) + ELBO(D_c)`.

    group_size: pairs of targets by default, which is best or close to it on smooth functions and on those that jump.
    The weights temper the terms; 1 is the paper's definition, and 0.1 for `predictive_weight` and `kl_weight` its
    choice for Heaviside functions.
    """

    group_size: int | None = 2
    predictive_weight: float = 1.0
    likelihood_weight: float = 1.0
    kl_weight: float = 1.0

    def _terms(self, estimates: Estimates) -> Terms:
        predictive = self.predictive_weight * log_expected(estimates.predictive())
        return Terms({"predictive": predictive, **elbo_terms(estimates, self.likelihood_weight, self.kl_weight)})


@dataclass(frozen=True)
class AVI(Objective):
    """Amortised variational inference, meta-level empirical Bayes: `ELBO(D_c)`."""

    likelihood_weight: float = 1.0
    kl_weight: float = 1.0

    def _estimates(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Estimates:
        return model.estimate(batch.without_targets(), self.num_samples, generator, integrate=self.integrate)

    def _terms(self, estimates: Estimates) -> Terms:
        return Terms(elbo_terms(estimates, self.likelihood_weight, self.kl_weight))


@dataclass(frozen=True)
class NPML(_Predictive):
    """Neural-process maximum likelihood: `log q(Y_t | D_c)`."""

    predictive_weight: float = 1.0

    def _terms(self, estimates: Estimates) -> Terms:
        return Terms({"predictive": self.predictive_weight * log_expected(estimates.predictive())})


@dataclass(frozen=True)
class NPVI(Objective):
    """Neural-process variational inference: `E_q(W|D)[log p(Y_t | W)] - KL[q(W | D) || q(W | D_c)]`.

    With the last layer integrated, the expectation and the last layer's part of the KL are in closed form given the
    hidden layers. The hidden layers' part is estimated by their samples, without bias: a closed form given the layers
    before would need the covariance of every hidden unit. Latent neural processes have their KL in closed form.
    """

    likelihood_weight: float = 1.0
    kl_weight: float = 1.0

    def _estimates(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Estimates:
        return model.estimate_with_targets(batch, self.num_samples, generator, integrate=self.integrate)

    def _terms(self, estimates: Estimates) -> Terms:
        likelihood = self.likelihood_weight * estimates.target().mean(1)
        return Terms({"likelihood": likelihood, "kl": -self.kl_weight * estimates.kl().mean(1)})


@dataclass(frozen=True)
class TELLAVI(Objective):
    """Target-expected-log-likelihood AVI: `E_q(W|D_c)[log p(Y_t | W)] + ELBO(D_c)`; unbiased with any `num_samples`."""

    target_weight: float = 1.0
    likelihood_weight: float = 1.0
    kl_weight: float = 1.0

    def _estimates(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Estimates:
        return model.estimate(batch, self.num_samples, generator, integrate=self.integrate)

    def _terms(self, estimates: Estimates) -> Terms:
        expected = self.target_weight * estimates.target().mean(1)
        return Terms({"target": expected, **elbo_terms(estimates, self.likelihood_weight, self.kl_weight)})
