"""The one recipe: from tasks to a model, with every choice made by the tasks themselves."""

import copy
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic

import numpy as np
import torch

from bnnp._core.columns import Columns
from bnnp._core.random import Seed, as_integer, child
from bnnp._core.show import Shown
from bnnp.evaluation.scores import Scores, evaluate
from bnnp.models.base import MetaLearner
from bnnp.prediction import ExtrapolationWarning
from bnnp.priors.learnable import GaussianUnits
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.split import ContextSize, context_size, random_split
from bnnp.tasks.task import Split, Task, stacked
from bnnp.training.fit import FitResult, Trained, fit
from bnnp.training.history import History
from bnnp.training.prepare import start_prior
from bnnp.training.run import TrainingDiverged
from bnnp.training.settings import FitSettings

FIRST_STEPS = 300
"""Steps of the first round; each later round has twice as many as the one before."""
STARTS = {
    "empirical": ((1e-3, 1e-5), "where the data sets suggest in closed form"),
    "spread": ((3e-3, 1e-4), "as a random network whose features are spread over the inputs"),
}
"""The starts that are tried, with the first and last learning rate of each round, and words for them. A larger rate
would undo what the first of them has found."""
RACE = 2
"""Rounds after which the better start is taken."""
MANY_TASKS = 64
"""With fewer tasks only the first start is tried: they are too few to train random features."""
LEAST_TASKS = 20
"""With fewer tasks the model stays where it starts: there are none to judge training by."""
LEFT_OUT = (0.25, 64)
"""The share of the tasks that is left out to judge training by, and the largest number of them."""
DIVISIONS = 4
"""How often each left-out task is divided into known and unknown points."""
LEAST_GAIN = 0.005
"""A round counts as better if left-out tasks gain so much log-density per point, and more than its standard error."""


@dataclass(frozen=True, eq=False, repr=False)
class Learned(Shown, Generic[Trained]):
    """What the recipe gives back.

    Attributes:
        model: The model.
        history: The records of all training steps.
        decisions: What was decided and why, one sentence each.
        scores: Scores of the left-out tasks, by a model that has not seen them; None if there were none.
        interrupted: Whether Ctrl-C stopped the training.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8, 8), last_layer="likelihood")
        >>> learned = bnnp.learn(model, tasks, progress=False)
        >>> learned.model is model, learned.interrupted
        (True, False)
    """

    model: Trained
    history: History
    decisions: list[str] = field(default_factory=list)
    scores: Scores | None = None
    interrupted: bool = False

    def _described(self) -> dict[str, object]:
        return {"model": type(self.model).__name__, "decisions": len(self.decisions), "interrupted": self.interrupted}


def learn(
    model: Trained,
    tasks: TaskSource,
    *,
    minutes: float = 10.0,
    context_share: float | tuple[float, float] | ContextSize = (0.1, 0.5),
    folder: str | Path | None = None,
    progress: bool = True,
    seed: Seed = 0,
) -> Learned[Trained]:
    """Learn a model from tasks, and decide how much to train. The model is changed in place.

    The prior starts where the tasks suggest in closed form (`bnnp.starts.Empirical`). From there the model is trained
    in rounds, each twice as long as the one before. After each round it predicts tasks that were left out; training
    ends with the first round that does not help, or when the time is up. With many tasks, or a source that draws new
    ones, a second start is tried as well (`bnnp.starts.Spread`), and the better of the two is trained further. A model
    of a finite number of tasks then learns from all of them in the same way. So the result is never worse, on tasks
    that were left out, than the start.

    Args:
        model: A model with a prior over weights.
        tasks: A task source.
        minutes: Time after which no new round begins.
        context_share: As for `bnnp.fit`.
        folder: A folder to keep the state of the rounds in, so that a stopped run goes on from there.
        progress: Whether to show progress bars.
        seed: The same seed gives the same numbers, unless the time is up.

    Returns:
        The model, with what was decided.

    Raises:
        ValueError: If an argument is not as described.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8, 8), last_layer="likelihood")
        >>> learned = bnnp.learn(model, tasks, progress=False)
        >>> learned.decisions[0]
        'The model stays where it started: 6 data sets are too few to judge training by.'
    """
    if not (isinstance(minutes, int | float) and minutes > 0):
        raise ValueError(f"minutes: got {minutes!r}, expected a positive number, as in 10.0")
    size, number = context_size(context_share), as_integer(seed)
    known, left_out = _divided(tasks, size, number)
    if not left_out:
        start_prior(model, tasks, "empirical", number)
        return Learned(model, History(), [_too_few(tasks)])
    until = time.monotonic() + 60 * minutes
    rounds = _Rounds(size, None if folder is None else Path(folder), progress, number, until)
    best = rounds.best(model, known, left_out)
    if best.interrupted or not isinstance(tasks, Collection):
        return Learned(model, best.take(model).history, best.decisions(left_out), best.scores, best.interrupted)
    final = rounds.repeated(model, tasks, best)
    told = [*best.decisions(left_out), "The model has then learned from all data sets in the same way."]
    return Learned(model, final.history, told, best.scores, final.interrupted)


