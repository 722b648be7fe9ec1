"""Meta-training: from a collection of tasks to a learned prior and an amortised posterior (paper, Algorithm 1)."""

import hashlib
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import nn

from bnnp._core.progress import ProgressBar
from bnnp._core.random import Seed, as_integer, child
from bnnp._core.show import Shown
from bnnp.inference_nets.pseudo import AmortisedLinear
from bnnp.models.amortised import AmortisedModel
from bnnp.models.base import MetaLearner
from bnnp.models.chunked import in_chunks
from bnnp.objectives import NPML, PPAVI, Model, Objective, Terms
from bnnp.priors.starts.by_name import STARTS, check_start
from bnnp.priors.starts.spread import Examples
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.split import context_size
from bnnp.tasks.stream import TaskStream
from bnnp.tasks.task import SplitBatch, stacked
from bnnp.training.checkpoint import Checkpoint, comparable, restore
from bnnp.training.history import History
from bnnp.training.interrupts import held_back
from bnnp.training.optimiser import AveragedAdam, averaged
from bnnp.training.step import NotFinite, differentiate, task_of_bad_gradient

_STREAM, _NOISE, _START = 1, 2, 3
_POINTS_FOR_START = 1000
SAMPLES_WITHOUT_CLOSED_FORM = 32
"""Per task and step, by default, where the last layer is not integrated."""
Trained = TypeVar("Trained", bound=MetaLearner)
Optimiser = Callable[[list[dict[str, Any]]], torch.optim.Optimizer]


class TrainingDiverged(ArithmeticError):
    """The objective was not finite. The model has been set back to its last good state.

    task: its place in the batch; None where no single task is to blame.
    """

    def __init__(self, step: int, task: int | None, reason: str):
        where = f"step {step}" if task is None else f"step {step}, task {task} of the batch"
        super().__init__(
            f"training diverged at {where}: {reason}. The model is back at its last good "
            "state; try a smaller learning rate, a larger min_pseudo_noise, or dtype=torch.float64"
        )
        self.step = step
        self.task = task


@dataclass(frozen=True, eq=False, repr=False)
class FitResult(Shown, Generic[Trained]):
    """The trained model (the one that was passed in), its history, and whether it was stopped by Ctrl-C."""

    model: Trained
    history: History
    interrupted: bool = False

    def _described(self) -> dict[str, object]:
        return {"model": type(self.model).__name__, **self.history._described(), "interrupted": self.interrupted}


