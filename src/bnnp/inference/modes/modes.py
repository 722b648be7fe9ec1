"""Methods from modes of the posterior: deep ensembles and Laplace's approximation."""

import abc
from dataclasses import dataclass, replace

import torch
from torch import nn

from bnnp._core.checks import check_fields
from bnnp._core.random import normal
from bnnp._core.shapes import Float, Tensor
from bnnp.inference.base import Diagnostics, Drawn, Effort, Method
from bnnp.inference.climb import Climb
from bnnp.inference.points import one_set
from bnnp.inference.target import Target
from bnnp.likelihoods.gaussian import Gaussian, at_points
from bnnp.numerics.gaussian import Observations, UnitPrior, UpdateDraws, condition
from bnnp.tasks.task import TaskBatch

STEPS = 3000


@dataclass(frozen=True)
class Climbing:
    """Positions that climb to modes.

    Attributes:
        place: The positions.
        climb: The optimiser.
        target: The log posterior density that they climb.
        pull: Added to the gradient of the log posterior density, if given.
    """

    place: nn.Parameter
    climb: Climb
    target: Target
    pull: Float[Tensor, "sets members size"] | None = None


Start = tuple[Target, Tensor, Tensor | None]
"""The target to climb, the starting positions, and the pull on every member, if there is one."""


class ModeFinder(Method):
    """Draws of the prior climb the log posterior density. A subclass says how many, and how samples are drawn."""

    whitened = True

    @abc.abstractmethod
    def start(self, target: Target, num_samples: int, generator: torch.Generator) -> Start:
        """Where the climb begins."""

    def num_steps(self, effort: Effort, num_samples: int) -> int:
        return STEPS if effort.steps is None else effort.steps

    def init(self, target: Target, effort: Effort, num_samples: int, generator: torch.Generator) -> Climbing:
        climbed, position, pull = self.start(target, num_samples, generator)
        place = nn.Parameter(position)
        return Climbing(place, Climb([place], self.num_steps(effort, num_samples), effort.learning_rate), climbed, pull)

    def step(self, target: Target, state: Climbing, generator: torch.Generator) -> Climbing:
        position = state.place.detach()
        value, gradient = state.target.value_and_gradient(position)
        if state.pull is not None:
            gradient = gradient + state.pull
            value = value + (position * state.pull).sum(-1)
        state.climb.along(value.view(target.sets, -1).mean(1), [gradient])
        return state


@dataclass(frozen=True)
class Ensemble(ModeFinder):
    """A deep ensemble (Lakshminarayanan et al. 2017): networks start at different draws of the prior and end at modes.

    Every member is one weight sample; there are at most `num_samples` members.

    Args:
        members: Number of networks.
        anchored: Whether every member has a prior centred at its own draw and its own noise added to the outputs
            (Pearce et al. 2020). Members of a linear model are then exact draws of the posterior. It needs a Gaussian
            likelihood.

    Example:
        >>> ensemble = bnnp.inference.Ensemble(members=3)
        >>> bnnp.infer(model, x, y, method=ensemble, steps=5).num_samples
        3
    """

    members: int = 20
    anchored: bool = False

    def __post_init__(self):
        check_fields(self)

    def start(self, target: Target, num_samples: int, generator: torch.Generator) -> Start:
        members = min(self.members, num_samples)
        position = target.draw_prior(members, generator)
        if not self.anchored:
            return target, position, None
        if not isinstance(target.likelihood, Gaussian) or not target.whitened:
            raise ValueError(
                "method: an anchored ensemble needs a Gaussian likelihood and whitened=True, got "
                f"{type(target.likelihood).__name__} and whitened={target.whitened}"
            )
        data = TaskBatch(
            *(part.repeat_interleave(members, 0) for part in (target.data.x, target.data.y, target.data.mask))
        )
        y = data.y + target.likelihood.noise_at(data.x).detach() * normal(data.y.shape, data.y, generator)
        apart = position.reshape(-1, 1, position.shape[-1])
        return replace(target, data=TaskBatch(data.x, y, data.mask)), apart, apart.clone()

    @torch.no_grad()
    def sample(self, target: Target, state: Climbing, num_samples: int, generator: torch.Generator) -> Drawn:
        """The weights of the members."""
        weights = target.weights(state.place.detach().reshape(target.sets, -1, target.size))
        return Drawn(weights, _traces(state, target.sets))


