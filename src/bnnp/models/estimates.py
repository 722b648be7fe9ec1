"""The terms of objectives for a batch of tasks: by samples of all weights, or with the last layer integrated.

Both classes give the same terms, from samples of the latent variable given the contexts:

    kl          KL of the posterior to the prior, or to another posterior, one value per task and sample
    context     `E[log p(Y_c | W)]`, likewise
    target      `E[log p(Y_t | W)]`, likewise
    predictive  `log q(Y_g)` of every group of targets, one value per task, sample and group

`Sampled` replaces each expectation by its value at one weight sample. `Integrated` integrates the last layer's weights
given the samples of the hidden layers; `bnnp.numerics.last_layer` has the formulas.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.numerics import fallbacks
from bnnp.numerics.densities import expected_log_likelihood, log_density_of_groups
from bnnp.numerics.gaussian import Observations, UnitPrior
from bnnp.numerics.last_layer import LastLayer, condition_last_layer, kl_between
from bnnp.numerics.solve import TooLargeForFloat32


class Estimates(Protocol):
    """The terms of objectives, as a model gives them for a batch."""

    def kl(self) -> Tensor: ...

    def context(self) -> Tensor: ...

    def target(self) -> Tensor: ...

    def predictive(self) -> Tensor: ...

    def in_float64(self) -> "Estimates": ...


Found = TypeVar("Found")


def in_float64_where_needed(estimates: Estimates, compute: Callable[[Estimates], Found]) -> Found:
    """Compute something from estimates; if float32 is not accurate enough, compute it again in float64.

    Args:
        estimates: The estimates.
        compute: What to compute from them.
    """
    try:
        return compute(estimates)
    except TooLargeForFloat32:
        fallbacks.count(float64=1)
        return compute(estimates.in_float64())


@dataclass(frozen=True)
class Sampled:
    """The terms of objectives, from samples of all weights.

    Attributes:
        inferred: The samples, with their KL.
        of_context: Gives the log-density of every point of the contexts under every sample.
        of_target: Gives the log-density of every target under every sample.
        group_size: Targets per group; None for all targets in one group.
    """

    inferred: Any
    of_context: Callable[[], Float[Tensor, "tasks samples points"]]
    of_target: Callable[[], Float[Tensor, "tasks samples points"]]
    group_size: int | None = None

    def kl(self) -> Float[Tensor, "tasks 1"]:
        return self.inferred.total_kl().unsqueeze(1)

    def context(self) -> Float[Tensor, "tasks samples"]:
        return self.of_context().sum(-1)

    def target(self) -> Float[Tensor, "tasks samples"]:
        return self.of_target().sum(-1)

    def predictive(self) -> Float[Tensor, "tasks samples groups"]:
        terms = self.of_target()
        size = max(1, terms.shape[-1]) if self.group_size is None else self.group_size
        return torch.stack([group.sum(-1) for group in terms.split(size, dim=-1)], dim=-1)

    def in_float64(self) -> "Sampled":
        return self


@dataclass(frozen=True)
class Points:
    """Points as a layer sees them.

    Attributes:
        phi: Features of every point.
        seen: Outputs or pseudo-observations of every point, with the inverse of their noise.
    """

    phi: Float[Tensor, "tasks samples rows d"]
    seen: Observations

    def to(self, dtype: torch.dtype) -> "Points":
        return Points(self.phi.to(dtype), self.seen.to(dtype))


@dataclass(frozen=True)
class Integrated:
    """The terms of objectives, with the last layer integrated given samples of all other layers.

    Attributes:
        hidden_kl: KL of all layers but the last.
        prior: Prior of the last layer.
        given: The points that the last layer is conditioned on, with their pseudo-noise.
        observed: The contexts, with the likelihood's noise.
        targets: The targets, with the likelihood's noise.
        outputs: How many outputs share a unit of the prior.
        group_size: Targets per group; None for all targets in one group.
        against: Points whose posterior takes the place of the prior in the KL; None for the prior itself.
        observed_given: Whether the contexts are the points that the last layer is conditioned on.
    """

    hidden_kl: Float[Tensor, "tasks _samples"]
    prior: UnitPrior
    given: Points
    observed: Points
    targets: Points
    outputs: int
    group_size: int | None = None
    against: Points | None = None
    observed_given: bool = True

    @property
    def _group(self) -> int:
        points = max(1, self.targets.phi.shape[-2] // self.outputs)
        return points if self.group_size is None else min(points, self.group_size)

    @cached_property
    def layer(self) -> LastLayer:
        large = self._group * self.outputs > self.targets.phi.shape[-1] or self.against is not None
        return condition_last_layer(self.prior, self.given.phi, self.given.seen, through_weights=large)

    def kl(self) -> Float[Tensor, "tasks samples"]:
        if self.against is None:
            return self.hidden_kl + self.layer.kl.sum(-1)
        other = condition_last_layer(self.prior, self.against.phi, self.against.seen, through_weights=True)
        return self.hidden_kl + kl_between(self.layer, other)

    def context(self) -> Float[Tensor, "tasks samples"]:
        return expected_log_likelihood(
            self.layer, self.observed.phi, self.observed.seen, of_context=self.observed_given
        )

    def target(self) -> Float[Tensor, "tasks samples"]:
        return expected_log_likelihood(self.layer, self.targets.phi, self.targets.seen)

    def predictive(self) -> Float[Tensor, "tasks samples groups"]:
        return log_density_of_groups(self.layer, self.targets.phi, self.targets.seen, self._group, self.outputs)

    def in_float64(self) -> "Integrated":
        double = torch.float64
        return replace(
            self,
            prior=self.prior.to(double),
            given=self.given.to(double),
            observed=self.observed.to(double),
            targets=self.targets.to(double),
            against=None if self.against is None else self.against.to(double),
        )
