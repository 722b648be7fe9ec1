"""The no-U-turn sampler (Hoffman and Gelman 2014) for many chains side by side.

A draw is a point of the path, with a probability in proportion to its density (Betancourt 2017).

A path grows to both sides by doubling until it turns back. Chains that have stopped wait for the others: a move costs
as many gradients as the longest path among them. Within a doubling, momentum sums at the beginnings of the subtrees
that are still open are kept, one for each of the doubling's levels, so that memory grows with the depth and not with
the length. Whether a path turns back is also asked across the seam of its two halves: a doubling may otherwise step
over the turn, and in a target whose directions all have one scale go round many times.
"""

import math
from dataclasses import dataclass, replace

import torch

from bnnp._core.random import normal
from bnnp._core.shapes import Bool, Float, Tensor
from bnnp.inference.mcmc.chains import Chain
from bnnp.inference.mcmc.steps import Tested, chosen, leapfrog
from bnnp.inference.target import Density

DIVERGED = 1000.0
"""A path ends when its energy has risen by more than this."""


@dataclass(frozen=True)
class NUTS(Tested):
    """The no-U-turn sampler, which finds the length of its paths itself.

    Args:
        step_size: Size of a leapfrog step at the start of warm-up.
        max_doublings: A path has at most `2^max_doublings` leapfrog steps.
        adapts: Whether warm-up changes the step size.
        target_acceptance: The acceptance probability that warm-up aims at.

    Example:
        >>> nuts = bnnp.inference.NUTS(max_doublings=2)
        >>> found = bnnp.infer(model, x, y, method=nuts, num_samples=4, chains=2, warmup=5)
        >>> found.chains, found.num_samples
        (2, 4)
    """

    step_size: float = 0.01
    max_doublings: int = 8
    adapts: bool = True
    target_acceptance: float = 0.8

    def move(self, density: Density, chain: Chain, generator: torch.Generator) -> Chain:
        momentum = normal(chain.position.shape, chain.position, generator)
        here = replace(chain, momentum=momentum)
        tree = Tree.of_one(here)
        energy = _energy(here)
        for depth in range(self.max_doublings):
            if not bool(tree.grows.any()):
                break
            forward = _uniform(tree.log_weight, generator) < 0.5
            edge = _where(forward, tree.right, tree.left)
            branch = _branch(density, edge, forward, energy, 2**depth, tree.grows, generator)
            tree = tree.joined(branch, forward, generator)
        accepted = tree.accepted / tree.steps.clamp(min=1)
        return replace(tree.proposal, accepted=accepted)


@dataclass(frozen=True)
class Branch:
    """A row of leaves.

    Attributes:
        first: The first leaf.
        end: The last leaf.
        proposal: A leaf drawn with a probability in proportion to its weight.
        log_weight: Logarithm of the sum of weights.
        momenta: Sum of momenta.
        turned: Whether the branch turns back somewhere within, or its energy diverges.
        accepted: Sum of acceptance probabilities.
        steps: Number of leapfrog steps.
    """

    first: Chain
    end: Chain
    proposal: Chain
    log_weight: Float[Tensor, "sets chains"]
    momenta: Float[Tensor, "sets chains size"]
    turned: Bool[Tensor, "sets chains"]
    accepted: Float[Tensor, "sets chains"]
    steps: Float[Tensor, "sets chains"]


@dataclass(frozen=True)
class Tree:
    """A path so far.

    Attributes:
        left: Its left end.
        right: Its right end.
        proposal: The point drawn from it.
        log_weight: Logarithm of the sum of weights.
        momenta: Sum of momenta.
        grows: Whether it has not turned back yet.
        accepted: Sum of acceptance probabilities.
        steps: Number of leapfrog steps.
    """

    left: Chain
    right: Chain
    proposal: Chain
    log_weight: Float[Tensor, "sets chains"]
    momenta: Float[Tensor, "sets chains size"]
    grows: Bool[Tensor, "sets chains"]
    accepted: Float[Tensor, "sets chains"]
    steps: Float[Tensor, "sets chains"]

    @staticmethod
    def of_one(chain: Chain) -> "Tree":
        zero = torch.zeros_like(chain.value)
        return Tree(chain, chain, chain, zero, chain.momentum, torch.ones_like(zero, dtype=torch.bool), zero, zero)

    def joined(self, branch: Branch, forward: Bool[Tensor, "sets chains"], generator: torch.Generator) -> "Tree":
        """The tree with a branch added at one end, where the tree still grows.

        Args:
            branch: The branch.
            forward: Whether the branch goes on from the right end.
            generator: Generator of the choice between the two proposals.
        """
        whole = self.grows & ~branch.turned
        uniform = _uniform(self.log_weight, generator)
        taken = whole & (uniform.log() < branch.log_weight - self.log_weight)  # prefers what is far away
        left = _where(self.grows & ~forward, branch.end, self.left)
        right = _where(self.grows & forward, branch.end, self.right)
        momenta = self.momenta + branch.momenta
        near, far = _where(forward, self.right, self.left), _where(forward, self.left, self.right)
        turns = (
            _turns(far, branch.end, momenta)
            | _turns(far, branch.first, self.momenta + branch.first.momentum)
            | _turns(near, branch.end, branch.momenta + near.momentum)
        )
        added = torch.where(self.grows, 1.0, 0.0).to(self.log_weight)
        return Tree(
            left,
            right,
            _where(taken, branch.proposal, self.proposal),
            torch.where(whole, torch.logaddexp(self.log_weight, branch.log_weight), self.log_weight),
            momenta,
            whole & ~turns,
            self.accepted + added * branch.accepted,
            self.steps + added * branch.steps,
        )