def fit(
    model: Trained,
    tasks: TaskSource,
    *,
    objective: Objective | None = None,
    steps: int = 10_000,
    batch_size: int = 5,
    context_share: float | tuple[float, float] = (0.1, 0.5),
    context_count: int | tuple[int, int] | None = None,
    chunk_size: int | None = None,
    learning_rate: tuple[float, float] = (3e-3, 1e-4),
    prior_rate: float = 1.0,
    optimiser: Optimiser = AveragedAdam,
    clip_norm: float | None = 200.0,
    prior_start: str = "spread",
    evaluation: Callable[[Trained], Mapping[str, float]] | None = None,
    evaluate_every: int = 1000,
    record_every: int = 10,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 500,
    progress: bool = True,
    seed: Seed = 0,
) -> FitResult[Trained]:
    """Train a model's prior, inference networks and likelihood on related tasks. The model is changed in place.

    tasks: a source of tasks, as from `bnnp.tasks.from_table`, `bnnp.tasks.from_arrays` or `bnnp.tasks.sawtooth`.
    objective: where not given, `bnnp.objectives.PPAVI()` for models with a prior over weights (with 32 samples where
        the likelihood is not Gaussian), and `NPML(num_samples=32)` for neural processes.
    context_share, context_count: size of random contexts, a number or a range; a count goes before a share.
    chunk_size: infer from larger contexts in chunks of so many points, with derivatives through one of them (paper,
        App. C): memory stays bounded. `docs/large_contexts.md` says what that does to the gradient.
    learning_rate: first and last value; linear in between.
    prior_rate: the prior learns this many times faster than the rest. 3 pays with thousands of tasks, not with few.
    optimiser: a function of the parameters (in groups), as `torch.optim.Adam`. The default is Adam with averaged
        parameters: evaluations see the average over about the last 1000 steps, and the model ends with it.
    clip_norm: bound on the norm of the gradient; None for none. One task that is predicted badly can otherwise throw
        training back by thousands of steps.
    prior_start: "spread" starts a learnable prior that is still the standard one as a random network whose features are
        spread over the inputs; "fitted" fits the last layer to the tasks as well; "switch" is for functions that jump
        between two levels (a network with tanh), "floor" for those that rest at a lowest value, as rain does (relu),
        and "place" for one shape at a random place, as a heartbeat (tanh); "standard" leaves it. `docs/training.md` has
        more. A fixed or trained prior is not touched.
    evaluation: called every `evaluate_every` steps and at the end; what it returns goes into the history.
    checkpoint: folder to keep the state in. A run that finds its own state there goes on from it, and ends with the
        same numbers as one that never stopped.

    Ctrl-C stops after the current step, keeps the state, and returns. An objective that is not finite raises
    `TrainingDiverged`.

    Example:
        result = bnnp.fit(model, bnnp.tasks.sawtooth(), steps=2_000, seed=0)
    """
    objective = _default_objective(model) if objective is None else objective
    source = _checked_source(model, tasks)
    _check_counts(
        steps=steps,
        batch_size=batch_size,
        evaluate_every=evaluate_every,
        record_every=record_every,
        checkpoint_every=checkpoint_every,
    )
    _check_rates(learning_rate, prior_rate, clip_norm)
    learner: Model = model if chunk_size is None else in_chunks(model, chunk_size)
    number = as_integer(seed)
    size = context_size(context_share, context_count)
    _prepare(model, source, prior_start, number)
    stream = TaskStream(source, batch_size, size, int(child(number, _STREAM).initial_seed()), model.device)
    adam = optimiser(_groups(model, prior_rate))
    run = _Run(model, learner, adam, History(), {}, checkpoint)
    if checkpoint is not None:
        run.settings = {
            "objective": _described(objective),
            "tasks": _described(source),
            "steps": steps,
            "batch_size": batch_size,
            "context": repr(size),
            "chunk_size": chunk_size,
            "learning_rate": list(learning_rate),
            "prior_rate": prior_rate,
            "optimiser": _described(adam),
            "clip_norm": clip_norm,
            "prior_start": prior_start,
            "seed": number,
            "model": comparable(model),
        }
        run.resume()

    def finish_step() -> None:
        if evaluation is not None and run.awaits_evaluation(evaluate_every, steps):
            with averaged(adam):
                values = evaluation(model)
            run.add_evaluation(values)
        if run.step % checkpoint_every == 0 or run.step == steps:
            run.keep()

    interrupted = False
    with ProgressBar(steps, run.step, enabled=progress) as bar:
        try:
            if run.awaits_evaluation(evaluate_every, steps):  # the run was stopped before it
                finish_step()
            while run.step < steps:
                _set_learning_rate(adam, learning_rate, run.step / max(1, steps - 1))
                noise = (number, _NOISE, run.step)
                terms = run.differentiate(objective, stream.batch(run.step), noise, clip_norm)
                with held_back():
                    run.advance(terms, last=run.step + 1 == steps, record_every=record_every)
                bar.advance(terms)
                finish_step()
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        run.keep()
    if isinstance(adam, AveragedAdam):
        adam.adopt()
    adam.zero_grad(set_to_none=True)
    return FitResult(model, run.history, interrupted)


