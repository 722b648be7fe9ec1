"""Hamiltonian and Langevin chains. Many data sets and chains move side by side on leading axes.

HMC has a Metropolis test; the stochastic-gradient methods have none, and so a bias that vanishes with their step size.
"""

import math
from dataclasses import dataclass, replace

import torch

from bnnp._core.random import normal
from bnnp._core.shapes import Float, Tensor
from bnnp.inference.mcmc.chains import Chain, Sampler
from bnnp.inference.target import Density, Target


class Tested(Sampler):
    """A chain with a Metropolis test or an equivalent rule. It begins with the density at its position."""

    step_size: float

    def begin(self, density: Density, position: Float[Tensor, "sets chains size"]) -> Chain:
        value, gradient = density.value_and_gradient(position)
        log_step = torch.full_like(value, math.log(self.step_size))
        return Chain(position.detach(), value, gradient, log_step, torch.zeros_like(value), torch.zeros_like(position))


class Untested(Sampler):
    """A chain without a test. It begins with momentum 0, needs no density, and accepts every step."""

    step_size: float
    adapts = False

    def begin(self, density: Density, position: Float[Tensor, "sets chains size"]) -> Chain:
        value, still = position.new_zeros(position.shape[:2]), torch.zeros_like(position)
        step = torch.full_like(value, math.log(self.step_size))
        return Chain(position.detach(), value, still, step, torch.ones_like(value), still)


@dataclass(frozen=True)
class HMC(Tested):
    """Hamiltonian Monte Carlo. With one leapfrog step it is Langevin Monte Carlo with a Metropolis test.

    Args:
        step_size: Size of a leapfrog step, at the start of warm-up if it adapts.
        leapfrog_steps: Leapfrog steps per proposal.
        adapts: Whether warm-up changes the step size.
        target_acceptance: The acceptance probability that warm-up aims at.

    Example:
        >>> hmc = bnnp.inference.HMC(leapfrog_steps=5)
        >>> found = bnnp.infer(model, x, y, method=hmc, num_samples=4, chains=2, warmup=5)
        >>> found.chains, found.num_samples
        (2, 4)
    """

    step_size: float = 0.01
    leapfrog_steps: int = 50
    adapts: bool = True
    target_acceptance: float = 0.8

    def move(self, density: Density, chain: Chain, generator: torch.Generator) -> Chain:
        momentum = normal(chain.position.shape, chain.position, generator)
        proposal = leapfrog(density, replace(chain, momentum=momentum), self.leapfrog_steps)
        gain = proposal.value - chain.value
        gain = gain - 0.5 * (proposal.momentum.square().sum(-1) - momentum.square().sum(-1))
        accepted = torch.where(gain.isnan(), -math.inf, gain).clamp(max=0).exp()  # what is not finite is refused
        uniform = torch.rand(accepted.shape, generator=generator, dtype=accepted.dtype).to(accepted.device)
        return replace(chosen(uniform < accepted, proposal, chain), accepted=accepted)


@dataclass(frozen=True)
class SGHMC(Untested):
    """Stochastic-gradient Hamiltonian Monte Carlo: friction takes out the energy that minibatch noise puts in.

    A step is `p <- (1 - a) p + eps g + sqrt(2 a) z` and `w <- w + eps p`, for unit mass, with `eps = step_size` and
    `a = friction`. Every step has its own minibatch.

    Args:
        step_size: Size of a step.
        leapfrog_steps: Steps per draw.
        friction: Share of the momentum that a step takes away.
        batch_size: Points in a minibatch.

    Example:
        >>> sghmc = bnnp.inference.SGHMC(leapfrog_steps=2, batch_size=2)
        >>> bnnp.infer(model, x, y, method=sghmc, num_samples=4, chains=2, warmup=5).num_samples
        4
    """

    step_size: float = 1e-3
    leapfrog_steps: int = 20
    friction: float = 0.1
    batch_size: int = 128

    def move(self, density: Density, chain: Chain, generator: torch.Generator) -> Chain:
        assert isinstance(density, Target)
        position, momentum, step = chain.position, chain.momentum, chain.log_step.exp().unsqueeze(-1)
        for _ in range(self.leapfrog_steps):
            _, gradient = density.minibatch_value_and_gradient(position, self.batch_size, generator)
            shock = math.sqrt(2 * self.friction) * normal(position.shape, position, generator)
            momentum = (1 - self.friction) * momentum + step * gradient + shock
            position = position + step * momentum
        return replace(chain, position=position, momentum=momentum)


@dataclass(frozen=True)
class SGLD(Untested):
    """Stochastic-gradient Langevin dynamics: `w <- w + eps^2/2 g + eps z`, where `eps = step_size`.

    The step size is that of a leapfrog step. Many papers call `eps^2` or `eps^2/2` the step size.

    Args:
        step_size: Size of a step.
        batch_size: Points in a minibatch.

    Example:
        >>> sgld = bnnp.inference.SGLD(step_size=1e-2, batch_size=2)
        >>> bnnp.infer(model, x, y, method=sgld, num_samples=4, chains=2, warmup=5).num_samples
        4
    """

    step_size: float = 1e-3
    batch_size: int = 128

    def move(self, density: Density, chain: Chain, generator: torch.Generator) -> Chain:
        assert isinstance(density, Target)
        step = chain.log_step.exp().unsqueeze(-1)
        value, gradient = density.minibatch_value_and_gradient(chain.position, self.batch_size, generator)
        shock = normal(chain.position.shape, chain.position, generator)
        return replace(chain, position=chain.position + 0.5 * step**2 * gradient + step * shock, value=value)


def leapfrog(density: Density, chain: Chain, steps: int, sign: Float[Tensor, "sets chains"] | float = 1.0) -> Chain:
    """Leapfrog steps of position and momentum, for unit mass. They are reversible and keep volume.

    Args:
        density: The log-density that the chains move in.
        chain: Where the chains are.
        steps: Number of steps.
        sign: 1 goes forward in time, -1 back.

    Returns:
        Where the chains are after the steps.
    """
    step = (sign * chain.log_step.exp()).unsqueeze(-1)
    position, momentum, value, gradient = chain.position, chain.momentum, chain.value, chain.gradient
    momentum = torch.addcmul(momentum, step, gradient, value=0.5)
    for i in range(steps):
        position = torch.addcmul(position, step, momentum)
        value, gradient = density.value_and_gradient(position)
        momentum = torch.addcmul(momentum, step, gradient, value=0.5 if i == steps - 1 else 1.0)  # two halves are one
    return replace(chain, position=position, momentum=momentum, value=value, gradient=gradient)


def chosen(mask: Tensor, proposal: Chain, chain: Chain) -> Chain:
    """The chain, with position, value and gradient of the proposal where the mask is true."""
    wide = mask.unsqueeze(-1)
    return replace(
        chain,
        position=torch.where(wide, proposal.position, chain.position),
        value=torch.where(mask, proposal.value, chain.value),
        gradient=torch.where(wide, proposal.gradient, chain.gradient),
    )
