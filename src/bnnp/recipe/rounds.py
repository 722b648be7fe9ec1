"""Rounds of training, each kept only if it helps tasks that were left out."""

import copy
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from bnnp._core.random import as_integer, child
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.base import MetaLearner
from bnnp.models.evidence import WeightModel
from bnnp.numerics.health import FactorisationError
from bnnp.objectives import PPAVI
from bnnp.priors.starts import Warped
from bnnp.recipe.candidate import NOT_WARPED, Candidate, chosen, in_rounds
from bnnp.recipe.judging import Judgement, LeftOut
from bnnp.recipe.noise import held, multiply_noise, take_best_noise, take_noise
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.split import ContextSize
from bnnp.training.draws import DrawsOfPrior
from bnnp.training.features import LARGE_STEPS, SMALL_STEPS, can_train_features, train_features
from bnnp.training.fit import FitResult, fit
from bnnp.training.history import History
from bnnp.training.lessons import can_teach, teach_inference
from bnnp.training.prepare import start_prior
from bnnp.training.run import TrainingDiverged
from bnnp.training.settings import FitSettings

LARGE, FEATURES, INFERENCE, EVERYTHING = "the features by large steps", "the features", "the inference", "everything"
"""The parts of the training: first hidden weights without uncertainty or, where they start with much of it, inference
under the prior as it started; then all of the model."""
FIRST_STEPS = {LARGE: 1000, FEATURES: 1000, INFERENCE: 300, EVERYTHING: 300}
"""Steps of the first round; each later round has twice as many as the one before."""
PACES = {LARGE: LARGE_STEPS, FEATURES: SMALL_STEPS}
"""How far features move per step."""
LEARNING_RATE = (1e-3, 1e-5)
"""First and last rate of each round of training everything. A larger one would undo what the start has found."""
SINGLE_TARGETS = PPAVI(num_samples=8, group_size=1)
"""The objective of inference: with several targets at once, one sample of hidden weights would have to be right at all
of them."""
LESSONS = 500
"""Steps in which inference networks learn from draws of a prior that starts with uncertain hidden weights."""
SAMPLES = 64
"""Samples of uncertain hidden weights by which a model is judged. Predictions take more where a data set needs more."""
WIDER = 4.0
"""What the noise of the start is multiplied by under uncertain hidden weights, while inference is far from perfect."""
MANY_TASKS = 48
"""With fewer tasks to learn from, only the first part of the training is done, and only for the first model and those
that can warp functions: there are too few tasks for the rest."""
CLEARLY = 2.0
"""A difference counts if it is more than so many standard errors."""
RACE = 2
"""Rounds after which the best of several models is chosen, if they help: units with kinks take longer to learn."""
LEAST_GAIN = 0.005
"""A round counts as better if left-out tasks clearly gain, and at least so much log-density per point."""


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

    def best(self, models: Sequence[MetaLearner], tasks: TaskSource, left_out: LeftOut) -> Candidate:
        """Start each model; train those that start well for some rounds; then train each part of the best one."""
        tried, told = {n: one for n, one in enumerate(models) if n == 0 or not _few(tasks) or can_warp(one)}, []
        candidates = self._all_started(tried, tasks, left_out)
        if len(candidates) < len(tried):
            told.append(NOT_WARPED)
        good = [place for place, one in enumerate(candidates) if not _starts_worse(one, candidates, left_out)]
        for place in good if len(candidates) > 1 else []:
            candidates[place] = self._advanced(candidates[place], tasks, left_out, limit=RACE)
            if candidates[place].interrupted:
                break
        best = max(candidates, key=lambda candidate: candidate.scores.worth())
        if len(candidates) > 1:
            told.append(chosen(best, candidates))
        best = replace(best, ended=(*told, *best.ended))
        while not best.interrupted and best.parts:
            best = self._advanced(best, tasks, left_out)
        return best

    def _all_started(self, models: dict[int, MetaLearner], tasks: TaskSource, left_out: LeftOut) -> list[Candidate]:
        found: list[Candidate] = []
        for number, model in models.items():
            must = not found and number == max(models)
            candidate = self._started(number, model, tasks, left_out, must=must)
            found += [] if candidate is None else [candidate]
        return found

    def _started(
        self, number: int, model: MetaLearner, tasks: TaskSource, left_out: LeftOut, *, must: bool
    ) -> Candidate | None:
        """The candidate at its start; None if its units warp, the outputs are not warped, and it need not be taken."""
        own = copy.deepcopy(model)
        start = "warped" if can_warp(own) else "empirical"
        self._start(own, tasks, start)
        if own.weight_prior is not None and own.weight_prior.is_standard() and start == "warped":
            if not must:
                return None
            start = "empirical"
            self._start(own, tasks, start)
        scores = self._scores(own, start, left_out)
        return Candidate(number, own, start, scores, scores, _parts(own, start, few=_few(tasks)))

    def _scores(self, model: MetaLearner, start: str, left_out: LeftOut) -> Judgement:
        return left_out.judge(model, SAMPLES if start == "warped" else None)

    def _judge(self, part: str, tasks: TaskSource, left_out: LeftOut) -> LeftOut:
        """What rounds are judged by: left-out tasks, with those that rounds learn nothing from but inputs."""
        if part != INFERENCE or not isinstance(tasks, Collection):
            return left_out
        rest = LeftOut.of(tasks.tasks, self.size, child(self.seed, 8))
        return LeftOut([*left_out.once(), *rest.once()], left_out.count + rest.count)

    def _start(self, model: MetaLearner, tasks: TaskSource, start: str) -> None:
        """Start the prior, and the inference networks if it has uncertain hidden weights."""
        start_prior(model, tasks, Warped() if start == "warped" else start, self.seed)
        if start == "warped" and isinstance(model, WeightModel) and not model.prior.is_standard():
            teach_inference(model, tasks, LESSONS, progress=self.progress, seed=self.seed)
            multiply_noise(model, WIDER)

    def _advanced(self, now: Candidate, tasks: TaskSource, left_out: LeftOut, limit: int | None = None) -> Candidate:
        """The candidate after more rounds of its next part: until one does not help, the time is up, or as limited."""
        per_step, part = 0.0, now.parts[0]
        judge = self._judge(part, tasks, left_out)
        before = now.scores if judge is left_out else self._scores(now.model, now.start, judge)
        while True:
            done = now.rounds.get(part, ())
            count, steps = len(done), self._steps(part, len(done), per_step)
            after = f"Training {part} ended after {in_rounds(count)}"
            if limit is not None and count == limit:
                return now
            if not steps:
                return now.without(f"{after}, because the time was up.")
            began, tried = time.monotonic(), copy.deepcopy(now.model)
            try:
                result = self._round(tried, part, tasks, count, steps, f"left-out-{now.number}")
            except TrainingDiverged as error:
                return now.without(f"{after}: in the next one it diverged ({error}).")
            if result.interrupted:
                return replace(now.without(f"Training {part} was stopped in round {count + 1}."), interrupted=True)
            try:
                if part == INFERENCE:
                    take_best_noise(tried, judge.once(), SAMPLES)
                found = self._scores(tried, now.start, judge)
                scores = found if judge is left_out else self._scores(tried, now.start, left_out)
            except FactorisationError as error:
                return now.without(f"{after}: after the next one, left-out data sets could not be predicted ({error}).")
            per_step = (time.monotonic() - began) / steps
            mean, error = judge.gain(found, before, of_inference=part == INFERENCE)
            if not mean > max(LEAST_GAIN, CLEARLY * error):
                return now.without(f"{after}: {_no_help(part, count, steps, mean, error)}")
            history, helped = _after(now.history, result.history), {**now.rounds, part: (*done, steps)}
            before, now = found, replace(now, model=tried, scores=scores, history=history, rounds=helped)

    def repeated(self, model: MetaLearner, tasks: TaskSource, judged: Candidate) -> FitResult:
        """Do as many rounds with all tasks as helped with some left out.

        Raises:
            TrainingDiverged: If that diverges.
        """
        self._start(model, tasks, judged.start)
        if INFERENCE in judged.rounds and isinstance(model.likelihood, Gaussian):
            take_noise(model, judged.model)
        history = History()
        for part, count, steps in [(part, *each) for part, done in judged.rounds.items() for each in enumerate(done)]:
            result = self._round(model, part, tasks, count, steps, "all")
            history = _after(history, result.history)
            if result.interrupted:
                return FitResult(model, history, True)
        return FitResult(model, history)

    def _steps(self, part: str, count: int, per_step: float) -> int:
        """Steps of the next round: twice those of the last one, or none if the time would be up before its end.

        Features, whose rounds have no state to go on from, get a shorter round instead if that is worth it.
        """
        steps, left = FIRST_STEPS[part] * 2**count, self.until - time.monotonic()
        if steps * per_step <= left and left > 0:
            return steps
        shorter = int(left / per_step) if per_step and part in PACES else 0
        return shorter if shorter >= FIRST_STEPS[part] else 0

    def _round(self, model: MetaLearner, part: str, tasks: TaskSource, count: int, steps: int, name: str) -> FitResult:
        seed = as_integer(child(self.seed, count))
        if part in PACES:
            try:
                train_features(model, tasks, steps, pace=PACES[part], progress=self.progress, seed=seed)
            except KeyboardInterrupt:
                return FitResult(model, History(), True)
            return FitResult(model, History())
        if part == INFERENCE and isinstance(tasks, Collection) and isinstance(model, WeightModel):
            tasks = DrawsOfPrior(model, tasks)
        kept = f"{name}-{count}" if part == EVERYTHING else f"{name}-inference-{count}"
        with held(model) if part == INFERENCE else nullcontext():
            return fit(
                model,
                tasks,
                steps=steps,
                context_share=self.size,
                objective=SINGLE_TARGETS if part == INFERENCE else None,
                settings=FitSettings(learning_rate=LEARNING_RATE),
                checkpoint=None if self.folder is None else self.folder / kept,
                progress=self.progress,
                seed=seed,
            )


