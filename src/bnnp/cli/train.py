"""`bnnp train`: learn a prior from related data sets."""

import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import typer

import bnnp
from bnnp import plots
from bnnp.cli.given import refuse
from bnnp.cli.group import process_group
from bnnp.cli.options import (
    ContextShare,
    Decimal,
    Delimiter,
    DropMissing,
    Out,
    Positive,
    Quiet,
    Seed,
    SkipSmall,
    Source,
    TaskColumn,
)
from bnnp.cli.positive import offer_positive
from bnnp.cli.reading import READING, Reading
from bnnp.cli.signals import INTERRUPTED
from bnnp.cli.train_model import AUTO, ModelOptions, kind_of_likelihood, learnable_share
from bnnp.cli.train_options import (
    Activation,
    BatchSize,
    ClipNorm,
    Hidden,
    Kind,
    Learnability,
    LearningRate,
    LikelihoodName,
    MaxNoise,
    Minutes,
    Noise,
    PriorLrMultiplier,
    PriorName,
    PriorStart,
    Samples,
    Steps,
    Table,
    XColumns,
    YColumns,
)
from bnnp.cli.words import folder_for_results, pair, print_files
from bnnp.models import MetaLearner
from bnnp.models.bnnp import BNNP
from bnnp.recipe import ACTIVATIONS, Learned
from bnnp.recipe.summary import summary
from bnnp.report import write_report
from bnnp.tasks.datasets.registry import SOURCES, source_named
from bnnp.tasks.source import TaskSource
from bnnp.training import FitResult

PEER_STEPS = 2000
"""Steps of a neural process, if none are given."""
REAL = ("gaussian", "heteroscedastic")
"""Likelihoods of outputs that are real numbers."""
ONLY_WITH_STEPS = ("samples", "batch_size", "learning_rate", "clip_norm", "prior_lr_multiplier", "prior_start")


