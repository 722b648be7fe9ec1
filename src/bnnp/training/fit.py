"""Meta-training: from a collection of tasks to a learned prior and an amortised posterior (paper, Algorithm 1)."""

import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import torch

from bnnp._core.checks import check_count, check_flag, check_kind
from bnnp._core.progress import ProgressBar
from bnnp._core.random import Seed, as_integer, child
from bnnp._core.show import Shown
from bnnp.models.amortised import AmortisedModel
from bnnp.models.base import MetaLearner
from bnnp.objectives import NPML, PPAVI, Objective
from bnnp.tasks.source import TaskSource
from bnnp.tasks.split import ContextSize, context_size
from bnnp.tasks.stream import TaskStream
from bnnp.training.checkpoint import Checkpointing
from bnnp.training.history import History
from bnnp.training.identity import identity_of
from bnnp.training.optimiser import AveragedAdam
from bnnp.training.prepare import start_prior
from bnnp.training.ranks import check_batch
from bnnp.training.run import Run
from bnnp.training.schedule import as_rate, parameter_groups, set_rate
from bnnp.training.settings import DEFAULTS, FitSettings
from bnnp.training.step import Gradient

STREAM, DRAWS = 1, 2
"""The branches of the run's random numbers that batches and weight samples draw from."""
SAMPLES_WITHOUT_CLOSED_FORM = 32
"""Default number of samples per task and step, if the last layer is not integrated."""
FREQUENT = 0.01
"""If a larger share of the steps had a numerical fallback, the user gets a warning."""
CURES = {
    "float64": "{:.0%} of the steps had to be done again in float64, which is slow: give the model "
    "dtype=torch.float64, or a larger min_pseudo_noise",
    "whitened": "{:.0%} of the steps had a prior close to singular, for which updates are slow: train with a smaller "
    "learning_rate or prior_lr_multiplier",
}
Trained = TypeVar("Trained", bound=MetaLearner)


class FallbackWarning(UserWarning):
    """Many training steps needed a slower calculation (float64 or whitened space). Their results are correct."""


