"""SWAG (Maddox et al. 2019): a Gaussian with the moments of a path of plain gradient steps near a mode."""

import math
from dataclasses import dataclass, replace

import torch
from torch import nn

from bnnp._core.checks import check_fields, check_positive
from bnnp._core.random import normal
from bnnp._core.shapes import Float, Tensor
from bnnp.inference.base import Diagnostics, Drawn, Effort, Method
from bnnp.inference.climb import Climb
from bnnp.inference.target import Target

STEPS = 5000
POWER_ITERATIONS = 20


@dataclass(frozen=True)
class Path:
    """A path of gradient steps, and its moments so far.

    Attributes:
        place: The current position.
        climb: The optimiser of the climb to a mode.
        rate: Learning rate of the plain steps for every data set; None during the climb.
        mean: Mean of the counted positions.
        square: Mean of their squares.
        deviations: The last counted positions, each minus the mean at that time.
        steps: Number of plain steps.
        counted: Number of counted positions.
    """

    place: nn.Parameter
    climb: Climb
    rate: Float[Tensor, "sets 1 1"] | None
    mean: Float[Tensor, "sets size"]
    square: Float[Tensor, "sets size"]
    deviations: tuple[Float[Tensor, "sets size"], ...] = ()
    steps: int = 0
    counted: int = 0


@dataclass(frozen=True)
class SWAG(Method):
    """SWAG (Maddox et al. 2019): a Gaussian with the moments of a path of plain gradient steps near a mode.

    Half of its covariance is the diagonal of the path's variances, half a low-rank part from the path's last
    deviations. Where the posterior is Gaussian, the mean is that of the posterior; the covariance is the path's, not
    the posterior's.

    Args:
        updates: Number of positions that are counted.
        every: Plain gradient steps between two counted positions.
        rank: Rank of the low-rank part.
        batch_size: Points in a minibatch. The noise of minibatches spreads the path: a data set with no more points
            than this has hardly any width, unless the learning rate is too large for the steps to settle.
        learning_rate: Learning rate of the plain steps on the log posterior density. None: the reciprocal of its
            largest curvature at the mode, which is half of the rate at which full-batch steps become unstable.

    Example:
        >>> swag = bnnp.inference.SWAG(updates=4, every=2, batch_size=2)
        >>> bnnp.infer(model, x, y, method=swag, num_samples=8, steps=5).num_samples
        8
    """

    updates: int = 100
    every: int = 25
    rank: int = 64
    batch_size: int = 10
    learning_rate: float | None = None
    whitened = True

    def __post_init__(self):
        check_fields(self)
        if self.learning_rate is not None:
            check_positive("learning_rate", self.learning_rate, "as in 1e-3, or None to choose it")

    def num_steps(self, effort: Effort, num_samples: int) -> int:
        return (STEPS if effort.steps is None else effort.steps) + self.updates * self.every

    def init(self, target: Target, effort: Effort, num_samples: int, generator: torch.Generator) -> Path:
        place = nn.Parameter(target.draw_prior(1, generator))
        steps = STEPS if effort.steps is None else effort.steps
        zero = torch.zeros_like(place[:, 0].detach())
        return Path(place, Climb([place], steps, effort.learning_rate), None, zero, zero)

    @torch.no_grad()
    def step(self, target: Target, state: Path, generator: torch.Generator) -> Path:
        position = state.place.detach()
        if len(state.climb.trace) < state.climb.steps:
            value, gradient = target.value_and_gradient(position)
            state.climb.along(value[:, 0], [gradient])
            return state
        rate = self._rate(target, position, generator) if state.rate is None else state.rate
        _, gradient = target.minibatch_value_and_gradient(position, self.batch_size, generator)
        state.place.data += rate * gradient
        if not bool(torch.isfinite(state.place).all()):
            raise ArithmeticError(
                f"SWAG's path is not finite after {state.steps} plain steps; a smaller learning rate than "
                f"{float(rate.max()):g} may help"
            )
        state = replace(state, rate=rate, steps=state.steps + 1)
        return self._counted(state) if state.steps % self.every == 0 else state

    @torch.no_grad()
    def sample(self, target: Target, state: Path, num_samples: int, generator: torch.Generator) -> Drawn:
        variance = (state.square - state.mean.square()).clamp(min=0)  # below 0 by rounding only
        shape = (target.sets, num_samples)
        away = variance.sqrt().unsqueeze(1) * normal((*shape, target.size), variance, generator)
        deviations = torch.stack(state.deviations, dim=1)
        rank = deviations.shape[1]
        if rank > 1:
            low = normal((*shape, rank), variance, generator) @ deviations / math.sqrt(rank - 1)
            away = (away + low) / math.sqrt(2)
        trace = torch.stack(state.climb.trace)
        diagnostics = [Diagnostics(elbo=trace[:, i]) for i in range(target.sets)]
        return Drawn(target.weights(state.mean.unsqueeze(1) + away), diagnostics)

    def _counted(self, state: Path) -> Path:
        position, n = state.place.detach()[:, 0], state.counted
        mean = (n * state.mean + position) / (n + 1)
        return replace(
            state,
            mean=mean,
            square=(n * state.square + position.square()) / (n + 1),
            deviations=(*state.deviations, position - mean)[-self.rank :],
            counted=n + 1,
        )

    def _rate(self, target: Target, position: Tensor, generator: torch.Generator) -> Float[Tensor, "sets 1 1"]:
        if self.learning_rate is not None:
            return position.new_full((target.sets, 1, 1), self.learning_rate)
        direction = normal(position.shape, position, generator)
        curvature = position.new_ones(target.sets, 1, 1)
        small = 1e-3
        for _ in range(POWER_ITERATIONS):
            direction = direction / direction.norm(dim=-1, keepdim=True)
            ahead = target.value_and_gradient(position + small * direction)[1]
            behind = target.value_and_gradient(position - small * direction)[1]
            direction = (behind - ahead) / (2 * small)
            curvature = direction.norm(dim=-1, keepdim=True)
        return 1 / curvature
