"""The state of a training run, which checkpoints hold and to which the model is set back after a divergence."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from bnnp.models.base import MetaLearner
from bnnp.training.checkpoint import Checkpoint, Checkpointing, restore
from bnnp.training.folder import used_alone
from bnnp.training.history import History
from bnnp.training.interrupts import held_back
from bnnp.training.optimiser import averaged
from bnnp.training.settings import FitSettings
from bnnp.training.step import NotFinite, Outcome


class TrainingDiverged(ArithmeticError):
    """The objective was not finite. The model has been set back to its last good state.

    Args:
        step: The step that failed, counted from 1.
        task: Index, in the batch, of the task that failed; None if no single task is the cause.
        reason: What was not finite.

    Attributes:
        step: As given.
        task: As given.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8, 8), likelihood=bnnp.Gaussian(0.1))
        >>> objective = bnnp.objectives.PPAVI(kl_weight=float("nan"))  # not finite for any task
        >>> try:
        ...     result = bnnp.fit(model, tasks, objective=objective, progress=False)
        ... except bnnp.TrainingDiverged as error:
        ...     print(error.step, error.task)
        1 0
    """

    def __init__(self, step: int, task: int | None, reason: str):
        where = f"step {step}" if task is None else f"step {step}, task {task} of the batch"
        super().__init__(
            f"training diverged at {where}: {reason}. The model is back at its last good "
            "state; try a smaller learning rate, a larger min_pseudo_noise, or dtype=torch.float64"
        )
        self.step = step
        self.task = task


class Run:
    """A training run.

    Args:
        model: The model that is trained.
        optimiser: The optimiser of its parameters.
        steps: Number of steps in the whole run.
        settings: How often to record, and what to evaluate.
        checkpointing: Where and how often to keep the state on disk; None to keep it in memory only.
        writes: Whether this process writes it, where several train together.

    Attributes:
        model: As given.
        optimiser: As given.
        steps: As given.
        step: Number of steps done.
        history: The records so far.
    """

    def __init__(
        self,
        model: MetaLearner,
        optimiser: torch.optim.Optimizer,
        steps: int,
        settings: FitSettings,
        checkpointing: Checkpointing | None,
        *,
        writes: bool = True,
    ):
        self.model = model
        self.optimiser = optimiser
        self.steps = steps
        self.step = 0
        self.history = History()
        self._settings = settings
        self._checkpointing = checkpointing
        self._writes = writes
        self._identity: dict[str, Any] = {}
        self._seconds = 0.0
        self._recent: list[dict[str, float]] = []
        self._good, self._kept = _copy_of(model), time.monotonic()

    def alone(self) -> AbstractContextManager[None]:
        """Keep other runs out of the folder on disk, if there is one."""
        return (
            nullcontext() if self._checkpointing is None or not self._writes else used_alone(self._checkpointing.folder)
        )

    def resume(self, identity: dict[str, Any]) -> None:
        """Continue from the state on disk, if there is one.

        Args:
            identity: The choices of this run, which must be those of the run that was stopped.
        """
        assert self._checkpointing is not None
        self._identity = identity
        found = restore(self._checkpointing.folder, self.model, self.optimiser, identity)
        if found is not None:
            self.step, self._seconds, self.history = found.step, found.seconds, found.history
            self._recent = found.recent
            self._good = self._as_users_get_it()

    def take_step(self, gradient: Callable[[], Outcome]) -> Outcome:
        """Change the parameters by one step of the optimiser, and record the step.

        Args:
            gradient: Sets the gradient of the parameters.

        Returns:
            What `gradient` returned.

        Raises:
            TrainingDiverged: If the objective or its gradient is not finite.
        """
        started = time.perf_counter()
        try:
            outcome = gradient()
        except NotFinite as error:
            raise self._diverged(self.step + 1, error.task, str(error)) from error
        with held_back():
            self.optimiser.step()
            self.step += 1
            self._seconds += time.perf_counter() - started
            self._record(outcome)
        return outcome

    def finish_step(self) -> None:
        """Evaluate and keep the state, if either is due."""
        if self.awaits_evaluation():
            assert self._settings.evaluation is not None
            with averaged(self.optimiser):
                values = self._settings.evaluation.function(self.model)
            self.history.add_evaluation(self.step, self._seconds, values)
        chosen = self._checkpointing
        every, seconds = (Checkpointing.every, None) if chosen is None else (chosen.every, chosen.seconds)
        late = seconds is not None and time.monotonic() - self._kept >= seconds
        if self.step % every == 0 or self.step == self.steps or late:
            self.keep()

    def awaits_evaluation(self) -> bool:
        """Whether an evaluation is due that has not been done."""
        if self._settings.evaluation is None or self.step == 0:
            return False
        due = self.step % self._settings.evaluation.every == 0 or self.step == self.steps
        return due and not (self.history.evaluations and self.history.evaluations[-1]["step"] == self.step)

    def keep(self) -> None:
        """Remember the present state as good, on disk too if a folder is given.

        Raises:
            TrainingDiverged: If a parameter is not finite.
        """
        bad = [name for name, tensor in self.model.state_dict().items() if not bool(torch.isfinite(tensor).all())]
        if bad:
            raise self._diverged(self.step, None, f"{bad[0]} is not finite")
        self._good, self._kept = self._as_users_get_it(), time.monotonic()
        if self._checkpointing is not None and self._writes:
            state = Checkpoint(self.step, self._seconds, self._identity, self.history, self._recent)
            state.save(self._checkpointing.folder, self.model, self.optimiser)

    def _record(self, outcome: Outcome) -> None:
        self._recent.append({**outcome.terms, **{kind: int(n > 0) for kind, n in outcome.fallbacks.items()}})
        if self.step % self._settings.record_every == 0 or self.step == self.steps:
            rate = float(self.optimiser.param_groups[-1]["lr"])
            self.history.add_steps(self.step, self._seconds, rate, self._recent)
            self._recent = []

    def _as_users_get_it(self) -> dict[str, torch.Tensor]:
        with averaged(self.optimiser):
            return _copy_of(self.model)

    def _diverged(self, step: int, task: int | None, reason: str) -> TrainingDiverged:
        self.model.load_state_dict(self._good)
        self.optimiser.zero_grad(set_to_none=True)
        return TrainingDiverged(step, task, reason)


def _copy_of(model: MetaLearner) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}