@dataclass(frozen=True, eq=False, repr=False)
class FitResult(Shown, Generic[Trained]):
    """What training gives back.

    Attributes:
        model: The trained model, which is the one that was passed in.
        history: The records of the training steps and evaluations.
        interrupted: Whether Ctrl-C stopped the training.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8, 8), likelihood=bnnp.Gaussian(0.1))
        >>> result = bnnp.fit(model, tasks, steps=3, progress=False)
        >>> result.model is model, result.interrupted
        (True, False)
        >>> result.history.steps[-1]["step"]
        3
    """

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
    context_share: float | tuple[float, float] | ContextSize = (0.1, 0.5),
    settings: FitSettings = DEFAULTS,
    checkpoint: str | Path | Checkpointing | None = None,
    progress: bool = True,
    seed: Seed = 0,
) -> FitResult[Trained]:
    """Train a model's prior, inference networks and likelihood on related tasks. The model is changed in place.

    Ctrl-C stops the training after the current step. The state is kept, and the function returns as usual.

    In a process group of torch (`torchrun`, back end "gloo") every process must make the same call: each takes its
    share of a step's tasks, and the first one writes the checkpoint. The numbers are those of one process, to rounding.

    Args:
        model: A model, or a neural process.
        tasks: A source of tasks, as from `bnnp.tasks.from_table` or `bnnp.tasks.from_arrays`.
        objective: What is maximised. The default is `bnnp.objectives.PPAVI()` for models with a prior over weights
            (with 32 samples if the likelihood is not Gaussian), and `NPML(num_samples=32)` for neural processes.
        steps: Number of training steps.
        batch_size: Number of tasks per step.
        context_share: Share of a task's points that is given as its context, a number or a range to draw it from; or
            a number of points, as `bnnp.tasks.ContextCount(5, 20)`.
        settings: All other choices, as the learning rate: see `bnnp.FitSettings`.
        checkpoint: A folder to keep the state in, or a `bnnp.Checkpointing` that says how often. A run that finds its
            own state there continues from it, and ends with the same numbers as a run that never stopped.
        progress: Whether to show a progress bar, on standard error.
        seed: The same seed gives the same numbers.

    Returns:
        The trained model and the history of its training.

    Raises:
        ValueError: If an argument is not as described, or the checkpoint is that of another run.
        OSError: If another run uses the checkpoint's folder, or it cannot be written to.
        TrainingDiverged: If the objective is not finite; the model is back at its last good state.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8, 8), likelihood=bnnp.Gaussian(0.1))
        >>> settings = bnnp.FitSettings(learning_rate=1e-3, record_every=1)
        >>> result = bnnp.fit(model, tasks, steps=3, settings=settings, progress=False, seed=0)
        >>> [record["step"] for record in result.history.steps]
        [1, 2, 3]
    """
    check_kind("model", model, MetaLearner, "a model, as bnnp.BNNP(in_size=1, out_size=1)")
    check_flag("progress", progress)
    check_count("steps", steps, "whole number, as in 10_000")
    check_count("batch_size", batch_size, "whole number of tasks, as in 5")
    check_kind("settings", settings, FitSettings, "a record, as bnnp.FitSettings(learning_rate=1e-3)")
    if checkpoint is not None and not isinstance(checkpoint, Checkpointing):
        checkpoint = Checkpointing(checkpoint)
    objective = _default_objective(model) if objective is None else objective
    check_kind("objective", objective, Objective, "an objective, as bnnp.objectives.PPAVI()")
    number, size = as_integer(seed), context_size(context_share)
    gradient = Gradient(model, objective, settings)
    ranks = check_batch(gradient.ranks, tasks, batch_size)
    start_prior(model, tasks, settings.prior_start, number)
    stream = TaskStream(tasks, batch_size, size, int(child(number, STREAM).initial_seed()), model.device)
    optimiser = settings.optimiser(parameter_groups(model, settings.prior_lr_multiplier))
    check_kind("optimiser", optimiser, torch.optim.Optimizer, "a function that makes one of torch's optimisers")
    run = Run(model, optimiser, steps, settings, checkpoint, writes=ranks.is_first)
    with run.alone():
        if checkpoint is not None:
            run.resume(identity_of(model, stream, objective, steps, optimiser, settings, number))
        ranks.agree(model.state_dict().values())  # and wait for all to have read the state before it is written again
        interrupted = _train(run, gradient, stream, settings, number, progress=progress and ranks.is_first)
    if isinstance(optimiser, AveragedAdam):
        optimiser.adopt()
    optimiser.zero_grad(set_to_none=True)
    _tell_of_fallbacks(run.history)
    return FitResult(model, run.history, interrupted)


def _train(
    run: Run, gradient: Gradient, stream: TaskStream, settings: FitSettings, seed: int, *, progress: bool
) -> bool:
    """Do all steps that are left, and return whether Ctrl-C stopped them."""
    rate = as_rate(settings.learning_rate)
    with ProgressBar(run.steps, run.step, enabled=progress) as bar:
        try:
            if run.awaits_evaluation():  # the run was stopped before it
                run.finish_step()
            while run.step < run.steps:
                set_rate(run.optimiser, rate.at(run.step, run.steps))
                batch = stream.batch(run.step)
                outcome = run.take_step(partial(gradient, batch, seed, DRAWS, run.step))
                bar.advance(outcome.terms)
                run.finish_step()
            return False
        except KeyboardInterrupt:
            run.keep()
            return True


def _default_objective(model: MetaLearner) -> Objective:
    if model.weight_prior is None:
        return NPML(SAMPLES_WITHOUT_CLOSED_FORM)
    if isinstance(model, AmortisedModel) and model.can_integrate:
        return PPAVI()
    return PPAVI(SAMPLES_WITHOUT_CLOSED_FORM)


def _tell_of_fallbacks(history: History) -> None:
    """Warn if many steps had a numerical fallback, and say what to do about it."""
    frequent = {kind: share for kind, share in history.fallback_shares().items() if share > FREQUENT}
    if frequent:
        reasons = "; ".join(CURES[kind].format(share) for kind, share in frequent.items())
        warnings.warn(f"the numbers are right, but {reasons}", FallbackWarning, stacklevel=3)