def train(
    context: typer.Context,
    table: Table = None,
    task: TaskColumn = None,
    x: XColumns = None,
    y: YColumns = None,
    source: Source = None,
    drop_missing: DropMissing = False,
    skip_small: SkipSmall = False,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    positive: Positive = False,
    context_share: ContextShare = "0.1,0.5",
    model: Kind = "bnnp",
    hidden: Hidden = "64,64",
    activation: Activation = None,
    prior: PriorName = "unitwise",
    learnability: Learnability = AUTO,
    likelihood: LikelihoodName = None,
    noise: Noise = 0.1,
    max_noise: MaxNoise = None,
    minutes: Minutes = 10.0,
    steps: Steps = None,
    samples: Samples = None,
    batch_size: BatchSize = None,
    learning_rate: LearningRate = None,
    clip_norm: ClipNorm = None,
    prior_lr_multiplier: PriorLrMultiplier = None,
    prior_start: PriorStart = None,
    out: Out = Path("model"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Learn a prior from related data sets. A stopped run continues when the same command is given again.

    With --steps, several processes can share the work: torchrun --nproc-per-node 2 -m bnnp train ...

    Example: bnnp train trial.csv --task subject --x time --y conc --out model
    """
    _check_options(context, source, model, likelihood, steps)
    reading = Reading(delimiter, decimal, drop_missing, skip_small)
    tasks = _training_tasks(table, source, task, x, y, reading, positive)
    if kind_of_likelihood(model, likelihood) in REAL:
        offer_positive(tasks)
    first = ACTIVATIONS[0] if activation is None else activation
    learnable = learnable_share(learnability)
    chosen = ModelOptions(model, hidden, first, prior, learnable, likelihood, noise, max_noise)
    learner, share = chosen.learner(tasks, seed), pair(context_share, "context-share")
    decides = steps is None and isinstance(learner, BNNP)
    with process_group(decided=not decides) as ranks, folder_for_results(out) if ranks.is_first else nullcontext():
        if decides:
            others = [replace(chosen, activation=other) for other in ACTIVATIONS[1:] if activation is None]
            result = bnnp.learn(
                [learner, *(other.learner(tasks, seed) for other in others)],
                tasks,
                minutes=minutes,
                context_share=share,
                folder=out / "rounds",
                progress=not quiet,
                seed=seed,
            )
            print(*result.decisions, *summary(result, tasks), sep="\n", file=sys.stderr)
        else:
            count = PEER_STEPS if steps is None else steps
            training = _Training(count, samples, batch_size, learning_rate, clip_norm, prior_lr_multiplier, prior_start)
            result = training.fit(learner, tasks, share, out, seed, progress=not quiet)
    if ranks.is_first:
        print_files(_write(result, tasks, out, seed))
    if result.interrupted:
        print("stopped; the same command goes on from here", file=sys.stderr)
        raise typer.Exit(INTERRUPTED)
    if ranks.is_first and table is not None:
        words = f"bnnp predict {out} --context KNOWN.csv --targets WANTED.csv --out predictions.csv"
        print(f"The model is complete. Look at {out / 'report.html'}, then: {words}", file=sys.stderr)


@dataclass(frozen=True)
class _Training:
    """The options of the group `Training`, and where learning the prior starts, as they were given."""

    steps: int
    samples: int | None
    batch_size: int | None
    learning_rate: str | None
    clip_norm: float | None
    prior_lr_multiplier: float | None
    prior_start: str | None

    def fit(
        self,
        learner: MetaLearner,
        tasks: TaskSource,
        share: tuple[float, float],
        out: Path,
        seed: int,
        *,
        progress: bool,
    ) -> FitResult:
        objective = bnnp.objectives.PPAVI if isinstance(learner, BNNP) else bnnp.objectives.NPML
        return bnnp.fit(
            learner,
            tasks,
            objective=None if self.samples is None else objective(self.samples),
            steps=self.steps,
            context_share=share,
            settings=self._settings(),
            checkpoint=out,
            progress=progress,
            seed=seed,
            **({} if self.batch_size is None else {"batch_size": self.batch_size}),
        )

    def _settings(self) -> bnnp.FitSettings:
        rate = None if self.learning_rate is None else pair(self.learning_rate, "learning-rate")
        given = {
            "learning_rate": rate,
            "prior_lr_multiplier": self.prior_lr_multiplier,
            "clip_norm": self.clip_norm,
            "prior_start": self.prior_start,
        }
        return bnnp.FitSettings(**{name: value for name, value in given.items() if value is not None})  # pyright: ignore


def _check_options(
    context: typer.Context, source: str | None, model: str, likelihood: str | None, steps: int | None
) -> None:
    """Refuse options that have no effect beside others."""
    if source is not None:
        refuse(context, ("task", "x", "y", "positive", *READING), "--source", "no table is read")
    if steps is None and model == "bnnp":
        refuse(context, ONLY_WITH_STEPS, "training that decides by itself how much to train", "add --steps to choose")
    if steps is not None:
        refuse(context, ("minutes",), "--steps", "the number of steps decides when training ends")
    if model != "bnnp":
        reason = "a neural process has no prior over weights"
        refuse(context, ("prior", "prior_start", "learnability", "prior_lr_multiplier"), f"--model {model}", reason)
    kind = kind_of_likelihood(model, likelihood)
    if kind not in REAL:
        refuse(context, ("positive",), f"--likelihood {kind}", "its outputs have no logarithm")
    if kind != "gaussian":
        refuse(context, ("noise", "max_noise"), f"--likelihood {kind}", "it has no noise of its own")


def _training_tasks(
    table: Path | None,
    source: str | None,
    task: str | None,
    x: list[str] | None,
    y: list[str] | None,
    reading: Reading,
    positive: bool,
) -> TaskSource:
    if (table is None) == (source is None):
        raise ValueError(
            "train: give either a table or --source, as in `bnnp train trial.csv --task subject --x time --y conc`"
        )
    if source is not None:
        return source_named(source, SOURCES)
    assert table is not None
    if task is None or not x or not y:
        missing = ", ".join(flag for flag, given in (("--task", task), ("--x", x), ("--y", y)) if not given)
        raise ValueError(f"train: got no {missing}; a table needs --task COLUMN, --x COLUMN and --y COLUMN")
    return reading.tasks(table, task=task, x=x, y=y, positive=positive)


def _write(result: FitResult | Learned, tasks: TaskSource, out: Path, seed: int) -> list[Path]:
    """The model, its history and figures of both."""
    files = [result.model.save(out / "model.bnnp"), result.history.save(out / "history.json")]
    if result.history.steps:
        files.append(plots.save_figure(plots.history(result.history), out / "history.png"))
    if tasks.in_size == 1 and isinstance(result.model, BNNP):
        files.append(_prior_figure(result.model, tasks, out / "prior.png", seed))
    return [*files, write_report(out / "report.html", result, tasks, seed=seed)]


def _prior_figure(model: BNNP, tasks: TaskSource, path: Path, seed: int) -> Path:
    data = tasks.drawn(20, torch.Generator().manual_seed(seed))
    x, columns = torch.cat([task.x for task in data]), model.columns
    grid = np.linspace(float(x.min()), float(x.max()), 300)
    labels = (columns.x_names[0], *columns.y_names[: model.likelihood.y_size(len(columns.y_names))])
    return plots.save_figure(plots.functions(model.prior.functions(10, seed), grid, labels=labels, data=data), path)
