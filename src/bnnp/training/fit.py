"""Meta-training: from a collection of tasks to a learned prior and an amortised posterior (paper, Algorithm 1)."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bnnp._random import Seed, as_integer, child
from bnnp.gaussian import FactorisationError
from bnnp.models.bnnp import BNNP
from bnnp.objectives import PPAVI, Objective, Terms
from bnnp.priors.start import spread_first_layer
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.split import context_size
from bnnp.tasks.stream import TaskStream
from bnnp.tasks.task import SplitBatch, Task
from bnnp.training.checkpoint import Checkpoint, restore
from bnnp.training.history import History
from bnnp.training.progress import ProgressBar

_STREAM, _NOISE, _START = 1, 2, 3
Optimiser = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class TrainingDiverged(ArithmeticError):
    """The objective was not finite. The model has been set back to its last good state."""

    def __init__(self, step: int, task: int, reason: str):
        super().__init__(
            f"training diverged at step {step}, task {task} of the batch: {reason}. The model is back at its last good "
            "state; try a smaller learning rate, a larger min_pseudo_noise, or dtype=torch.float64"
        )
        self.step = step
        self.task = task


@dataclass(frozen=True)
class FitResult:
    """The trained model (the one that was passed in), its history, and whether it was stopped by Ctrl-C."""

    model: BNNP
    history: History
    interrupted: bool = False


def fit(
    model: BNNP,
    tasks: TaskSource | Sequence[Task],
    *,
    objective: Objective | None = None,
    steps: int = 10_000,
    batch_size: int = 5,
    context_share: float | tuple[float, float] = (0.1, 0.5),
    context_count: int | tuple[int, int] | None = None,
    learning_rate: tuple[float, float] = (3e-3, 1e-4),
    optimiser: Optimiser = torch.optim.Adam,
    clip_norm: float | None = None,
    prior_start: str = "spread",
    evaluation: Callable[[BNNP], Mapping[str, float]] | None = None,
    evaluate_every: int = 1000,
    record_every: int = 10,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 500,
    progress: bool = True,
    seed: Seed = 0,
) -> FitResult:
    """Train a model's prior, inference networks and likelihood on related tasks. The model is changed in place.

    tasks: a source of tasks, as from `bnnp.tasks.from_table`, `bnnp.tasks.from_arrays` or `bnnp.tasks.sawtooth`.
    objective: `bnnp.objectives.PPAVI(num_samples=32)` where not given.
    context_share, context_count: size of random contexts, a number or a range; a count goes before a share.
    learning_rate: first and last value; linear in between.
    optimiser: a function of the parameters, as `torch.optim.Adam`.
    clip_norm: bound on the norm of the gradient, if any.
    prior_start: "spread" starts a learnable prior that is still the standard one with its first layer's kinks spread
        over the inputs, "standard" leaves it. A fixed or trained prior is never touched.
    evaluation: called every `evaluate_every` steps and at the end; what it returns goes into the history.
    checkpoint: folder to keep the state in. A run that finds its own state there goes on from it, and ends with the
        same numbers as one that never stopped.

    Ctrl-C stops after the current step, keeps the state, and returns. An objective that is not finite raises
    `TrainingDiverged`.

    Example:
        result = bnnp.fit(model, bnnp.tasks.sawtooth(), steps=2_000, seed=0)
    """
    objective = objective if objective is not None else PPAVI()
    source = _checked_source(model, tasks)
    _check_numbers(steps=steps, batch_size=batch_size, evaluate_every=evaluate_every, checkpoint_every=checkpoint_every)
    number = as_integer(seed)
    size = context_size(context_share, context_count)
    _prepare(model, source, prior_start, number)
    stream = TaskStream(source, batch_size, size, int(child(number, _STREAM).initial_seed()), model.dtype, model.device)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    adam = optimiser(parameters)
    settings = {
        "objective": repr(objective),
        "steps": steps,
        "batch_size": batch_size,
        "context": repr(size),
        "learning_rate": list(learning_rate),
        "seed": number,
    }
    run = _Run(model, adam, History(), settings, checkpoint)
    if checkpoint is not None:
        run.resume()
    interrupted = False
    with ProgressBar(steps, run.step, enabled=progress) as bar:
        try:
            while run.step < steps:
                _set_learning_rate(adam, learning_rate, run.step / max(1, steps - 1))
                batch = stream.batch(run.step)
                terms = run.take(objective, batch, child(number, _NOISE, run.step), clip_norm)
                run.record(terms, learning_rate_of(adam), last=run.step == steps, every=record_every)
                bar.advance(terms)
                if evaluation is not None and (run.step % evaluate_every == 0 or run.step == steps):
                    run.history.evaluations.append({"step": run.step, "seconds": run.seconds, **evaluation(model)})
                if run.step % checkpoint_every == 0 or run.step == steps:
                    run.keep()
        except KeyboardInterrupt:
            interrupted = True
    if interrupted:
        run.keep()
    return FitResult(model, run.history, interrupted)


class _Run:
    """The state of a training run: what a checkpoint holds."""

    def __init__(
        self,
        model: BNNP,
        optimiser: torch.optim.Optimizer,
        history: History,
        settings: dict[str, Any],
        folder: str | Path | None,
    ):
        self.model = model
        self.optimiser = optimiser
        self.history = history
        self.settings = settings
        self.folder = folder
        self.step = 0
        self.seconds = 0.0
        self._recent: list[dict[str, float]] = []
        self._good = _copy_of(model)

    def take(
        self, objective: Objective, batch: SplitBatch, generator: torch.Generator, clip_norm: float | None
    ) -> dict[str, float]:
        """One step of the optimiser. Returns the terms, averaged over tasks and points' sums as they are."""
        started = time.perf_counter()
        prepared = SplitBatch(self.model.prepare(batch.context), self.model.prepare(batch.target))
        try:
            terms = objective(self.model, prepared, generator)
        except FactorisationError as error:
            raise self._diverged(error.task, str(error)) from error
        total = terms.total()
        if not bool(torch.isfinite(total).all()):
            raise self._diverged(int((~torch.isfinite(total)).nonzero()[0]), "the objective is not finite")
        self.optimiser.zero_grad(set_to_none=True)
        (-total.mean()).backward()
        self._guard_gradients(clip_norm)
        self.optimiser.step()
        self.step += 1
        self.seconds += time.perf_counter() - started
        return _means(terms, total)

    def _guard_gradients(self, clip_norm: float | None) -> None:
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        norm = nn.utils.clip_grad_norm_(parameters, clip_norm if clip_norm is not None else float("inf"))
        if not bool(torch.isfinite(norm)):
            raise self._diverged(0, "the gradient is not finite")

    def _diverged(self, task: int, reason: str) -> TrainingDiverged:
        self.model.load_state_dict(self._good)
        return TrainingDiverged(self.step + 1, task, reason)

    def record(self, terms: dict[str, float], learning_rate: float, *, last: bool, every: int) -> None:
        self._recent.append(terms)
        if self.step % every == 0 or last:
            means = {key: sum(r[key] for r in self._recent) / len(self._recent) for key in terms}
            self.history.steps.append(
                {"step": self.step, "seconds": self.seconds, "learning_rate": learning_rate, **means}
            )
            self._recent = []

    def keep(self) -> None:
        """Remember the present state as good, on disk too where a folder is given."""
        self._good = _copy_of(self.model)
        if self.folder is not None:
            Checkpoint(self.step, self.seconds, self.settings, self.history).save(
                self.folder, self.model, self.optimiser
            )

    def resume(self) -> None:
        assert self.folder is not None
        found = restore(self.folder, self.model, self.optimiser, self.settings)
        if found is not None:
            self.step, self.seconds, self.history = found.step, found.seconds, found.history
            self._good = _copy_of(self.model)


