"""The one recipe: from tasks to a model, with every choice made by the tasks themselves."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Generic

from bnnp._core.checks import check_flag, check_kind, check_positive
from bnnp._core.files import as_path
from bnnp._core.random import Seed, as_integer
from bnnp._core.show import Shown
from bnnp.evaluation.scores import Scores
from bnnp.models.base import MetaLearner
from bnnp.recipe.judging import divided
from bnnp.recipe.rounds import Rounds
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.split import ContextSize, context_size
from bnnp.tasks.task import Split
from bnnp.training.fit import Trained
from bnnp.training.history import History
from bnnp.training.prepare import check_tasks, start_prior
from bnnp.training.run import TrainingDiverged


@dataclass(frozen=True, eq=False)
class Judged:
    """What training was judged by.

    Attributes:
        model: The model as it was then: it has not seen the left-out tasks.
        tasks: The tasks that it has learned from.
        left_out: The left-out tasks, each divided into known and unknown points once.
        population: Scores of the left-out tasks if none of their points is known, where they were computed.
    """

    model: MetaLearner
    tasks: TaskSource
    left_out: list[Split]
    population: Scores | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Learned(Shown, Generic[Trained]):
    """What the recipe gives back.

    Attributes:
        model: The model.
        history: The records of all training steps.
        decisions: What was decided and why, one sentence each.
        scores: Scores of the left-out tasks, by a model that has not seen them; None if there were none.
        interrupted: Whether Ctrl-C stopped the training.
        judged: What training was judged by; None if no tasks were left out.

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
    judged: Judged | None = None

    def _described(self) -> dict[str, object]:
        return {"model": type(self.model).__name__, "decisions": len(self.decisions), "interrupted": self.interrupted}


def learn(
    model: Trained | Sequence[Trained],
    tasks: TaskSource,
    *,
    minutes: float = 10.0,
    context_share: float | tuple[float, float] | ContextSize = (0.1, 0.5),
    folder: str | Path | None = None,
    progress: bool = True,
    seed: Seed = 0,
) -> Learned[Trained]:
    """Learn a model from tasks, and decide how much to train. The model is changed in place.

    The prior starts where the tasks suggest in closed form (`bnnp.starts.Empirical`; `bnnp.starts.Warped` for units
    "tanh" if the outputs are not Gaussian). From there first the features are trained, with hidden weights at the means
    of their prior, then everything, each in rounds that are twice as long as the one before. After each round the
    model predicts tasks that were left out. A round that does not help is undone and ends this part of the training;
    so does the end of the time. A model of a finite number of tasks then learns from all of them in the same way. With
    fewer than 48 tasks to learn from, only features are trained, and only those of the first of several models. So the
    result is never worse, on tasks that were left out, than the start.

    Args:
        model: A model with a prior over weights; or several, as of networks with different activations, of which the
            one is taken that predicts left-out tasks best early on, with and without known points. If no tasks can be
            left out, it is the first. Networks of "tanh" units are left out if there are others and the outputs have no
            levels, floor or ceiling.
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
    check_positive("minutes", minutes, "as in 10.0")
    check_flag("progress", progress)
    check_kind("folder", folder, (str, Path, NoneType), "the path of a folder, or None")
    if folder is not None and as_path(folder, "folder").is_file():
        raise ValueError(f"folder: got {str(folder)!r}, which is a file, expected a folder")
    models = _checked(model, tasks)
    size, number = context_size(context_share), as_integer(seed)
    known, left_out = divided(tasks, size, number)
    if not left_out.count:
        start_prior(models[0], tasks, "empirical", number)
        return Learned(models[0], History(), [_too_few(tasks)])
    until = time.monotonic() + 60 * minutes
    rounds = Rounds(size, None if folder is None else Path(folder), progress, number, until)
    best = rounds.best(models, known, left_out)
    chosen, told = models[best.number], best.decisions(left_out.count)
    scores, judged = best.scores.known, Judged(best.model, known, left_out.once(), best.scores.alone)
    if best.interrupted or not isinstance(tasks, Collection):
        return Learned(chosen, best.take(chosen).history, told, scores, best.interrupted, judged)
    try:
        final = rounds.repeated(chosen, tasks, best)
    except TrainingDiverged as error:
        told.append(f"The model is the one that has learned from part of the data sets: with all of them, {error}")
        return Learned(chosen, best.take(chosen).history, told, scores, judged=judged)
    told.append("The model has then learned from all data sets in the same way.")
    return Learned(chosen, final.history, told, scores, final.interrupted, judged)


def _checked(model: Trained | Sequence[Trained], tasks: TaskSource) -> list[Trained]:
    """The models, each of which can learn from the tasks."""
    models = list(model) if isinstance(model, Sequence) else [model]
    if not models:
        raise ValueError("model: got an empty sequence, expected a model or several")
    for one in models:
        check_kind("model", one, MetaLearner, "a model, as bnnp.BNNP(in_size=1, out_size=1), or several in a list")
        check_tasks(one, tasks)
    return models


def _too_few(tasks: TaskSource) -> str:
    count = len(tasks) if isinstance(tasks, Collection) else 0
    return f"The model stays where it started: {count} data sets are too few to judge training by."
