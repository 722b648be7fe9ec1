"""Adam whose parameters are averaged over the last steps."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn
from torch.optim.optimizer import ParamsT

from bnnp._core.shapes import Tensor


class AveragedAdam(torch.optim.Adam):
    """Adam (fused), with a moving average of each parameter beside it.

    Gradients of the predictive term are noisy. The average over about `1/(1 - decay)` steps is a better model than the
    parameters of the last step, during all of training. The average is a part of the optimiser's state, so checkpoints
    hold it.

    Args:
        parameters: Parameters, or groups of them, as for `torch.optim.Adam`.
        lr: Learning rate.
        decay: Weight of the old average in each step.
    """

    def __init__(self, parameters: ParamsT, lr: float = 1e-3, decay: float = 0.999):
        super().__init__(parameters, lr=lr, fused=True)
        for group in self.param_groups:
            group["decay"] = decay

    @torch.no_grad()
    def step(self, closure=None):
        result = super().step(closure)
        for parameter, state, longest in self._averages():
            steps = float(state["step"])
            decay = min(longest, steps / (steps + 10))  # the first steps are forgotten soon
            if "average" not in state:
                state["average"] = parameter.detach().clone()
            state["average"].lerp_(parameter, 1 - decay)
        return result

    @torch.no_grad()
    def adopt(self) -> None:
        """Set the parameters to their averages."""
        for parameter, state, _ in self._averages():
            if "average" in state:
                parameter.copy_(state["average"])

    def _averages(self) -> Iterator[tuple[torch.nn.Parameter, dict, float]]:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter in self.state:
                    yield parameter, self.state[parameter], group["decay"]


@contextmanager
def averaged(optimiser: torch.optim.Optimizer) -> Iterator[None]:
    """Within the block the parameters are their averages, if the optimiser keeps averages."""
    if not isinstance(optimiser, AveragedAdam):
        yield
        return
    parameters = [parameter for parameter, _, _ in optimiser._averages()]
    last = [parameter.detach().clone() for parameter in parameters]
    optimiser.adopt()
    try:
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(parameters, last, strict=True):
                parameter.copy_(value)


def set_gradients(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor | None]) -> None:
    """Give parameters their gradients, stored in the same order in memory as the parameters.

    Fused Adam goes through both in the order of memory, so a transposed gradient would silently change the wrong
    elements. `backward()` takes care of that, `autograd.grad` does not.

    Args:
        parameters: The parameters.
        gradients: One gradient per parameter; None for a parameter without one.
    """
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is not None and gradient.stride() != parameter.stride():
            gradient = torch.empty_like(parameter).copy_(gradient)
        parameter.grad = gradient