class _Run:
    """The state of a training run: what a checkpoint holds."""

    def __init__(
        self,
        model: MetaLearner,
        learner: Model,
        optimiser: torch.optim.Optimizer,
        history: History,
        settings: dict[str, Any],
        folder: str | Path | None,
    ):
        self.model = model
        self.learner = learner
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimiser = optimiser
        self.history = history
        self.settings = settings
        self.folder = folder
        self.step = 0
        self.seconds = 0.0
        self._started = 0.0
        self._recent: list[dict[str, float]] = []
        self._good = _copy_of(model)

    def differentiate(
        self, objective: Objective, batch: SplitBatch, noise: tuple[int, ...], clip_norm: float | None
    ) -> dict[str, float]:
        """The gradient of one step. Returns the terms, averaged over tasks, points' sums as they are."""
        self._started = time.perf_counter()
        prepared = SplitBatch(self.model.prepare(batch.context), self.model.prepare(batch.target))
        try:
            terms = differentiate(self.learner, objective, prepared, self.parameters, *noise)
        except NotFinite as error:
            raise self._diverged(self.step + 1, error.task, str(error)) from error
        norm = nn.utils.clip_grad_norm_(self.parameters, clip_norm if clip_norm is not None else float("inf"))
        if not bool(torch.isfinite(norm)):
            task = task_of_bad_gradient(self.learner, objective, prepared, self.parameters, *noise)
            raise self._diverged(self.step + 1, task, "the gradient is not finite")
        return _means(terms)

    def advance(self, terms: dict[str, float], *, last: bool, record_every: int) -> None:
        """Move the parameters along the gradient, and write the step down."""
        self.optimiser.step()
        self.step += 1
        self.seconds += time.perf_counter() - self._started
        self._recent.append(terms)
        if self.step % record_every == 0 or last:
            means = {key: sum(r[key] for r in self._recent) / len(self._recent) for key in terms}
            rate = float(self.optimiser.param_groups[-1]["lr"])
            self.history.steps.append({"step": self.step, "seconds": self.seconds, "learning_rate": rate, **means})
            self._recent = []

    def awaits_evaluation(self, every: int, steps: int) -> bool:
        due = self.step > 0 and (self.step % every == 0 or self.step == steps)
        return due and not (self.history.evaluations and self.history.evaluations[-1]["step"] == self.step)

    def add_evaluation(self, values: Mapping[str, float]) -> None:
        numbers = {name: float(value) for name, value in values.items()}
        self.history.evaluations.append({"step": self.step, "seconds": self.seconds, **numbers})

    def keep(self) -> None:
        """Remember the present state as good, on disk too where a folder is given."""
        state = _copy_of(self.model)
        bad = [name for name, tensor in state.items() if not bool(torch.isfinite(tensor).all())]
        if bad:
            raise self._diverged(self.step, None, f"{bad[0]} is not finite")
        self._good = self._as_users_get_it()
        if self.folder is not None:
            Checkpoint(self.step, self.seconds, self.settings, self.history, self._recent).save(
                self.folder, self.model, self.optimiser
            )

    def _as_users_get_it(self) -> dict[str, torch.Tensor]:
        with averaged(self.optimiser):
            return _copy_of(self.model)

    def _diverged(self, step: int, task: int | None, reason: str) -> TrainingDiverged:
        self.model.load_state_dict(self._good)
        self.optimiser.zero_grad(set_to_none=True)
        return TrainingDiverged(step, task, reason)

    def resume(self) -> None:
        assert self.folder is not None
        found = restore(self.folder, self.model, self.optimiser, self.settings)
        if found is not None:
            self.step, self.seconds, self.history = found.step, found.seconds, found.history
            self._recent = found.recent
            self._good = self._as_users_get_it()


def _checked_source(model: MetaLearner, tasks: TaskSource) -> TaskSource:
    if not isinstance(tasks, TaskSource):
        raise ValueError(
            f"tasks: got {type(tasks).__name__}, expected a task source; "
            "make one with bnnp.tasks.from_arrays([(x, y), ...])"
        )
    if (tasks.in_size, tasks.out_size) != (model.in_size, model.y_size):
        raise ValueError(
            f"tasks: got {tasks.in_size} input and {tasks.out_size} output columns, "
            f"expected {model.in_size} and {model.y_size} as in the model"
        )
    if isinstance(tasks, Collection):
        for task in tasks.tasks:
            model.likelihood.check(task.y)
    return tasks


def _default_objective(model: MetaLearner) -> Objective:
    if model.weight_prior is None:
        return NPML(SAMPLES_WITHOUT_CLOSED_FORM)
    if isinstance(model, AmortisedModel) and model.can_integrate:
        return PPAVI()
    return PPAVI(SAMPLES_WITHOUT_CLOSED_FORM)


def _check_counts(**counts: int) -> None:
    for name, value in counts.items():
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name}: got {value!r}, expected a positive whole number")