def _checked_source(model: BNNP, tasks: TaskSource | Sequence[Task]) -> TaskSource:
    if not isinstance(tasks, TaskSource):
        raise ValueError(
            f"tasks: got {type(tasks).__name__}, expected a task source; make one with bnnp.tasks.from_arrays([(x, y), ...])"
        )
    if (tasks.in_size, tasks.out_size) != (model.network.sizes[0], model.y_size):
        raise ValueError(
            f"tasks: got {tasks.in_size} input and {tasks.out_size} output columns, expected {model.network.sizes[0]} and "
            f"{model.y_size} as in the model"
        )
    if isinstance(tasks, Collection):
        for task in tasks.tasks:
            model.likelihood.check(task.y)
    return tasks


def _check_numbers(**numbers: int) -> None:
    for name, value in numbers.items():
        if value < 1:
            raise ValueError(f"{name}: got {value}, expected a positive number")


def _prepare(model: BNNP, source: TaskSource, prior_start: str, seed: int) -> None:
    """Fit the standardisation and start the prior, where neither has been done before."""
    if prior_start not in ("spread", "standard"):
        raise ValueError(f"prior_start: got {prior_start!r}, expected 'spread' or 'standard'")
    generator = child(seed, _START)
    if isinstance(source, Collection):
        model.columns = {"x": list(source.x_names), "y": list(source.y_names)}
        if source.standardise and model.standardiser.is_identity():
            names = [*source.x_names, *source.y_names]
            model.standardiser.fit(source.tasks, include_y=model.likelihood.real_valued, names=names)
    if prior_start == "spread" and model.prior.is_standard():
        x = torch.cat([task.x for task in source.draw(64, generator)]).to(model.device, model.dtype)
        spread_first_layer(model.prior, model.standardiser.x(x), generator)


def learning_rate_of(optimiser: torch.optim.Optimizer) -> float:
    return float(optimiser.param_groups[0]["lr"])


def _set_learning_rate(optimiser: torch.optim.Optimizer, ends: tuple[float, float], share_done: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = ends[0] + (ends[1] - ends[0]) * share_done


def _means(terms: Terms, total: torch.Tensor) -> dict[str, float]:
    return {
        "objective": float(total.detach().mean()),
        **{k: float(v.detach().mean()) for k, v in terms.by_name.items()},
    }


def _copy_of(model: BNNP) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