@dataclass(frozen=True)
class _Candidate:
    """A model on its way, with what is known of it.

    Attributes:
        start: The name of its start.
        model: The model.
        first: Scores of left-out tasks at the start.
        scores: Scores now.
        history: The records of its training.
        rounds: How many rounds helped.
        ended: Why training ended; empty while it has not.
        interrupted: Whether Ctrl-C stopped it.
    """

    start: str
    model: MetaLearner
    first: Scores
    scores: Scores
    history: History
    rounds: int = 0
    ended: str = ""
    interrupted: bool = False

    def take(self, model: MetaLearner) -> "_Candidate":
        """Give a model the state of this one."""
        for own, other in zip(_units(model), _units(self.model), strict=True):
            own.basis, own.offset = copy.deepcopy((other.basis, other.offset))
        model.columns.take_record(self.model.columns.record())
        model.load_state_dict(self.model.state_dict())
        return self

    def decisions(self, left_out: Sequence[Split]) -> list[str]:
        """What was decided, in sentences."""
        now, before = self.scores["marginal_lppd"], self.first["marginal_lppd"]
        return [
            f"The prior starts {STARTS[self.start][1]}.",
            self.ended,
            f"On {len(left_out) // DIVISIONS} data sets that it did not learn from, the log-density per point is "
            f"{now:.3f}; at the start it was {before:.3f}.",
        ]


@dataclass
class _Rounds:
    """Rounds of training.

    Attributes:
        size: How large contexts are.
        folder: Where the state of each round is kept.
        progress: Whether to show progress bars.
        seed: Seed of all rounds.
        until: When no new round begins.
    """

    size: ContextSize
    folder: Path | None
    progress: bool
    seed: int
    until: float

    def best(self, model: MetaLearner, tasks: TaskSource, left_out: Sequence[Split]) -> _Candidate:
        """Train from each start for a few rounds, and go on with the better one while rounds help."""
        few = isinstance(tasks, Collection) and len(tasks) < MANY_TASKS
        candidates = []
        for start in ["empirical"] if few else STARTS:
            candidates.append(self._advanced(self._started(model, tasks, left_out, start), tasks, left_out, RACE))
            if candidates[-1].interrupted:
                return candidates[-1]
        best = max(candidates, key=lambda candidate: candidate.scores["marginal_lppd"])
        return self._advanced(best, tasks, left_out, None)

    def _started(self, model: MetaLearner, tasks: TaskSource, left_out: Sequence[Split], start: str) -> _Candidate:
        own = copy.deepcopy(model)
        start_prior(own, tasks, start, self.seed)
        scores = _judged(own, left_out)
        return _Candidate(start, own, scores, scores, History())

    def _advanced(self, now: _Candidate, tasks: TaskSource, left_out: Sequence[Split], limit: int | None) -> _Candidate:
        """The candidate after more rounds: until one does not help, the time is up, or `limit` rounds are done."""
        spent = 0.0
        while not now.ended and (limit is None or now.rounds < limit):
            if time.monotonic() + 2 * spent > self.until:
                return replace(now, ended=f"Training ended after {_rounds(now.rounds)}, because the time was up.")
            began, tried = time.monotonic(), copy.deepcopy(now.model)
            try:
                result = self._round(tried, tasks, now.start, now.rounds, "left-out")
            except TrainingDiverged as error:
                return replace(
                    now, ended=f"Training ended after {_rounds(now.rounds)}: in the next one it diverged ({error})."
                )
            if result.interrupted:
                return replace(now, ended=f"Training was stopped in round {now.rounds + 1}.", interrupted=True)
            spent, found = time.monotonic() - began, _judged(tried, left_out)
            gain, error = _gain(found, now.scores)
            if not gain > max(LEAST_GAIN, error):
                return replace(now, ended=_why_ended(now.rounds, gain, error))
            history = _after(now.history, result.history)
            now = replace(now, model=tried, scores=found, history=history, rounds=now.rounds + 1)
        return now

    def repeated(self, model: MetaLearner, tasks: TaskSource, judged: _Candidate) -> FitResult:
        """Do as many rounds with all tasks as helped with some left out."""
        start_prior(model, tasks, judged.start, self.seed)
        history = History()
        for count in range(judged.rounds):
            result = self._round(model, tasks, judged.start, count, "all")
            history = _after(history, result.history)
            if result.interrupted:
                return FitResult(model, history, True)
        return FitResult(model, history)

    def _round(self, model: MetaLearner, tasks: TaskSource, start: str, count: int, name: str) -> FitResult:
        return fit(
            model,
            tasks,
            steps=FIRST_STEPS * 2**count,
            context_share=self.size,
            settings=FitSettings(learning_rate=STARTS[start][0]),
            checkpoint=None if self.folder is None else self.folder / f"{start}-{name}-{count}",
            progress=self.progress,
            seed=as_integer(child(self.seed, count)),
        )