def _check_rates(learning_rate: tuple[float, float], prior_rate: float, clip_norm: float | None) -> None:
    ends = tuple(learning_rate) if isinstance(learning_rate, tuple | list) else ()
    if len(ends) != 2 or not all(math.isfinite(end) and end >= 0 for end in ends):
        raise ValueError(
            f"learning_rate: got {learning_rate!r}, expected the first and the last value, as in (3e-3, 1e-4)"
        )
    if not (math.isfinite(prior_rate) and prior_rate >= 0):
        raise ValueError(f"prior_rate: got {prior_rate!r}, expected a factor, as in 3.0, or 1.0 for one rate for all")
    if clip_norm is not None and not clip_norm > 0:
        raise ValueError(f"clip_norm: got {clip_norm!r}, expected a positive number, or None for no bound")


def _prepare(model: MetaLearner, source: TaskSource, prior_start: str, seed: int) -> None:
    """Fit the standardisation and start the prior, where neither has been done before."""
    prior = model.weight_prior
    if prior is not None:
        check_start(prior_start, prior, real_valued=model.likelihood.real_valued)
    generator = child(seed, _START)
    if isinstance(source, Collection):
        model.columns.x_names, model.columns.y_names = list(source.x_names), list(source.y_names)
        if source.standardise and model.columns.is_identity():
            include_y = model.likelihood.real_valued
            if source.columns is not None:
                model.columns.take(source.columns, include_y=include_y)
            else:
                model.columns.fit(*stacked(source.tasks), include_y=include_y)
    if prior is not None and prior.is_standard() and not prior.network.mixes_points:
        start = STARTS[prior_start]
        start.set(prior, _examples(model, source, start.tasks, generator), generator)
        if start.deciding is not None and isinstance(model, AmortisedModel):
            inference = model.layers[-2]
            assert isinstance(inference, AmortisedLinear)
            for unit in range(prior.network.sizes[-1]):
                inference.start_at_scale(unit, start.deciding)


def _examples(model: MetaLearner, source: TaskSource, count: int, generator: torch.Generator) -> Examples:
    """Tasks for a start of the prior, none of them twice, and some points of large ones."""
    assert model.weight_prior is not None
    drawn = source.draw(min(count, len(source)) if isinstance(source, Collection) else count, generator)
    some = [task.take(torch.randperm(len(task), generator=generator)[:_POINTS_FOR_START]) for task in drawn]
    columns = model.columns
    x = [columns.standardise_x(task.x.to(model.device)).to(model.dtype) for task in some]
    y = [task.y.to(model.device) for task in some]
    if not model.likelihood.real_valued:
        return Examples(x, y, x[0].new_ones(model.weight_prior.network.sizes[-1]))
    y = [columns.standardise_y(outputs).to(model.dtype) for outputs in y]
    return Examples(x, y, torch.cat(y).std(0))


def _described(choice: Any) -> str:
    """A text that tells one choice from another, and is the same in every process."""
    if isinstance(choice, Collection):
        digest = hashlib.sha256()
        for task in choice.tasks:
            digest.update(task.x.numpy().tobytes() + task.y.numpy().tobytes())
        points = "" if choice.points_share == 1 else f", {choice.points_share:g} of the points"
        names = ", ".join((*choice.x_names, *choice.y_names))
        return f"{len(choice)} tasks of {names}{points}: {digest.hexdigest()[:16]}"
    if isinstance(choice, torch.optim.Optimizer):
        groups = [
            {k: v for k, v in group.items() if k not in ("params", "lr") and v is not None}
            for group in choice.param_groups
        ]
        return f"{type(choice).__name__} {groups}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(choice))


def _groups(model: MetaLearner, prior_rate: float) -> list[dict[str, Any]]:
    """Parameters that are trained, those of the prior apart."""
    prior = model.weight_prior
    of_prior = {id(parameter) for parameter in prior.parameters()} if prior is not None else set()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [p for p in trained if id(p) in of_prior], "factor": prior_rate},
        {"params": [p for p in trained if id(p) not in of_prior], "factor": 1.0},
    ]
    return [group for group in groups if group["params"]]


def _set_learning_rate(optimiser: torch.optim.Optimizer, ends: tuple[float, float], share_done: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = (ends[0] + (ends[1] - ends[0]) * share_done) * group.get("factor", 1.0)


def _means(terms: Terms) -> dict[str, float]:
    means = {name: float(values.mean()) for name, values in terms.by_name.items()}
    return {"objective": sum(means.values()), **means}


def _copy_of(model: MetaLearner) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
