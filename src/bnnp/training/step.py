"""The gradient of one training step."""

import math
from collections.abc import Sequence

import torch
from torch import nn

from bnnp._core.random import child
from bnnp.numerics.solve import FactorisationError
from bnnp.objectives import Model, Objective, Terms
from bnnp.tasks.task import SplitBatch
from bnnp.training.optimiser import set_gradients


class NotFinite(ArithmeticError):
    """The objective is not finite; `task` says where in the batch."""

    def __init__(self, reason: str, task: int):
        super().__init__(reason)
        self.task = task


def differentiate(
    model: Model, objective: Objective, batch: SplitBatch, parameters: Sequence[nn.Parameter], *seed: int
) -> Terms:
    """Set `grad` of the parameters to that of minus the objective, averaged over the tasks of a prepared batch.

    seed: as for `child`; the same numbers give the same draws.
    """
    terms = _terms(model, objective, batch, seed)
    total = terms.total()
    loss = -total.mean()
    if not math.isfinite(loss.item()):
        raise NotFinite("the objective is not finite", int(torch.isfinite(total).int().argmin()))
    set_gradients(parameters, torch.autograd.grad(loss, parameters, allow_unused=True))
    return Terms({name: term.detach() for name, term in terms.by_name.items()})


def task_of_bad_gradient(
    model: Model, objective: Objective, batch: SplitBatch, parameters: Sequence[nn.Parameter], *seed: int
) -> int | None:
    """The first task whose own gradient is not finite; None where that is so for none of them, or for all alike."""
    bad = []
    for task, value in enumerate(_terms(model, objective, batch, seed).total()):
        gradients = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients if gradient is not None):
            bad.append(task)
    return bad[0] if bad and (len(bad) < len(batch) or len(batch) == 1) else None


def _terms(model: Model, objective: Objective, batch: SplitBatch, seed: Sequence[int]) -> Terms:
    try:
        return objective(model, batch, child(*seed))
    except FactorisationError as error:
        raise NotFinite(str(error), error.task) from error
