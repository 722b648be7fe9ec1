"""Rounds of training, each kept only if it helps tasks that were left out."""

import copy
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from bnnp._core.random import as_integer, child
from bnnp.evaluation.scores import Scores
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.base import MetaLearner
from bnnp.models.evidence import WeightModel
from bnnp.priors.learnable import GaussianUnits
from bnnp.recipe.judging import DIVISIONS, gain, scores_of
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.split import ContextSize
from bnnp.tasks.task import Split
from bnnp.training.features import can_train_features, train_features
from bnnp.training.fit import FitResult, fit
from bnnp.training.history import History
from bnnp.training.lessons import can_teach, teach_inference
from bnnp.training.prepare import start_prior
from bnnp.training.run import TrainingDiverged
from bnnp.training.settings import FitSettings

FEATURES, INFERENCE, EVERYTHING = "the features", "the inference", "everything"
"""The parts of the training: first hidden weights without uncertainty or, where they start with much of it, inference
under the prior as it started; then all of the model."""
FIRST_STEPS = {FEATURES: 1000, INFERENCE: 300, EVERYTHING: 300}
"""Steps of the first round; each later round has twice as many as the one before."""
LEARNING_RATE = (1e-3, 1e-5)
"""First and last rate of each round of training everything. A larger one would undo what the start has found."""
LESSONS = 500
"""Steps in which inference networks learn from draws of a prior that starts with uncertain hidden weights."""
SAMPLES = 64
"""Samples of uncertain hidden weights by which a model is judged. Predictions take more where a data set needs more."""
NOISES = (1.0, 2.0, 4.0, 8.0)
"""Shares of the noise of the start that are tried under uncertain hidden weights, whose inference is never perfect."""
MANY_TASKS = 48
"""With fewer tasks to learn from, only the features of the first model are trained: there are too few for the rest."""
LEAST_GAIN = 0.005
"""A round counts as better if left-out tasks gain so much log-density per point, and more than its standard error."""


STARTED = {
    "empirical": "The prior starts where the data sets suggest in closed form.",
    "warped": "The prior starts in closed form, with random functions that hidden units bend to levels or a floor.",
}
"""What is said of each start."""


@dataclass(frozen=True)
class Candidate:
    """A model on its way, with what is known of it.

    Attributes:
        number: Its place among the models that are tried.
        model: The model.
        start: The name of the start of its prior.
        noise: What the noise of the start was multiplied by.
        first: Scores of left-out tasks at the start.
        scores: Scores now.
        parts: The parts of the training that have not ended.
        history: The records of its training.
        rounds: How many rounds of each part helped.
        ended: Why each part ended, one sentence each.
        interrupted: Whether Ctrl-C stopped it.
    """

    number: int
    model: MetaLearner
    start: str
    noise: float
    first: Scores
    scores: Scores
    parts: tuple[str, ...]
    history: History = field(default_factory=History)
    rounds: dict[str, int] = field(default_factory=dict)
    ended: tuple[str, ...] = ()
    interrupted: bool = False

    def take(self, model: MetaLearner) -> "Candidate":
        """Give a model the state of this one."""
        for own, other in zip(_units(model), _units(self.model), strict=True):
            own.basis, own.offset = copy.deepcopy((other.basis, other.offset))
        model.columns.take_record(self.model.columns.record())
        model.load_state_dict(self.model.state_dict())
        return self

    def without(self, ended: str) -> "Candidate":
        """The same, with one part of the training less, and why it ended."""
        return replace(self, parts=self.parts[1:], ended=(*self.ended, ended))

    def decisions(self, left_out: Sequence[Split]) -> list[str]:
        """What was decided, in sentences."""
        now, before = self.scores["marginal_lppd"], self.first["marginal_lppd"]
        return [
            STARTED[self.start],
            *self.ended,
            f"On {len(left_out) // DIVISIONS} data sets that it did not learn from, the log-density per point is "
            f"{now:.3f}; at the start it was {before:.3f}.",
        ]


