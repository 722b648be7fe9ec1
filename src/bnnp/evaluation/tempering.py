"""The log evidence by tempering: particles go from the prior to the posterior in small steps."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from bnnp._core.random import Seed, as_generator
from bnnp._core.shapes import Float, Tensor
from bnnp.evaluation.evidence import LogEvidence, change_of_units, check_one, repeated
from bnnp.inference.mcmc.chains import Chain
from bnnp.inference.mcmc.steps import HMC
from bnnp.inference.target import Target


@dataclass(frozen=True)
class Tempered:
    """The density `p(w) p(y | w)^t`."""

    target: Target
    power: Float[Tensor, "sets"]

    def value_and_gradient(
        self, position: Float[Tensor, "sets samples size"]
    ) -> tuple[Float[Tensor, "sets samples"], Float[Tensor, "sets samples size"]]:
        return self.target.value_and_gradient(position, self.power)


@torch.no_grad()
def by_tempering(
    target: Target,
    particles: int = 500,
    *,
    moves: int = 5,
    leapfrog_steps: int = 10,
    repeats: int = 4,
    seed: Seed = 0,
    advance: Callable[[float], None] = lambda _: None,
) -> LogEvidence:
    """Tempered sequential Monte Carlo: from the prior to the posterior in steps that keep half of the particles.

    After each step, particles are resampled and moved by Hamiltonian steps whose size follows their acceptance.

    Args:
        target: The posterior of one data set.
        particles: Particles per run.
        moves: Hamiltonian moves per step.
        leapfrog_steps: Leapfrog steps per move.
        repeats: Independent runs. Their evidences are averaged; their differences give the standard error.
        seed: Seed of all draws.
        advance: Called with the power of the likelihood after each step, for a progress bar.

    Returns:
        The log evidence.
    """
    check_one(target)
    generator = as_generator(seed)
    whitened = replace(target, whitened=True, data=repeated(target, repeats))
    position = whitened.draw_prior(particles, generator)
    power = position.new_zeros(repeats)
    total = position.new_zeros(repeats, dtype=torch.float64)
    smallest = total.new_full((repeats,), float(particles))
    log_step = position.new_full((repeats, particles), math.log(0.1))
    method = HMC(leapfrog_steps=leapfrog_steps)
    while bool((power < 1).any()):
        likelihood = whitened.log_likelihood(position).sum(-1).double()
        following = total.new_tensor([_next_power(likelihood[r], float(power[r])) for r in range(repeats)])
        log_weights = (following - power.double())[:, None] * likelihood
        total += torch.logsumexp(log_weights, 1) - math.log(particles)
        smallest = torch.minimum(smallest, 1 / log_weights.softmax(1).square().sum(1))
        rows = _systematic(log_weights.softmax(1), generator)
        position = position.gather(1, rows.unsqueeze(-1).expand(-1, -1, position.shape[-1]))
        power = following.to(position)
        chain = replace(method.begin(Tempered(whitened, power), position), log_step=log_step)
        for _ in range(moves):
            chain = _moved(method, Tempered(whitened, power), chain, generator)
        position, log_step = chain.position, chain.log_step
        advance(float(power.min()))
    mean = torch.logsumexp(total, 0) - math.log(repeats)
    error = float(total.std() / math.sqrt(repeats)) if repeats > 1 else math.nan
    return LogEvidence(float(mean) + change_of_units(target), error, effective_of(smallest, total))


def effective_of(particles: Float[Tensor, "runs"], log_evidence: Float[Tensor, "runs"]) -> float:
    """Kish's effective number of particles in all runs together.

    Args:
        particles: Of each run, the effective number in the step where it was least.
        log_evidence: Of each run. Runs count by their evidence, as in its average: where one run has found most of it,
            the others are worth nothing.
    """
    return float(1 / (log_evidence.softmax(0).square() / particles).sum())


def _moved(method: HMC, density: Tempered, chain: Chain, generator: torch.Generator) -> Chain:
    """One move of all particles, and a step size that follows their acceptance."""
    chain = method.move(density, chain, generator)
    return replace(chain, log_step=chain.log_step + 0.5 * (chain.accepted.mean(1, keepdim=True) - 0.8))


def _next_power(likelihood: Float[Tensor, "particles"], power: float) -> float:
    """The largest power up to 1 at which the effective number of particles is still half of all; by bisection."""

    def effective(following: float) -> float:
        weights = ((following - power) * likelihood).softmax(0)
        return float(1 / weights.square().sum())

    low, high = power, 1.0
    if effective(1.0) >= 0.5 * len(likelihood):
        return 1.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if effective(middle) >= 0.5 * len(likelihood) else (low, middle)
    return high


def _systematic(weights: Float[Tensor, "sets particles"], generator: torch.Generator) -> Tensor:
    """Resampling by one uniform draw per set: the number of copies differs from its expectation by less than one."""
    count = weights.shape[1]
    start = torch.rand(len(weights), 1, generator=generator, dtype=weights.dtype).to(weights.device)
    places = (start + torch.arange(count, device=weights.device)) / count
    return torch.searchsorted(weights.cumsum(1).contiguous(), places.contiguous()).clamp(max=count - 1)
