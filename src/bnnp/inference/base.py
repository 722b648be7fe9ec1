"""The form that all ways to infer weights have: `init`, `step`, `sample`, in that order."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.inference.target import Target


@dataclass(frozen=True)
class Effort:
    """How much work goes into it.

    Args:
        steps: Of the optimiser, or of every Markov chain after its warm-up. None: the method's own number, or as many
            as the samples need.
        learning_rate: Of the optimiser, first and last.
        elbo_samples: Weight samples per step of the optimiser.
        chains: Markov chains.
        warmup: Steps of each chain that are thrown away.
        thin: How many steps of a chain make one sample.
        climb: Steps up the log posterior from a draw of the prior before a chain begins.
    """

    steps: int | None = None
    learning_rate: tuple[float, float] = (5e-3, 1e-4)
    elbo_samples: int = 8
    chains: int = 4
    warmup: int = 500
    thin: int = 1
    climb: int = 0

    def __post_init__(self):
        for name, least in (("elbo_samples", 1), ("chains", 1), ("warmup", 0), ("thin", 1), ("climb", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: got {getattr(self, name)}, expected at least {least}")
        if self.steps is not None and self.steps < 1:
            raise ValueError(f"steps: got {self.steps}, expected at least 1, or None for the method's own number")
        if not all(rate > 0 for rate in self.learning_rate):
            raise ValueError(f"learning_rate: got {self.learning_rate}, expected two positive numbers, first and last")


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """How inference went. What a method does not have is None.

    acceptance: mean probability of the proposals of every chain.  step_size: of every chain, after warm-up.
    rhat, ess: the largest R-hat and the smallest effective sample size (bulk) among the function's values at the data's
        first inputs: weights themselves may be exchanged without a change of the function, so that theirs mean little.
    elbo: the estimates of the evidence lower bound, or of the log posterior density, during the optimisation.
    bound, bound_error: the bound at its end, from `BOUND_SAMPLES` samples, and its standard error, in nats and in the
        units of the model.
    warnings: what speaks against the result.
    """

    acceptance: Float[Tensor, "chains"] | None = None
    step_size: Float[Tensor, "chains"] | None = None
    rhat: float | None = None
    ess: float | None = None
    elbo: Float[Tensor, "steps"] | None = None
    bound: float | None = None
    bound_error: float | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drawn:
    """What a method ends with: weights of every layer, and for every data set how it went.

    chains: how many Markov chains the samples come from, one after the other; 1 for other methods.
    """

    weights: list[Float[Tensor, "sets samples _d _out"]]
    diagnostics: Sequence[Diagnostics]
    chains: int = 1


class Method(abc.ABC):
    """A record of choices. All data sets of a target are worked on side by side.

    `init` gives a state, `step` the next one, and `sample` what is wanted in the end. States are the method's own.
    """

    whitened = False
    """Whether it works in coordinates in which the prior is standard normal."""

    @abc.abstractmethod
    def num_steps(self, effort: Effort, num_samples: int) -> int:
        """How many steps so much effort is."""

    @abc.abstractmethod
    def init(self, target: Target, effort: Effort, num_samples: int, generator: torch.Generator) -> Any: ...

    @abc.abstractmethod
    def step(self, target: Target, state: Any, generator: torch.Generator) -> Any: ...

    @abc.abstractmethod
    def sample(self, target: Target, state: Any, num_samples: int, generator: torch.Generator) -> Drawn: ...
