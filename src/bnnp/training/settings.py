"""Choices of a training run that most users leave as they are."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from bnnp._core.checks import check_count, is_number
from bnnp.priors.starts import Start, as_start
from bnnp.training.optimiser import AveragedAdam
from bnnp.training.schedule import as_rate

Optimiser = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Evaluation:
    """What to measure during training, and how often.

    Args:
        function: Takes the model as its users would get it at that step, and returns numbers by name. They go into
            `result.history.evaluations`.
        every: Number of steps between two evaluations. There is always one after the last step.

    Raises:
        ValueError: If the function cannot be called, or `every` is not a positive whole number.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8, 8), likelihood=bnnp.Gaussian(0.1))
        >>> evaluation = bnnp.Evaluation(lambda model: {"noise": model.likelihood.noise.item()}, every=2)
        >>> settings = bnnp.FitSettings(evaluation=evaluation)
        >>> result = bnnp.fit(model, tasks, steps=3, settings=settings, progress=False)
        >>> [record["step"] for record in result.history.evaluations]
        [2, 3]
    """

    function: Callable[[Any], Mapping[str, float]]
    every: int = 1000

    def __post_init__(self):
        if not callable(self.function):
            raise ValueError(f"function: got {self.function!r}, expected a function of the model that returns numbers")
        check_count("every", self.every, "whole number of steps, as in Evaluation(function, every=1000)")


@dataclass(frozen=True)
class FitSettings:
    """How `bnnp.fit` trains. The defaults suit most data sets.

    Args:
        learning_rate: One number, or a pair of the first and the last value, between which it changes linearly.
        prior_lr_multiplier: The learning rate of the prior is this many times that of the rest. 3 pays with thousands
            of tasks, not with few. It must be positive; `model.set_prior_learnability(0)` fixes a prior.
        clip_norm: Bound on the norm of the gradient; None for no bound. Without a bound, one badly predicted task can
            undo thousands of steps.
        optimiser: A function of the parameters (in groups), as `torch.optim.Adam`. The default is Adam with averaged
            parameters: evaluations see the average over about the last 1000 steps, and the model ends with it.
        prior_start: Where a learnable prior that is still the standard one starts: an object of `bnnp.starts`, your
            own object derived from `bnnp.starts.Start`, or a name. "empirical" is fitted to the tasks in closed form;
            "spread" is a random network whose features are spread over the inputs; "standard" leaves the prior as it
            is. A fixed or trained prior is not touched.
        chunk_size: Number of points per chunk. Larger contexts are inferred from chunk by chunk, with derivatives
            through one chunk only (paper, App. C), so that memory stays bounded. None for whole contexts.
            `docs/large_contexts.md` says what chunks do to the gradient.
        evaluation: A `bnnp.Evaluation` to measure something during training; None for nothing.
        record_every: Number of steps between two records of the history.

    Raises:
        ValueError: If a value is not as described.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8, 8), likelihood=bnnp.Gaussian(0.1))
        >>> settings = bnnp.FitSettings(learning_rate=(2e-3, 5e-5), prior_start=bnnp.starts.Spread(slope=8.0))
        >>> result = bnnp.fit(model, tasks, steps=2, settings=settings, progress=False)
        >>> round(result.history.steps[-1]["learning_rate"], 8)
        5e-05
    """

    learning_rate: float | tuple[float, float] = (3e-3, 1e-4)
    prior_lr_multiplier: float = 1.0
    clip_norm: float | None = 200.0
    optimiser: Optimiser = AveragedAdam
    prior_start: Start | str = "spread"
    chunk_size: int | None = None
    evaluation: Evaluation | None = None
    record_every: int = 10

    def __post_init__(self):
        as_rate(self.learning_rate)
        as_start(self.prior_start)
        self._check_numbers()
        self._check_objects()

    def _check_numbers(self) -> None:
        if not (is_number(self.prior_lr_multiplier) and self.prior_lr_multiplier > 0):
            raise ValueError(
                f"prior_lr_multiplier: got {self.prior_lr_multiplier!r}, expected a positive number, as in 3.0; call "
                "model.set_prior_learnability(0) before training to hold the prior fixed"
            )
        if self.clip_norm is not None and not (is_number(self.clip_norm) and self.clip_norm > 0):
            raise ValueError(
                f"clip_norm: got {self.clip_norm!r}, expected a positive number, as in 200.0, or None for no bound"
            )
        check_count("record_every", self.record_every, "whole number of steps, as in 10")
        if self.chunk_size is not None:
            check_count("chunk_size", self.chunk_size, "number of points, as in 512, or None for whole contexts")

    def _check_objects(self) -> None:
        if not callable(self.optimiser):
            raise ValueError(
                f"optimiser: got {self.optimiser!r}, expected a function of the parameters, as torch.optim.Adam"
            )
        if self.evaluation is not None and not isinstance(self.evaluation, Evaluation):
            raise ValueError(
                f"evaluation: got {self.evaluation!r}, expected a record, as bnnp.Evaluation(function, every=1000)"
            )


DEFAULTS = FitSettings()
"""What `fit` does where no settings are given."""
