"""Markov chains: their start, their warm-up, the samples that are kept, and whether the chains have mixed."""

import abc
import math
from dataclasses import dataclass, replace

import numpy as np
import torch

from bnnp._core.checks import check_fields
from bnnp._core.shapes import Float, Tensor
from bnnp.inference.base import Diagnostics, Drawn, Effort, Method
from bnnp.inference.climb import climb_density
from bnnp.inference.target import Density, Target

RHAT_LIMIT = 1.05
ESS_LIMIT = 100
ACCEPTANCE_LIMIT = 0.1
POINTS_LOOKED_AT = 16
"""Number of inputs at which the function's values show whether chains have mixed."""


@dataclass(frozen=True)
class Chain:
    """The current state of all chains.

    Attributes:
        position: Their positions.
        value: Log-density there.
        gradient: Gradient of the log-density there.
        log_step: Logarithm of the step size of every chain.
        accepted: Acceptance probability of the last proposal.
        momentum: Their momenta.
    """

    position: Float[Tensor, "sets chains size"]
    value: Float[Tensor, "sets chains"]
    gradient: Float[Tensor, "sets chains size"]
    log_step: Float[Tensor, "sets chains"]
    accepted: Float[Tensor, "sets chains"]
    momentum: Float[Tensor, "sets chains size"]


@dataclass(frozen=True)
class DualAveraging:
    """Adaptation of step sizes to a target acceptance (Hoffman and Gelman 2014, section 3.2).

    Attributes:
        centre: Value that the logarithm of the step size is drawn towards.
        log_step: Logarithm of the current step size.
        average: Average of the logarithms so far, for use after warm-up.
        error: Average difference between target and acceptance.
        count: Number of updates.
    """

    centre: Tensor
    log_step: Tensor
    average: Tensor
    error: Tensor
    count: int = 0

    @staticmethod
    def start(log_step: Float[Tensor, "sets chains"]) -> "DualAveraging":
        return DualAveraging(log_step + math.log(10), log_step, log_step, torch.zeros_like(log_step))

    def after(self, accepted: Float[Tensor, "sets chains"], target: float) -> "DualAveraging":
        count = self.count + 1
        weight = 1 / (count + 10)
        error = (1 - weight) * self.error + weight * (target - accepted)
        log_step = self.centre - math.sqrt(count) / 0.05 * error
        share = count**-0.75
        average = share * log_step + (1 - share) * self.average
        return DualAveraging(self.centre, log_step, average, error, count)


@dataclass(frozen=True)
class Sampling:
    """The state of a sampler.

    Attributes:
        chain: The current state of the chains.
        adaptation: Adaptation of the step size during warm-up; None if there is none.
        warmup: Steps of warm-up.
        thin: Every `thin`-th step after warm-up is kept.
        accepted: Sum of acceptance probabilities since warm-up.
        count: Number of steps so far.
        kept: The positions kept so far.
    """

    chain: Chain
    adaptation: DualAveraging | None
    warmup: int
    thin: int
    accepted: Float[Tensor, "sets chains"]
    count: int = 0
    kept: tuple[Float[Tensor, "sets chains size"], ...] = ()


