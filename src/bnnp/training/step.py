"""The gradient of one training step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from bnnp._core.random import child
from bnnp._core.ranks import Ranks
from bnnp._core.shapes import Tensor
from bnnp.models.base import MetaLearner
from bnnp.models.chunked import in_chunks
from bnnp.numerics import fallbacks
from bnnp.numerics.solve import FactorisationError
from bnnp.objectives import Model, Objective, Terms
from bnnp.tasks.task import SplitBatch
from bnnp.training.history import FALLBACKS
from bnnp.training.optimiser import set_gradients
from bnnp.training.ranks import Share, summed
from bnnp.training.settings import FitSettings


class NotFinite(ArithmeticError):
    """The objective or its gradient is not finite.

    Attributes:
        task: Index, in the batch, of the task that failed; None if no single task is the cause.
    """

    def __init__(self, reason: str, task: int | None):
        super().__init__(reason)
        self.task = task


@dataclass(frozen=True)
class Outcome:
    """The numbers that a step reports.

    Attributes:
        terms: The objective and its terms by name, averaged over the tasks of the batch.
        fallbacks: Number of numerical fallbacks by kind (`bnnp.numerics.fallbacks`).
    """

    terms: dict[str, float]
    fallbacks: dict[str, int]


class Gradient:
    """Computes the gradient of a training step, clips it and stores it in the parameters of the model.

    Args:
        model: The model to train.
        objective: What is maximised.
        settings: Only `chunk_size` and `clip_norm` are used.

    Raises:
        ValueError: If `chunk_size` is given and the model cannot take contexts in chunks.
    """

    def __init__(self, model: MetaLearner, objective: Objective, settings: FitSettings):
        self.model = model
        self.learner: Model = model if settings.chunk_size is None else in_chunks(model, settings.chunk_size)
        self.objective = objective
        self.bound = math.inf if settings.clip_norm is None else settings.clip_norm
        self.ranks = Ranks.present()
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def __call__(self, batch: SplitBatch, *seed: int) -> Outcome:
        """Set the gradient of the parameters for a batch.

        Args:
            batch: Tasks in the user's units.
            seed: As for `child`; the same numbers give the same draws.

        Returns:
            The terms of the objective, and the fallbacks.

        Raises:
            NotFinite: If the objective or the gradient is not finite.
        """
        prepared = SplitBatch(self.model.prepare(batch.context), self.model.prepare(batch.target))
        terms, counts = self._of_all(prepared, *seed)
        if not bool(torch.isfinite(nn.utils.clip_grad_norm_(self.parameters, self.bound))):
            task = None
            if self.ranks.size == 1:
                task = task_of_bad_gradient(self.learner, self.objective, prepared, self.parameters, *seed)
            raise NotFinite("the gradient is not finite", task)
        means = {name: float(values.mean()) for name, values in terms.items()}
        return Outcome({"objective": sum(means.values()), **means}, dict(zip(FALLBACKS, counts, strict=True)))

    def _of_all(self, batch: SplitBatch, *seed: int) -> tuple[dict[str, Tensor], list[int]]:
        """Set the gradient, with the other processes of the run; the terms of all tasks, and numbers of fallbacks."""
        if self.ranks.size == 1:
            with fallbacks.counted() as counts:
                terms = differentiate(self.learner, self.objective, batch, self.parameters, *seed)
            return terms.by_name, [getattr(counts, kind) for kind in FALLBACKS]
        share, terms, error = Share.in_group(self.ranks, len(batch)), Terms({}), None
        with fallbacks.counted() as counts:
            try:
                terms = differentiate(
                    self.learner, self.objective, share.of(batch), self.parameters, *seed, share=share
                )
            except NotFinite as found:
                error = found
        numbers = [getattr(counts, kind) for kind in FALLBACKS]
        failed = self.ranks.first_failure(None if error is None else share.start + (error.task or 0))
        if failed is not None:
            raise NotFinite("the objective is not finite", failed) from error
        return summed(self.parameters, terms.by_name, numbers, self.ranks, share)


def differentiate(
    model: Model,
    objective: Objective,
    batch: SplitBatch,
    parameters: Sequence[nn.Parameter],
    *seed: int,
    share: Share | None = None,
) -> Terms:
    """Set `grad` of the parameters to that of minus the objective, averaged over the tasks of a prepared batch.

    Args:
        model: The model as objectives see it.
        objective: What is maximised.
        batch: Tasks as the model sees them (`model.prepare`).
        parameters: Those that get a gradient.
        seed: As for `child`; the same numbers give the same draws.
        share: Which tasks of a larger batch these are, if they are not all.

    Returns:
        The terms of the objective, one value per task, without derivatives.

    Raises:
        NotFinite: If the objective is not finite.
    """
    terms = _terms(model, objective, batch, child(*seed) if share is None else share.generator(*seed))
    total = terms.total()
    loss = -total.mean()
    if not math.isfinite(loss.item()):
        raise NotFinite("the objective is not finite", int(torch.isfinite(total).int().argmin()))
    if loss.requires_grad:
        set_gradients(parameters, torch.autograd.grad(loss, parameters, allow_unused=True))
    else:  # a fixed prior and empty contexts: nothing that is learned had a part in it
        set_gradients(parameters, [None] * len(parameters))
    return Terms({name: term.detach() for name, term in terms.by_name.items()})


def task_of_bad_gradient(
    model: Model, objective: Objective, batch: SplitBatch, parameters: Sequence[nn.Parameter], *seed: int
) -> int | None:
    """Index of the first task whose own gradient is not finite; None if it is so for no task, or for all of several."""
    bad = []
    for task, value in enumerate(_terms(model, objective, batch, child(*seed)).total()):
        gradients = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        if not all(bool(torch.isfinite(gradient).all()) for gradient in gradients if gradient is not None):
            bad.append(task)
    return bad[0] if bad and (len(bad) < len(batch) or len(batch) == 1) else None


def _terms(model: Model, objective: Objective, batch: SplitBatch, random: torch.Generator) -> Terms:
    try:
        return objective(model, batch, random)
    except FactorisationError as error:
        raise NotFinite(str(error), error.task) from error