@dataclass(frozen=True)
class Laplace(ModeFinder):
    """Laplace's approximation: a Gaussian centred at a mode, with the generalised Gauss-Newton precision.

    In coordinates in which the prior is standard normal the precision is `I + A^T A`, with one row of `A` for every
    output at every point. Sampling is the library's conjugate update: it costs `O(n^2 size)` for `n` outputs, and the
    Jacobian costs `n` backward passes.

    Args:
        last_layer: Whether only the last layer's weights are drawn, while the others stay at the mode.

    Example:
        >>> laplace = bnnp.inference.Laplace(last_layer=True)
        >>> bnnp.infer(model, x, y, method=laplace, num_samples=8, steps=5).num_samples
        8
    """

    last_layer: bool = False

    def __post_init__(self):
        check_fields(self)

    def start(self, target: Target, num_samples: int, generator: torch.Generator) -> Start:
        if not target.whitened:
            raise ValueError("whitened: got False, expected True: Laplace's approximation is the same in both")
        return target, target.draw_prior(1, generator), None

    def sample(self, target: Target, state: Climbing, num_samples: int, generator: torch.Generator) -> Drawn:
        mode = state.place.detach()
        draws = [self._about(target, mode, i, num_samples, generator) for i in range(target.sets)]
        with torch.no_grad():
            weights = target.weights(torch.stack(draws))
        return Drawn(weights, _traces(state, target.sets))

    def _about(
        self, target: Target, mode: Float[Tensor, "sets 1 size"], index: int, samples: int, generator: torch.Generator
    ) -> Float[Tensor, "samples size"]:
        jacobian, root = _linearised(replace(target, data=one_set(target.data, index)), mode[index : index + 1])
        d, out = target.network.weight_shapes[-1]
        first = target.size - d * out if self.last_layer else 0
        jacobian = jacobian[..., first:]
        rows = (root @ jacobian).flatten(0, 1)
        size = rows.shape[1]
        standard = UnitPrior(rows.new_zeros(1, 1, 1, size), rows.new_ones(1, size))
        seen = Observations(rows.new_zeros(1, 1, 1, len(rows)), rows.new_ones(1, 1, 1, len(rows)))
        draws = UpdateDraws(
            normal((1, samples, 1, size), rows, generator), normal((1, samples, 1, len(rows)), rows, generator)
        )
        with torch.no_grad():
            centred = condition(standard, rows[None, None], seen, draws).centred[0, :, 0]
        position = mode[index].expand(samples, -1).clone()
        position[:, first:] += centred
        return position


def _linearised(
    target: Target, position: Float[Tensor, "1 1 size"]
) -> tuple[Float[Tensor, "points out size"], Float[Tensor, "points out out"]]:
    """The Jacobian of a network's outputs at the points of one data set, and the root of the likelihood's curvature."""
    leaf = position.clone().requires_grad_()
    with torch.enable_grad():
        outputs = target.network(target.weights(leaf), target.data.x.unsqueeze(1), target.data.mask.unsqueeze(1))[0, 0]
        rows = [torch.autograd.grad(one, leaf, retain_graph=True)[0].flatten() for one in outputs.flatten()]
    jacobian = torch.stack(rows) if rows else position.new_zeros(0, position.shape[-1])
    root = at_points(target.likelihood, target.data.x[0]).curvature_root(outputs.detach())
    return jacobian.view(*outputs.shape, position.shape[-1]), root.detach()


def _traces(state: Climbing, sets: int) -> list[Diagnostics]:
    trace = torch.stack(state.climb.trace)
    return [Diagnostics(elbo=trace[:, i]) for i in range(sets)]
