"""The one loop for everything that climbs: evidence lower bounds, and log posteriors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from bnnp._shapes import Float, Tensor


@dataclass(frozen=True)
class Schedule:
    """steps: how many; the learning rate falls linearly from the first to the last."""

    steps: int
    learning_rate: tuple[float, float] = (5e-3, 1e-4)


def climb(
    objective: Callable[[], Float[Tensor, "sets"]],
    parameters: Sequence[nn.Parameter],
    schedule: Schedule,
    advance: Callable[[float], None] = lambda _: None,
) -> Float[Tensor, "steps sets"]:
    """Maximise the sum of the objectives of all data sets by Adam, which keeps them apart; gives their trace."""
    first, last = schedule.learning_rate
    optimiser = torch.optim.Adam(parameters, lr=first, fused=True)
    trace = []
    for step in range(schedule.steps):
        for group in optimiser.param_groups:
            group["lr"] = first + (last - first) * step / max(1, schedule.steps - 1)
        value = objective()
        if not bool(torch.isfinite(value).all()):
            where = int((~torch.isfinite(value)).nonzero()[0])
            raise ArithmeticError(
                f"the objective is not finite at step {step}, data set {where}; a smaller learning rate than "
                f"{first:g} may help"
            )
        gradients = torch.autograd.grad(-value.sum(), parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        optimiser.step()
        trace.append(value.detach())
        advance(float(trace[-1].mean()))
    return torch.stack(trace) if trace else torch.zeros(0, 0)