def _units(model: MetaLearner) -> list[GaussianUnits]:
    return [module for module in model.modules() if isinstance(module, GaussianUnits)]


def _divided(tasks: TaskSource, size: ContextSize, seed: int) -> tuple[TaskSource, list[Split]]:
    """Tasks to learn from, and divided tasks to judge by: fresh ones from a source, some of a collection."""
    generator = child(seed, 9)
    if not isinstance(tasks, Collection):
        return tasks, _divisions(tasks.draw(LEFT_OUT[1], generator), size, generator)
    large = [task for task in range(len(tasks)) if len(tasks[task]) > 1]
    if len(tasks) < LEAST_TASKS or len(large) < 2:
        return tasks, []
    chosen = set(
        np.array(large)[torch.randperm(len(large), generator=generator)].tolist()[
            : min(LEFT_OUT[1], int(LEFT_OUT[0] * len(large)))
        ]
    )
    rest = tuple(task for index, task in enumerate(tasks.tasks) if index not in chosen)
    columns = tasks.columns or Columns.of(*stacked(tasks.tasks), tasks.x_names, tasks.y_names)
    return replace(tasks, tasks=rest, columns=columns), _divisions(
        [tasks[index] for index in sorted(chosen)], size, generator
    )


def _divisions(tasks: Sequence[Task], size: ContextSize, generator: torch.Generator) -> list[Split]:
    return [random_split(task, size, generator) for task in tasks for _ in range(DIVISIONS)]


def _judged(model: MetaLearner, left_out: Sequence[Split]) -> Scores:
    """Scores of left-out tasks, some of whose inputs may lie outside the range of the others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        return evaluate(model, left_out, seed=0)


def _gain(found: Scores, before: Scores) -> tuple[float, float]:
    """Mean gain in log-density per point, and its standard error over tasks."""
    gains = (_densities(found) - _densities(before)).reshape(-1, DIVISIONS).mean(1)
    return float(gains.mean()), float(gains.std(ddof=1) / len(gains) ** 0.5) if len(gains) > 1 else np.inf


def _densities(scores: Scores) -> np.ndarray:
    """Marginal log-densities of all divided tasks; the name of their column says how they were estimated."""
    frame = scores.per_task
    return frame[[name for name in frame if name.startswith("marginal_lppd")]].to_numpy()[:, 0]


def _after(history: History, later: History) -> History:
    """Two histories, one after the other."""
    step, seconds = (history.steps[-1][name] if history.steps else 0 for name in ("step", "seconds"))
    moved = [
        {**record, "step": record["step"] + step, "seconds": record["seconds"] + seconds} for record in later.steps
    ]
    return History([*history.steps, *moved])


def _too_few(tasks: TaskSource) -> str:
    count = len(tasks) if isinstance(tasks, Collection) else 0
    return f"The model stays where it started: {count} data sets are too few to judge training by."


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _why_ended(count: int, gain: float, error: float) -> str:
    return (
        f"Training ended after {_rounds(count)}: round {count + 1}, of {FIRST_STEPS * 2**count} steps, changed the "
        f"log-density per point of left-out data sets by {gain:+.3f} (standard error {error:.3f})."
    )