class Sampler(Method):
    """Inference by Markov chains. A subclass says how a chain begins and how it moves.

    Attributes:
        adapts: Whether warm-up changes the step size to reach `target_acceptance`.
        target_acceptance: The acceptance probability that warm-up aims at.
    """

    whitened = True
    adapts: bool
    target_acceptance: float = 0.8

    def __post_init__(self):
        check_fields(self)

    @abc.abstractmethod
    def begin(self, density: Density, position: Float[Tensor, "sets chains size"]) -> Chain:
        """Chains that start at these positions."""

    @abc.abstractmethod
    def move(self, density: Density, chain: Chain, generator: torch.Generator) -> Chain:
        """The chains after one transition."""

    def num_steps(self, effort: Effort, num_samples: int) -> int:
        return effort.warmup + _thin(effort, num_samples) * _draws(effort, num_samples)

    def init(self, target: Target, effort: Effort, num_samples: int, generator: torch.Generator) -> Sampling:
        position = target.draw_prior(effort.chains, generator)
        if effort.climb:
            position = climb_density(target, position, effort.climb, effort.learning_rate)
        return self.sampling(target, position, effort.warmup, _thin(effort, num_samples))

    def sampling(
        self, density: Density, position: Float[Tensor, "sets chains size"], warmup: int, thin: int
    ) -> Sampling:
        chain = self.begin(density, position)
        adaptation = DualAveraging.start(chain.log_step) if self.adapts and warmup else None
        return Sampling(chain, adaptation, warmup, thin, torch.zeros_like(chain.value))

    @torch.no_grad()
    def step(self, target: Density, state: Sampling, generator: torch.Generator) -> Sampling:
        chain = self.move(target, state.chain, generator)
        count = state.count + 1
        if count > state.warmup:
            keep = (count - state.warmup) % state.thin == 0
            kept = (*state.kept, chain.position) if keep else state.kept
            return replace(state, chain=chain, accepted=state.accepted + chain.accepted, count=count, kept=kept)
        if state.adaptation is None:
            return replace(state, chain=chain, count=count)
        adaptation = state.adaptation.after(chain.accepted, self.target_acceptance)
        log_step = adaptation.average if count == state.warmup else adaptation.log_step
        return replace(state, chain=replace(chain, log_step=log_step), adaptation=adaptation, count=count)

    @torch.no_grad()
    def sample(self, target: Target, state: Sampling, num_samples: int, generator: torch.Generator) -> Drawn:
        """The kept positions, chain after chain; nothing new is drawn."""
        positions = torch.stack(state.kept, dim=2)
        weights = target.weights(positions.flatten(1, 2))
        chains = positions.shape[1]
        acceptance = state.accepted / (state.count - state.warmup)
        followed = _first_inputs(target, POINTS_LOOKED_AT)
        values = target.network(weights, followed.unsqueeze(1)).unflatten(1, (chains, -1))
        diagnostics = [
            _diagnose(values[i], acceptance[i], state.chain.log_step[i].exp()) for i in range(positions.shape[0])
        ]
        return Drawn([w[:, :num_samples] for w in weights], diagnostics, chains)


def _first_inputs(target: Target, count: int) -> Float[Tensor, "sets points x"]:
    """The first `count` inputs of every data set; a shorter data set repeats its first input."""
    x, mask = target.data.x[:, :count], target.data.mask[:, :count]
    if x.shape[1] == 0:
        return x.new_zeros(x.shape[0], 1, x.shape[2])
    return torch.where(mask.unsqueeze(-1), x, x[:, :1])


def _diagnose(
    values: Float[Tensor, "chains draws points out"],
    acceptance: Float[Tensor, "chains"],
    step_size: Float[Tensor, "chains"],
) -> Diagnostics:
    rhat, ess = mixing(values.flatten(2))
    found = []
    if float(acceptance.min()) < ACCEPTANCE_LIMIT:
        found.append(f"a chain accepts {float(acceptance.min()):.2f} of its proposals: smaller steps may help")
    if rhat is None or ess is None:
        found.append(f"{values.shape[1]} draws per chain are too few to tell whether chains have mixed")
    else:
        if not rhat <= RHAT_LIMIT:
            found.append(f"chains have not mixed: R-hat {rhat:.2f}, expected at most {RHAT_LIMIT}")
        if not ess >= ESS_LIMIT:
            found.append(f"draws are worth {ess:.0f} independent ones, expected at least {ESS_LIMIT}")
    return Diagnostics(acceptance, step_size, rhat, ess, warnings=tuple(found))


def mixing(values: Float[Tensor, "chains draws quantities"]) -> tuple[float | None, float | None]:
    """The largest R-hat (rank-normalised, split) and the smallest bulk effective sample size.

    Args:
        values: Quantities of every draw of every chain.

    Returns:
        R-hat and effective sample size, or None for both if there are too few draws.
    """
    if values.shape[1] * min(2, len(values)) < 8:
        return None, None
    if len(values) == 1:  # a chain by itself: its first half beside its second
        half = values.shape[1] // 2
        values = torch.stack([values[0, :half], values[0, -half:]])
    array = values.double().cpu().numpy()
    if not array.std((0, 1)).min() > 0:  # chains that never moved
        return math.inf, 1.0
    from arviz_stats.base.array import array_stats

    rhat = np.asarray(array_stats.rhat(array, chain_axis=0, draw_axis=1))
    ess = np.asarray(array_stats.ess(array, chain_axis=0, draw_axis=1))
    return float(rhat.max()), float(ess.min())


def _draws(effort: Effort, num_samples: int) -> int:
    return math.ceil(num_samples / effort.chains)


def _thin(effort: Effort, num_samples: int) -> int:
    return effort.thin if effort.steps is None else max(1, effort.steps // _draws(effort, num_samples))
