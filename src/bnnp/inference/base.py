"""The interface of all methods of inference: `init`, then `step` many times, then `sample`."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bnnp._core.checks import check_count, check_fields, is_number
from bnnp._core.shapes import Float, Tensor
from bnnp._core.show import Shown, span
from bnnp.inference.target import Target


@dataclass(frozen=True)
class Effort:
    """How much work goes into an inference. A method reads the fields that it needs.

    Args:
        steps: Number of steps of the optimiser, or of every Markov chain after its warm-up. None: the method's own
            number, or as many as the samples need.
        learning_rate: Learning rate of the optimiser at the first and at the last step.
        elbo_samples: Weight samples per step of the optimiser.
        chains: Number of Markov chains.
        warmup: Steps of each chain that are thrown away.
        thin: Every `thin`-th step of a chain becomes a sample, if `steps` is None.
        climb: Steps up the log posterior density, from a draw of the prior, before a chain begins.

    Raises:
        ValueError: If a number is too small or a learning rate is not positive.

    Example:
        >>> effort = bnnp.inference.Effort(chains=2, warmup=100)
        >>> effort.chains, effort.steps
        (2, None)
    """

    steps: int | None = None
    learning_rate: tuple[float, float] = (5e-3, 1e-4)
    elbo_samples: int = 8
    chains: int = 4
    warmup: int = 500
    thin: int = 1
    climb: int = 0

    def __post_init__(self):
        check_fields(self, warmup=0, climb=0)
        if self.steps is not None:
            check_count("steps", self.steps, "whole number, as in 1000, or None for the method's own number")
        rates = self.learning_rate
        if not (isinstance(rates, tuple | list) and len(rates) == 2 and all(is_number(r) and r > 0 for r in rates)):
            raise ValueError(f"learning_rate: got {rates!r}, expected two positive numbers, first and last")


@dataclass(frozen=True, eq=False, repr=False)
class Diagnostics(Shown):
    """How an inference went. A field that a method does not have is None.

    R-hat and effective sample size are those of the function's values at the first inputs of the data. Those of the
    weights mean little: hidden units can swap places without a change of the function.

    Attributes:
        acceptance: Mean acceptance probability of the proposals of every chain.
        step_size: Step size of every chain after warm-up.
        rhat: The largest R-hat.
        ess: The smallest effective sample size (bulk).
        elbo: Estimates of the evidence lower bound, or of the log posterior density, during the optimisation.
        bound: The evidence lower bound at the end, from `BOUND_SAMPLES` samples, in nats and in the model's units.
        bound_error: Standard error of `bound`.
        warnings: Reasons to doubt the result.

    Example:
        >>> found = bnnp.infer(model, x, y, method="ensemble", num_samples=2, steps=5).diagnostics
        >>> len(found.elbo), found.rhat, found.warnings
        (5, None, ())
    """

    acceptance: Float[Tensor, "chains"] | None = None
    step_size: Float[Tensor, "chains"] | None = None
    rhat: float | None = None
    ess: float | None = None
    elbo: Float[Tensor, "steps"] | None = None
    bound: float | None = None
    bound_error: float | None = None
    warnings: tuple[str, ...] = ()

    def _described(self) -> dict[str, object]:
        chains = {"acceptance": self.acceptance, "step size": self.step_size}
        numbers = {"R-hat": self.rhat, "effective samples": self.ess, "bound": self.bound}
        shown: dict[str, object] = {name: span(found.tolist()) for name, found in chains.items() if found is not None}
        shown |= {name: f"{found:.4g}" for name, found in numbers.items() if found is not None}
        return {**shown, "warnings": "; ".join(self.warnings) or "none"}


@dataclass(frozen=True)
class Drawn:
    """The samples that a method has drawn, and how it went.

    Attributes:
        weights: Weight samples of every layer.
        diagnostics: How the inference went, for every data set.
        chains: Number of Markov chains that the samples come from, chain after chain; 1 for other methods.
    """

    weights: list[Float[Tensor, "sets samples _d _out"]]
    diagnostics: Sequence[Diagnostics]
    chains: int = 1


class Method(abc.ABC):
    """A way to infer weights, as a record of its settings. It works on all data sets of a target side by side.

    `init` makes the first state, `step` makes the next state from the last one, and `sample` draws weights from the
    final state. Every method has its own kind of state.

    Example:
        >>> isinstance(bnnp.inference.METHODS["nuts"], bnnp.inference.Method)
        True
    """

    whitened = False
    """Whether the method works in coordinates in which the prior is standard normal."""

    @abc.abstractmethod
    def num_steps(self, effort: Effort, num_samples: int) -> int:
        """The number of calls of `step` for this effort."""

    @abc.abstractmethod
    def init(self, target: Target, effort: Effort, num_samples: int, generator: torch.Generator) -> Any:
        """The first state."""

    @abc.abstractmethod
    def step(self, target: Target, state: Any, generator: torch.Generator) -> Any:
        """The state after one more step."""

    @abc.abstractmethod
    def sample(self, target: Target, state: Any, num_samples: int, generator: torch.Generator) -> Drawn:
        """Weight samples from the final state, with diagnostics."""