@dataclass(frozen=True)
class Beginning:
    """The beginning of a subtree.

    Attributes:
        last: The leaf before the subtree.
        leaf: Its first leaf.
        before: Sum of momenta before it.
    """

    last: Chain
    leaf: Chain
    before: Float[Tensor, "sets chains size"]


def _branch(
    density: Density,
    edge: Chain,
    forward: Bool[Tensor, "sets chains"],
    energy: Float[Tensor, "sets chains"],
    leaves: int,
    grows: Bool[Tensor, "sets chains"],
    generator: torch.Generator,
) -> Branch:
    """`leaves` leapfrog steps from the edge of a tree."""
    sign = torch.where(forward, 1.0, -1.0).to(energy)
    total = torch.zeros_like(edge.position)
    beginnings: dict[int, Beginning] = {}
    zero = torch.zeros_like(energy)
    log_weight, accepted, steps = torch.full_like(energy, -math.inf), zero, zero
    here = first = proposal = edge
    turned = ~grows
    for leaf in range(leaves):
        last, here = here, leapfrog(density, here, 1, sign)
        first = here if leaf == 0 else first
        gain = _energy(here) - energy
        gain = torch.where(gain.isnan(), -math.inf, gain)
        alive = ~turned
        accepted = accepted + alive * gain.clamp(max=0).exp()
        steps = steps + alive
        turned = turned | (gain < -DIVERGED)
        log_weight = torch.logaddexp(log_weight, torch.where(turned, -math.inf, gain))
        taken = ~turned & (_uniform(energy, generator).log() < gain - log_weight)
        proposal = _where(taken, here, proposal)
        if leaf % 2 == 0:  # a subtree may begin here
            beginnings[(leaf // 2).bit_count()] = Beginning(last, here, total)
        total = total + here.momentum
        turned = turned | _turned_within(beginnings, leaf, here, total)
        if bool(turned.all()):
            break
    return Branch(first, here, proposal, log_weight, total, turned, accepted, steps)


def _turned_within(
    beginnings: dict[int, Beginning], leaf: int, here: Chain, total: Float[Tensor, "sets chains size"]
) -> Bool[Tensor, "sets chains"]:
    """Whether any of the subtrees that end at a leaf has turned; `total` is the sum of momenta up to it."""
    turned, size = torch.zeros_like(here.value, dtype=torch.bool), 2
    while (leaf + 1) % size == 0:
        start = beginnings[((leaf + 1 - size) // 2).bit_count()]
        turned = turned | _turns(start.leaf, here, total - start.before)
        if size > 2:
            seam = beginnings[((leaf + 1 - size // 2) // 2).bit_count()]
            turned = turned | _turns(start.leaf, seam.leaf, seam.before + seam.leaf.momentum - start.before)
            turned = turned | _turns(seam.last, here, total - seam.before + seam.last.momentum)
        size *= 2
    return turned


def _turns(one: Chain, other: Chain, momenta: Float[Tensor, "sets chains size"]) -> Bool[Tensor, "sets chains"]:
    """Whether a further step at one of the two ends would bring it closer to the other."""
    return ((one.momentum * momenta).sum(-1) <= 0) | ((other.momentum * momenta).sum(-1) <= 0)


def _energy(chain: Chain) -> Float[Tensor, "sets chains"]:
    """Minus the energy: the log-density of position and momentum."""
    return chain.value - 0.5 * chain.momentum.square().sum(-1)


def _where(mask: Bool[Tensor, "sets chains"], yes: Chain, no: Chain) -> Chain:
    momentum = torch.where(mask.unsqueeze(-1), yes.momentum, no.momentum)
    return replace(chosen(mask, yes, no), momentum=momentum)


def _uniform(like: Float[Tensor, "sets chains"], generator: torch.Generator) -> Float[Tensor, "sets chains"]:
    return torch.rand(like.shape, generator=generator, dtype=like.dtype).to(like.device)
