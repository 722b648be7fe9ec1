"""Markov chains whose draws follow the posterior. Many data sets and chains run side by side on leading axes.

Each method is a record of choices with `init` and `step`; `run` draws. HMC adapts one step size a chain while it warms
up, so that proposals are accepted as often as `target_acceptance` says; the stochastic-gradient methods have no
Metropolis test, and so a bias that vanishes with their step size.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from bnnp._random import normal
from bnnp._shapes import Float, Tensor
from bnnp.inference.target import Density, Target, value_and_gradient


@dataclass(frozen=True)
class Chain:
    """Where chains are: position, momentum for those that keep one, log-density and its gradient there.

    log_step: logarithm of the step size of every chain.  accepted: probability of the last proposal.
    """

    position: Float[Tensor, "sets chains size"]
    value: Float[Tensor, "sets chains"]
    gradient: Float[Tensor, "sets chains size"]
    log_step: Float[Tensor, "sets chains"]
    accepted: Float[Tensor, "sets chains"]
    momentum: Float[Tensor, "sets chains size"] | None = None


@dataclass(frozen=True)
class HMC:
    """Hamiltonian Monte Carlo. With one leapfrog step it is Langevin Monte Carlo with a Metropolis test.

    step_size: of the leapfrog steps; where warm-up begins, if it adapts.
    adapts: whether warm-up changes it.
    """

    step_size: float = 0.01
    leapfrog_steps: int = 50
    adapts: bool = True
    target_acceptance: float = 0.8

    def init(self, target: Density, position: Float[Tensor, "sets chains size"]) -> Chain:
        value, gradient = value_and_gradient(target.log_density, position)
        log_step = torch.full_like(value, math.log(self.step_size))
        return Chain(position.detach(), value, gradient, log_step, torch.zeros_like(value))

    def step(self, target: Density, chain: Chain, generator: torch.Generator) -> Chain:
        momentum = normal(chain.position.shape, chain.position, generator)
        proposal = leapfrog(target, replace(chain, momentum=momentum), self.leapfrog_steps)
        assert proposal.momentum is not None
        gain = proposal.value - chain.value
        gain = gain - 0.5 * (proposal.momentum.square().sum(-1) - momentum.square().sum(-1))
        accepted = torch.where(gain.isnan(), -math.inf, gain).clamp(max=0).exp()  # what is not finite is refused
        uniform = torch.rand(accepted.shape, generator=generator, dtype=accepted.dtype).to(accepted.device)
        return replace(_chosen(uniform < accepted, proposal, chain), accepted=accepted, momentum=None)


@dataclass(frozen=True)
class SGHMC:
    """Stochastic-gradient Hamiltonian Monte Carlo: friction takes out what the noise of minibatches puts in.

    A step of length `step_size` is `p <- (1 - a) p + eps g + sqrt(2 a) z` and `w <- w + eps p`, with the friction
    `a = friction` a step, for unit mass: `leapfrog_steps` of them, each with its own minibatch, make one draw.
    """

    step_size: float = 1e-3
    leapfrog_steps: int = 20
    friction: float = 0.1
    batch_size: int = 128
    adapts = False

    def init(self, target: Target, position: Float[Tensor, "sets chains size"]) -> Chain:
        value = position.new_zeros(position.shape[:2])
        step = torch.full_like(value, math.log(self.step_size))
        return Chain(position.detach(), value, position, step, torch.ones_like(value), torch.zeros_like(position))

    def step(self, target: Target, chain: Chain, generator: torch.Generator) -> Chain:
        position, momentum, step = chain.position, chain.momentum, chain.log_step.exp().unsqueeze(-1)
        assert momentum is not None
        for _ in range(self.leapfrog_steps):
            _, gradient = _minibatch_gradient(target, position, self.batch_size, generator)
            shock = math.sqrt(2 * self.friction) * normal(position.shape, position, generator)
            momentum = (1 - self.friction) * momentum + step * gradient + shock
            position = position + step * momentum
        return replace(chain, position=position, momentum=momentum)


@dataclass(frozen=True)
class SGLD:
    """Stochastic-gradient Langevin dynamics: `w <- w + eps^2/2 g + eps z`, where `eps = step_size`.

    In these terms the step size is that of a leapfrog step; many papers write `eps^2` or `eps^2/2` for it.
    """

    step_size: float = 1e-3
    batch_size: int = 128
    adapts = False

    def init(self, target: Target, position: Float[Tensor, "sets chains size"]) -> Chain:
        value = position.new_zeros(position.shape[:2])
        step = torch.full_like(value, math.log(self.step_size))
        return Chain(position.detach(), value, position, step, torch.ones_like(value))

    def step(self, target: Target, chain: Chain, generator: torch.Generator) -> Chain:
        step = chain.log_step.exp().unsqueeze(-1)
        value, gradient = _minibatch_gradient(target, chain.position, self.batch_size, generator)
        shock = normal(chain.position.shape, chain.position, generator)
        return replace(chain, position=chain.position + 0.5 * step**2 * gradient + step * shock, value=value)


def leapfrog(target: Density, chain: Chain, steps: int) -> Chain:
    """So many steps of the dynamics of position and momentum, for unit mass. Reversible, and volume is kept."""
    step = chain.log_step.exp().unsqueeze(-1)
    position, momentum, value, gradient = chain.position, chain.momentum, chain.value, chain.gradient
    assert momentum is not None
    for _ in range(steps):
        momentum = momentum + 0.5 * step * gradient
        position = position + step * momentum
        value, gradient = value_and_gradient(target.log_density, position)
        momentum = momentum + 0.5 * step * gradient
    return replace(chain, position=position, momentum=momentum, value=value, gradient=gradient)


@dataclass(frozen=True)
class Draws:
    """What chains have drawn after warming up, and how often proposals were accepted (mean probability)."""

    positions: Float[Tensor, "sets chains draws size"]
    acceptance: Float[Tensor, "sets chains"]
    step_size: Float[Tensor, "sets chains"]


@torch.no_grad()
def run(
    method: HMC | SGHMC | SGLD,
    target: Target,
    position: Float[Tensor, "sets chains size"],
    *,
    warmup: int,
    draws: int,
    thin: int,
    generator: torch.Generator,
    advance: Callable[[], None] = lambda: None,
) -> Draws:
    """Draw `draws` positions, one every `thin` steps, after `warmup` steps that are thrown away."""
    chain = method.init(target, position)
    adaptation = DualAveraging.start(chain.log_step) if method.adapts else None
    for _ in range(warmup):
        chain = method.step(target, chain, generator)
        if adaptation is not None:
            adaptation = adaptation.after(chain.accepted, method.target_acceptance)  # pyright: ignore
            chain = replace(chain, log_step=adaptation.log_step)
        advance()
    if adaptation is not None and warmup:
        chain = replace(chain, log_step=adaptation.average)
    kept, accepted = [], torch.zeros_like(chain.value)
    for _ in range(draws):
        for _ in range(thin):
            chain = method.step(target, chain, generator)
            accepted += chain.accepted / (draws * thin)
            advance()
        kept.append(chain.position)
    return Draws(torch.stack(kept, dim=2), accepted, chain.log_step.exp())


@dataclass(frozen=True)
class DualAveraging:
    """Step sizes that bring the acceptance to its target (Hoffman and Gelman 2014, section 3.2)."""

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


def _chosen(mask: Tensor, proposal: Chain, chain: Chain) -> Chain:
    wide = mask.unsqueeze(-1)
    return replace(
        chain,
        position=torch.where(wide, proposal.position, chain.position),
        value=torch.where(mask, proposal.value, chain.value),
        gradient=torch.where(wide, proposal.gradient, chain.gradient),
    )


def _minibatch_gradient(
    target: Target, position: Tensor, size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    return value_and_gradient(lambda w: target.minibatch_log_density(w, size, generator), position)