@dataclass
class Rounds:
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

    def best(self, models: Sequence[MetaLearner], tasks: TaskSource, left_out: Sequence[Split]) -> Candidate:
        """Start each model and train it for a round; then train each part of the better one while rounds help."""
        candidates, tried = [], models[:1] if _few(tasks) else models
        for number, model in enumerate(tried):
            now = self._started(number, model, tasks, left_out, alone=len(tried) == 1)
            if now is None:
                continue
            candidates.append(self._advanced(now, tasks, left_out, limit=1) if len(tried) > 1 else now)
            if candidates[-1].interrupted:
                break
        best = max(candidates, key=lambda candidate: candidate.scores["marginal_lppd"])
        if len(candidates) > 1:
            best = replace(best, ended=(_chosen(best, candidates), *best.ended))
        while not best.interrupted and best.parts:
            best = self._advanced(best, tasks, left_out)
        return best

    def _started(
        self, number: int, model: MetaLearner, tasks: TaskSource, left_out: Sequence[Split], *, alone: bool
    ) -> Candidate | None:
        """The candidate at its start; None if its units bend, the outputs are not bent, and there are other models."""
        own = copy.deepcopy(model)
        start = "warped" if can_bend(own) else "empirical"
        self._start(own, tasks, start)
        if own.weight_prior is not None and own.weight_prior.is_standard() and start == "warped":
            if not alone:
                return None
            start = "empirical"
            self._start(own, tasks, start)
        first = INFERENCE if start == "warped" else FEATURES if can_train_features(own) else EVERYTHING
        parts = tuple(dict.fromkeys((first, EVERYTHING)))
        noise = self._best_noise(own, left_out) if start == "warped" else 1.0
        scores = self._scores(own, start, left_out)
        return Candidate(number, own, start, noise, scores, scores, parts[:1] if _few(tasks) else parts)

    def _scores(self, model: MetaLearner, start: str, left_out: Sequence[Split]) -> Scores:
        return scores_of(model, left_out, SAMPLES if start == "warped" else None)

    def _best_noise(self, model: MetaLearner, left_out: Sequence[Split]) -> float:
        """Give the model the noise that predicts left-out tasks best, and return what it was multiplied by."""
        scores = {}
        for share in NOISES:
            tried = copy.deepcopy(model)
            multiply_noise(tried, share)
            scores[share] = self._scores(tried, "warped", left_out[::DIVISIONS])["marginal_lppd"]
        best = max(NOISES, key=scores.__getitem__)
        multiply_noise(model, best)
        return best

    def _start(self, model: MetaLearner, tasks: TaskSource, start: str) -> None:
        """Start the prior, and the inference networks if it has uncertain hidden weights."""
        start_prior(model, tasks, start, self.seed)
        if start == "warped" and isinstance(model, WeightModel) and not model.prior.is_standard():
            teach_inference(model, tasks, LESSONS, progress=self.progress, seed=self.seed)

    def _advanced(
        self, now: Candidate, tasks: TaskSource, left_out: Sequence[Split], limit: int | None = None
    ) -> Candidate:
        """The candidate after more rounds of its next part: until one does not help, the time is up, or as limited."""
        spent, part = 0.0, now.parts[0]
        while True:
            count = now.rounds.get(part, 0)
            after = f"Training {part} ended after {_rounds(count)}"
            if limit is not None and count == limit:
                return now
            if time.monotonic() + 2 * spent > self.until:
                return now.without(f"{after}, because the time was up.")
            began, tried = time.monotonic(), copy.deepcopy(now.model)
            try:
                result = self._round(tried, part, tasks, count, f"left-out-{now.number}")
            except TrainingDiverged as error:
                return now.without(f"{after}: in the next one it diverged ({error}).")
            if result.interrupted:
                return replace(now.without(f"Training {part} was stopped in round {count + 1}."), interrupted=True)
            spent, found = time.monotonic() - began, self._scores(tried, now.start, left_out)
            mean, error = gain(found, now.scores)
            if not mean > max(LEAST_GAIN, error):
                return now.without(f"{after}: {_no_help(part, count, mean, error)}")
            history, helped = _after(now.history, result.history), {**now.rounds, part: count + 1}
            now = replace(now, model=tried, scores=found, history=history, rounds=helped)

    def repeated(self, model: MetaLearner, tasks: TaskSource, judged: Candidate) -> FitResult:
        """Do as many rounds with all tasks as helped with some left out.

        Raises:
            TrainingDiverged: If that diverges.
        """
        self._start(model, tasks, judged.start)
        multiply_noise(model, judged.noise)
        history = History()
        for part, count in [(part, count) for part, rounds in judged.rounds.items() for count in range(rounds)]:
            result = self._round(model, part, tasks, count, "all")
            history = _after(history, result.history)
            if result.interrupted:
                return FitResult(model, history, True)
        return FitResult(model, history)

    def _round(self, model: MetaLearner, part: str, tasks: TaskSource, count: int, name: str) -> FitResult:
        steps, seed = FIRST_STEPS[part] * 2**count, as_integer(child(self.seed, count))
        if part == FEATURES:
            try:
                train_features(model, tasks, steps, progress=self.progress, seed=seed)
            except KeyboardInterrupt:
                return FitResult(model, History(), True)
            return FitResult(model, History())
        kept = f"{name}-{count}" if part == EVERYTHING else f"{name}-inference-{count}"
        with held(model) if part == INFERENCE else nullcontext():
            return fit(
                model,
                tasks,
                steps=steps,
                context_share=self.size,
                settings=FitSettings(learning_rate=LEARNING_RATE),
                checkpoint=None if self.folder is None else self.folder / kept,
                progress=self.progress,
                seed=seed,
            )


