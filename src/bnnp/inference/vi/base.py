"""Variational inference: parameters of an approximation climb the evidence lower bound."""

import abc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from bnnp._core.shapes import Float, Tensor
from bnnp.inference.base import Diagnostics, Drawn, Effort, Method
from bnnp.inference.climb import Climb
from bnnp.inference.target import Target

BOUND_SAMPLES = 10_000
STEPS = 5000


@dataclass(frozen=True)
class Approximating:
    """An approximation during its optimisation."""

    approximation: nn.Module
    climb: Climb
    elbo_samples: int


class Variational(Method):
    """Variational inference. A subclass says how its approximation starts, what its bound is and how to draw."""

    @abc.abstractmethod
    def approximation(self, target: Target, generator: torch.Generator) -> nn.Module:
        """The approximation at its start."""

    @abc.abstractmethod
    def bound(
        self, target: Target, approximation: Any, samples: int, generator: torch.Generator
    ) -> Float[Tensor, "sets samples"]:
        """Unbiased estimates of the evidence lower bound, one per sample."""

    @abc.abstractmethod
    def draw(
        self, target: Target, approximation: Any, samples: int, generator: torch.Generator
    ) -> list[Float[Tensor, "sets samples _d _out"]]:
        """Weights of every layer."""

    def num_steps(self, effort: Effort, num_samples: int) -> int:
        return STEPS if effort.steps is None else effort.steps

    def init(self, target: Target, effort: Effort, num_samples: int, generator: torch.Generator) -> Approximating:
        approximation = self.approximation(target, generator)
        parameters = [p for p in approximation.parameters() if p.requires_grad and p.numel()]
        climb = Climb(parameters, self.num_steps(effort, num_samples), effort.learning_rate)
        return Approximating(approximation, climb, effort.elbo_samples)

    def step(self, target: Target, state: Approximating, generator: torch.Generator) -> Approximating:
        state.climb.up(lambda: self.bound(target, state.approximation, state.elbo_samples, generator).mean(1))
        return state

    @torch.no_grad()
    def sample(self, target: Target, state: Approximating, num_samples: int, generator: torch.Generator) -> Drawn:
        """Weights drawn from the approximation, and the bound from `BOUND_SAMPLES` others."""
        weights = self.draw(target, state.approximation, num_samples, generator)
        final = _in_parts(lambda count: self.bound(target, state.approximation, count, generator), BOUND_SAMPLES)
        errors = final.std(1) / math.sqrt(BOUND_SAMPLES)
        trace = torch.stack(state.climb.trace)
        return Drawn(
            weights,
            [
                Diagnostics(elbo=trace[:, i], bound=float(final[i].mean()), bound_error=float(errors[i]))
                for i in range(target.sets)
            ],
        )


def _in_parts(draw: Callable[[int], Float[Tensor, "sets _"]], samples: int) -> Float[Tensor, "sets samples"]:
    """Samples in parts that keep memory bounded."""
    size = 500
    return torch.cat([draw(min(size, samples - start)) for start in range(0, samples, size)], dim=1).double()
