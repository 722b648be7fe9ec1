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

from bnnp._core.checks import check_count, check_flag, check_samples
from bnnp._core.shapes import Float, Tensor
from bnnp._core.show import Shown
from bnnp.models.estimates import Estimates, in_float64_where_needed
from bnnp.tasks.task import SplitBatch

__all__ = ["AVI", "NPML", "NPVI", "PPAVI", "TELLAVI", "Objective", "Terms"]


class Model(Protocol):
    """The two estimates that an objective asks of a model. A model that cannot give one of them raises `ValueError`."""

    def estimate(
        self,
        batch: SplitBatch,
        num_samples: int,
        random: torch.Generator,
        *,
        integrate: bool,
        group_size: int | None = None,
    ) -> Estimates:
        """Estimates under the posterior given the contexts, with the KL divergence to the prior."""
        ...

    def estimate_with_targets(
        self, batch: SplitBatch, num_samples: int, random: torch.Generator, *, integrate: bool
    ) -> Estimates:
        """Estimates under the posterior given all points, with the KL divergence to that given the contexts alone."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Terms(Shown):
    """The terms of an objective.

    Attributes:
        by_name: The terms by name, weighted as they enter the sum, each with one value per task.

    Example:
        >>> import torch
        >>> terms = bnnp.objectives.Terms({"likelihood": torch.tensor([1.0, 2.0]), "kl": torch.tensor([-0.5, -0.5])})
        >>> terms.total().tolist()
        [0.5, 1.5]
    """

    by_name: dict[str, Float[Tensor, "tasks"]]

    def total(self) -> Float[Tensor, "tasks"]:
        """The objective: the sum of its terms, one value per task."""
        return reduce(operator.add, self.by_name.values())

    def _described(self) -> dict[str, object]:
        return {name: f"{float(values.mean()):.4g} on average" for name, values in self.by_name.items()}


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
    """What training maximises. The base of all objectives, which `bnnp.fit` takes as `objective`.

    Args:
        num_samples: Number of samples of the hidden layers per task and step. A few are enough if the last layer is
            integrated; estimates by samples alone need about 32.
        integrate: Whether to integrate the last layer in closed form if the likelihood is Gaussian. False estimates
            everything by samples, as the paper does. Models with another likelihood and neural processes always
            estimate by samples.

    Raises:
        ValueError: If `num_samples` is not positive.

    Example:
        >>> objective = bnnp.objectives.PPAVI(num_samples=8)
        >>> isinstance(objective, bnnp.objectives.Objective)
        True
    """

    num_samples: int = 4
    integrate: bool = True

    def __post_init__(self):
        check_samples(self.num_samples)
        check_flag("integrate", self.integrate)

    def __call__(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Terms:
        """The terms of the objective for a batch.

        Args:
            model: The model to train.
            batch: Tasks as the model sees them (`model.prepare`).
            generator: Source of all random numbers.

        Returns:
            The terms, one value per task.
        """
        return in_float64_where_needed(self._estimates(model, batch, generator), self._terms)

    @abc.abstractmethod
    def _estimates(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Estimates: ...

    @abc.abstractmethod
    def _terms(self, estimates: Estimates) -> Terms: ...


@dataclass(frozen=True)
class _Predictive(Objective):
    """An objective with the log predictive density of the targets, in random groups of targets.

    The joint density of many targets needs one sample of the hidden layers that is right for all of them at once. If
    the hidden weights have several modes, a few samples are not enough, and small groups learn better.
    `docs/notes/last_layer.md` compares sizes.

    Args:
        group_size: Number of targets of a task whose joint density is one term; None for all targets together, as in
            the paper.
    """

    group_size: int | None = None

    def __post_init__(self):
        super().__post_init__()
        if self.group_size is not None:
            check_count("group_size", self.group_size, "whole number of targets, as in 4, or None for all targets")

    def _estimates(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Estimates:
        if self.group_size is not None and 1 < self.group_size < batch.target.x.shape[1]:
            batch = SplitBatch(batch.context, batch.target.shuffled(generator))
        return model.estimate(batch, self.num_samples, generator, integrate=self.integrate, group_size=self.group_size)


@dataclass(frozen=True)
class PPAVI(_Predictive):
    """Posterior-predictive amortised variational inference, the paper's objective: `log q(Y_t | D_c) + ELBO(D_c)`.

    The weights temper the terms. With all weights 1 this is the paper's definition; for Heaviside functions the paper
    sets `predictive_weight` and `kl_weight` to 0.1.

    Args:
        num_samples: As in `Objective`.
        integrate: As in `Objective`.
        group_size: Number of targets of a task whose joint density is one term; None for all targets together, as in
            the paper. The default, pairs, is best or close to it on smooth functions and on those that jump.
        predictive_weight: Weight of the predictive density.
        likelihood_weight: Weight of the expected log-likelihood.
        kl_weight: Weight of the KL divergence.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8, 8), likelihood=bnnp.Gaussian(0.1))
        >>> objective = bnnp.objectives.PPAVI(num_samples=2, kl_weight=0.1)
        >>> result = bnnp.fit(model, tasks, objective=objective, steps=1, progress=False)
        >>> [name for name in result.history.steps[0] if name in ("predictive", "likelihood", "kl")]
        ['predictive', 'likelihood', 'kl']
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
    """Amortised variational inference, meta-level empirical Bayes: `ELBO(D_c)`.

    Args:
        num_samples: As in `Objective`.
        integrate: As in `Objective`.
        likelihood_weight: Weight of the expected log-likelihood.
        kl_weight: Weight of the KL divergence.

    Example:
        >>> bnnp.objectives.AVI(num_samples=8)
        AVI(num_samples=8, integrate=True, likelihood_weight=1.0, kl_weight=1.0)
    """

    likelihood_weight: float = 1.0
    kl_weight: float = 1.0

    def _estimates(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Estimates:
        return model.estimate(batch.without_targets(), self.num_samples, generator, integrate=self.integrate)

    def _terms(self, estimates: Estimates) -> Terms:
        return Terms(elbo_terms(estimates, self.likelihood_weight, self.kl_weight))


@dataclass(frozen=True)
class NPML(_Predictive):
    """Neural-process maximum likelihood: `log q(Y_t | D_c)`.

    Args:
        num_samples: As in `Objective`.
        integrate: As in `Objective`.
        group_size: Number of targets of a task whose joint density is one term; None for all targets together, as in
            the paper.
        predictive_weight: Weight of the predictive density.

    Example:
        >>> bnnp.objectives.NPML(num_samples=32)
        NPML(num_samples=32, integrate=True, group_size=None, predictive_weight=1.0)
    """

    predictive_weight: float = 1.0

    def _terms(self, estimates: Estimates) -> Terms:
        return Terms({"predictive": self.predictive_weight * log_expected(estimates.predictive())})


@dataclass(frozen=True)
class NPVI(Objective):
    """Neural-process variational inference: `E_q(W|D)[log p(Y_t | W)] - KL[q(W | D) || q(W | D_c)]`.

    If the last layer is integrated, the expectation and the last layer's part of the KL are in closed form given the
    hidden layers. The hidden layers' part is estimated by their samples, without bias: a closed form given the layers
    before would need the covariance of every hidden unit. Latent neural processes have their KL in closed form.

    Args:
        num_samples: As in `Objective`.
        integrate: As in `Objective`.
        likelihood_weight: Weight of the expected log-likelihood of the targets.
        kl_weight: Weight of the KL divergence.

    Example:
        >>> bnnp.objectives.NPVI(kl_weight=0.5)
        NPVI(num_samples=4, integrate=True, likelihood_weight=1.0, kl_weight=0.5)
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
    """Target-expected-log-likelihood AVI: `E_q(W|D_c)[log p(Y_t | W)] + ELBO(D_c)`; unbiased with any `num_samples`.

    Args:
        num_samples: As in `Objective`.
        integrate: As in `Objective`.
        target_weight: Weight of the expected log-likelihood of the targets.
        likelihood_weight: Weight of the expected log-likelihood of the context.
        kl_weight: Weight of the KL divergence.

    Example:
        >>> bnnp.objectives.TELLAVI(num_samples=2).target_weight
        1.0
    """

    target_weight: float = 1.0
    likelihood_weight: float = 1.0
    kl_weight: float = 1.0

    def _estimates(self, model: Model, batch: SplitBatch, generator: torch.Generator) -> Estimates:
        return model.estimate(batch, self.num_samples, generator, integrate=self.integrate)

    def _terms(self, estimates: Estimates) -> Terms:
        expected = self.target_weight * estimates.target().mean(1)
        return Terms({"target": expected, **elbo_terms(estimates, self.likelihood_weight, self.kl_weight)})