def can_bend(model: MetaLearner) -> bool:
    """Whether the model's units are flat at both ends, so that they can give functions levels or a floor."""
    return can_teach(model) and model.config().get("activation") == "tanh"


@torch.no_grad()
def multiply_noise(model: MetaLearner, share: float) -> None:
    """Multiply the noise of a Gaussian likelihood, where it is learned."""
    if isinstance(model.likelihood, Gaussian) and model.likelihood.learnable and share != 1:
        model.likelihood.set_noise(share * model.likelihood.noise)


@contextmanager
def held(model: MetaLearner) -> Iterator[None]:
    """Hold the prior and the noise of a model where they are."""
    prior, noise = model.weight_prior, [one for one in model.likelihood.parameters() if one.requires_grad]
    assert prior is not None
    share = prior.learnability
    prior.set_learnability(0)
    for parameter in noise:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        prior.set_learnability(share)
        for parameter in noise:
            parameter.requires_grad_(True)


def _few(tasks: TaskSource) -> bool:
    return isinstance(tasks, Collection) and len(tasks) < MANY_TASKS


def _units(model: MetaLearner) -> list[GaussianUnits]:
    return [module for module in model.modules() if isinstance(module, GaussianUnits)]


def _after(history: History, later: History) -> History:
    """Two histories, one after the other."""
    step, seconds = (history.steps[-1][name] if history.steps else 0 for name in ("step", "seconds"))
    moved = [
        {**record, "step": record["step"] + step, "seconds": record["seconds"] + seconds} for record in later.steps
    ]
    return History([*history.steps, *moved])


def _chosen(best: Candidate, candidates: Sequence[Candidate]) -> str:
    names = [str(candidate.model.config().get("activation")) for candidate in candidates]
    values = [candidate.scores["marginal_lppd"] for candidate in candidates]
    scores = ", ".join(f"{value:.3f} with {name}" for name, value in zip(names, values, strict=True))
    return (
        f"The network has {names[candidates.index(best)]} units: after at most a round, the log-density per point of "
        f"left-out data sets is {scores}."
    )


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _no_help(part: str, count: int, gain: float, error: float) -> str:
    return (
        f"round {count + 1}, of {FIRST_STEPS[part] * 2**count} steps, changed the log-density per point of left-out "
        f"data sets by {gain:+.3f} (standard error {error:.3f})."
    )
