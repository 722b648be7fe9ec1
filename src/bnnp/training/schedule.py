"""Learning rates: how they fall during training, and which parameters learn faster than others."""

from dataclasses import dataclass
from typing import Any

import torch

from bnnp._core.checks import is_number
from bnnp.models.base import MetaLearner


@dataclass(frozen=True)
class LinearRate:
    """A learning rate that changes linearly from its first to its last value.

    Attributes:
        first: Rate of the first step.
        last: Rate of the last step.

    Example:
        >>> LinearRate(4.0, 1.0).at(step=1, steps=4)
        3.0
    """

    first: float
    last: float

    def at(self, step: int, steps: int) -> float:
        """The rate of step number `step`, counted from 0, in a run of `steps` steps."""
        return self.first + (self.last - self.first) * (step / max(1, steps - 1))


def as_rate(learning_rate: float | tuple[float, float]) -> LinearRate:
    """The learning rate that a user chose, as a record.

    Args:
        learning_rate: A number, or a pair of the first and the last value.

    Returns:
        The record.

    Raises:
        ValueError: If it is neither, or if a rate is negative or not finite.

    Example:
        >>> as_rate(1e-3)
        LinearRate(first=0.001, last=0.001)
    """
    pair = isinstance(learning_rate, tuple | list)
    ends = tuple(learning_rate) if pair else (learning_rate, learning_rate)
    if len(ends) != 2 or not all(is_number(end) and end >= 0 for end in ends):
        raise ValueError(
            f"learning_rate: got {learning_rate!r}, expected a number, as in 1e-3, or its first and last value, "
            "as in (3e-3, 1e-4)"
        )
    return LinearRate(float(ends[0]), float(ends[1]))


def parameter_groups(model: MetaLearner, prior_lr_multiplier: float) -> list[dict[str, Any]]:
    """The parameters that are trained, in groups as an optimiser takes them: those of the prior, and all others.

    Args:
        model: The model to train.
        prior_lr_multiplier: Factor on the learning rate of the prior's parameters.

    Returns:
        The groups that are not empty, each with its `factor` on the learning rate.
    """
    prior = model.weight_prior
    of_prior = {id(parameter) for parameter in prior.parameters()} if prior is not None else set()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if id(p) in of_prior], "factor": prior_lr_multiplier},
        {"params": [p for p in trained if id(p) not in of_prior], "factor": 1.0},
    ]
    return [group for group in groups if group["params"]]


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of every group of parameters to `rate` times the factor of the group."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)