def can_warp(model: MetaLearner) -> bool:
    """Whether the model's units are flat at both ends, so that they can give functions levels or a floor."""
    return can_teach(model) and model.config().get("activation") == "tanh"


def _parts(model: MetaLearner, start: str, *, few: bool) -> tuple[str, ...]:
    """The parts of a model's training, in order."""
    if start == "warped":
        return (INFERENCE,) if few else (INFERENCE, EVERYTHING)
    if not can_train_features(model):
        return (EVERYTHING,)
    return (FEATURES,) if few else (LARGE, FEATURES, EVERYTHING)


def _starts_worse(candidate: Candidate, all_of_them: Sequence[Candidate], left_out: LeftOut) -> bool:
    """Whether another candidate, whose training begins with the same part, starts clearly better."""
    for other in all_of_them:
        if other is not candidate and other.parts[:1] == candidate.parts[:1]:
            mean, error = left_out.gain(other.first, candidate.first)
            if mean > CLEARLY * error:
                return True
    return False


def _few(tasks: TaskSource) -> bool:
    return isinstance(tasks, Collection) and len(tasks) < MANY_TASKS


def _after(history: History, later: History) -> History:
    """Two histories, one after the other."""
    step, seconds = (history.steps[-1][name] if history.steps else 0 for name in ("step", "seconds"))
    moved = [
        {**record, "step": record["step"] + step, "seconds": record["seconds"] + seconds} for record in later.steps
    ]
    return History([*history.steps, *moved])


def _no_help(part: str, count: int, steps: int, gain: float, error: float) -> str:
    averaged = ", averaged over predictions with and without known points,"
    return (
        f"round {count + 1}, of {steps} steps, changed the log-density per point of left-out data sets"
        f"{'' if part == INFERENCE else averaged} by {gain:+.3f} (standard error {error:.3f})."
    )
