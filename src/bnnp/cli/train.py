"""`bnnp train`: learn a prior from related data sets."""

import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

import bnnp
from bnnp import plots
from bnnp.cli.given import refuse
from bnnp.cli.group import process_group
from bnnp.cli.options import (
    DATA,
    MODEL,
    TRAINING,
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
from bnnp.cli.words import folder_for_results, numbers, pair, print_files
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.bernoulli import Bernoulli
from bnnp.likelihoods.categorical import Categorical
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.likelihoods.heteroscedastic import HeteroscedasticGaussian
from bnnp.models import MetaLearner
from bnnp.models.bnnp import BNNP
from bnnp.neural_processes import PEERS
from bnnp.recipe import Learned
from bnnp.recipe.summary import summary
from bnnp.report import write_report
from bnnp.tasks.datasets.registry import SOURCES, source_named
from bnnp.tasks.source import Collection, TaskSource
from bnnp.training import FitResult

Table = Annotated[Path | None, typer.Argument(help="A long table, CSV, TSV, Excel or Parquet: one row per point.")]
XColumns = Annotated[
    list[str] | None, typer.Option("--x", help="Input column; repeat for several.", rich_help_panel=DATA)
]
YColumns = Annotated[
    list[str] | None, typer.Option("--y", help="Output column; repeat for several.", rich_help_panel=DATA)
]
Kind = Annotated[
    str, typer.Option("--model", help=f"bnnp, or a neural process: {', '.join(PEERS)}.", rich_help_panel=MODEL)
]
Hidden = Annotated[str, typer.Option(help="Units of the hidden layers.", rich_help_panel=MODEL)]
Activation = Annotated[
    str | None,
    typer.Option(
        help="relu, tanh, silu, gelu or softplus. By default silu; where there are tasks enough to tell, silu or relu.",
        rich_help_panel=MODEL,
    ),
]
PriorName = Annotated[
    str, typer.Option("--prior", help="factorised, unitwise, layerwise or networkwise.", rich_help_panel=MODEL)
]
PriorStart = Annotated[
    str | None,
    typer.Option(
        help="empirical, spread or standard: where learning the prior starts. Needs --steps.", rich_help_panel=TRAINING
    ),
]
Learnability = Annotated[
    str,
    typer.Option(
        help="Share of the prior that may be learned (the paper's decimal); auto: as much as the data sets bear.",
        rich_help_panel=MODEL,
    ),
]
LikelihoodName = Annotated[
    str | None,
    typer.Option(
        "--likelihood",
        help="gaussian, bernoulli, categorical, or heteroscedastic: noise that is predicted for every point, which "
        "neural processes have by default; gaussian for a BNNP.",
        rich_help_panel=MODEL,
    ),
]
Noise = Annotated[
    float, typer.Option(help="First guess of the noise, in standardised units of y.", rich_help_panel=MODEL)
]
MaxNoise = Annotated[float | None, typer.Option(help="Upper bound of the learned noise.", rich_help_panel=MODEL)]
Minutes = Annotated[
    float, typer.Option(help="Time after which no new round of training begins.", rich_help_panel=TRAINING)
]
Steps = Annotated[
    int | None,
    typer.Option(
        help="Training steps. By default, data sets that are left out decide how much to train.",
        rich_help_panel=TRAINING,
    ),
]
Samples = Annotated[
    int | None,
    typer.Option(
        "--samples", help="Samples per data set and step; by default as many as are needed.", rich_help_panel=TRAINING
    ),
]
BatchSize = Annotated[
    int | None, typer.Option(help="Data sets per step; 5 by default. Needs --steps.", rich_help_panel=TRAINING)
]
LearningRate = Annotated[
    str | None, typer.Option(help="First and last learning rate. Needs --steps.", rich_help_panel=TRAINING)
]
ClipNorm = Annotated[
    float | None, typer.Option(help="Bound on the norm of the gradient. Needs --steps.", rich_help_panel=TRAINING)
]
PriorLrMultiplier = Annotated[
    float | None,
    typer.Option(
        help="How many times faster the prior learns than the rest; 3 pays with very many tasks. Needs --steps.",
        rich_help_panel=TRAINING,
    ),
]
AUTO = "auto"
ACTIVATIONS = ("silu", "relu")
"""What is tried if none is chosen: units for smooth functions, and for functions with kinks."""
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
    if _kind_of_likelihood(model, likelihood) in REAL:
        offer_positive(tasks)
    chosen = _Model(
        model, hidden, activation or ACTIVATIONS[0], prior, _share(learnability), likelihood, noise, max_noise
    )
    learner, share = chosen.learner(tasks, seed), pair(context_share, "context-share")
    decides = steps is None and isinstance(learner, BNNP)
    with process_group(decided=not decides) as ranks, folder_for_results(out) if ranks.is_first else nullcontext():
        if decides:
            others = [] if activation else [replace(chosen, activation=ACTIVATIONS[1]).learner(tasks, seed)]
            result = bnnp.learn(
                [learner, *others],
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


@dataclass(frozen=True)
class _Model:
    """The options of the group `Model`, as they were given."""

    kind: str
    hidden: str
    activation: str
    prior: str
    learnability: float
    likelihood: str | None
    noise: float
    max_noise: float | None

    def learner(self, tasks: TaskSource, seed: int) -> MetaLearner:
        kind = _kind_of_likelihood(self.kind, self.likelihood)
        likelihood, outputs = _likelihood(kind, self.noise, self.max_noise, tasks)
        sizes = numbers(self.hidden, int, "hidden")
        if self.kind == "bnnp":
            dtype = torch.float64 if isinstance(tasks, Collection) else torch.float32
            last = "likelihood" if kind == "gaussian" else None
            model = BNNP(
                *(tasks.in_size, outputs, sizes, self.activation, self.prior, likelihood),
                **{"last_layer": last, "dtype": dtype, "seed": seed},
            )
            return model.set_prior_learnability(self.learnability)
        if self.kind not in PEERS:
            raise ValueError(f"model: got {self.kind!r}, expected bnnp, {', '.join(PEERS)}")
        if self.learnability != 1:
            raise ValueError(f"learnability: got {self.learnability}, but a neural process has no prior over weights")
        return PEERS[self.kind](tasks.in_size, outputs, sizes, self.activation, likelihood, seed=seed)


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
    kind = _kind_of_likelihood(model, likelihood)
    if kind not in REAL:
        refuse(context, ("positive",), f"--likelihood {kind}", "its outputs have no logarithm")
    if kind != "gaussian":
        refuse(context, ("noise", "max_noise"), f"--likelihood {kind}", "it has no noise of its own")


def _share(learnability: str) -> float:
    """The learnable share of the prior: all of it for "auto", where left-out tasks decide how far to use it."""
    if learnability == AUTO:
        return 1.0
    try:
        return float(learnability)
    except ValueError:
        raise ValueError(f"learnability: got {learnability!r}, expected auto, or a number from 0 to 1") from None


def _kind_of_likelihood(model: str, likelihood: str | None) -> str:
    if likelihood is not None:
        return likelihood
    return "gaussian" if model == "bnnp" else "heteroscedastic"


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
        raise ValueError("train: a table needs --task COLUMN, --x COLUMN and --y COLUMN")
    return reading.tasks(table, task=task, x=x, y=y, positive=positive)


def _likelihood(name: str, noise: float, max_noise: float | None, tasks: TaskSource) -> tuple[Likelihood, int]:
    """The likelihood, and the number of network outputs it needs for these tasks."""
    if name == "gaussian":
        return Gaussian(noise, max_noise=max_noise), tasks.out_size
    if name == "heteroscedastic":
        return HeteroscedasticGaussian(), tasks.out_size
    if name == "bernoulli":
        return Bernoulli(), tasks.out_size
    if name == "categorical" and isinstance(tasks, Collection):
        classes = 1 + int(max(float(task.y.max()) for task in tasks.tasks))
        return Categorical(classes), classes
    raise ValueError(
        f"likelihood: got {name!r}, expected gaussian, heteroscedastic, bernoulli, or categorical with a table of "
        "labels 0, 1, ..."
    )


def _write(result: FitResult | Learned, tasks: TaskSource, out: Path, seed: int) -> list[Path]:
    """The model, its history and figures of both."""
    files = [result.model.save(out / "model.bnnp"), result.history.save(out / "history.json")]
    if result.history.steps:
        files.append(plots.save_figure(plots.history(result.history), out / "history.png"))
    if tasks.in_size == 1 and isinstance(result.model, BNNP):
        files.append(_prior_figure(result.model, tasks, out / "prior.png", seed))
    return [*files, write_report(out / "report.html", result, tasks, seed=seed)]


def _prior_figure(model: BNNP, tasks: TaskSource, path: Path, seed: int) -> Path:
    data = tasks.draw(20, torch.Generator().manual_seed(seed))
    x, columns = torch.cat([task.x for task in data]), model.columns
    grid = np.linspace(float(x.min()), float(x.max()), 300)
    labels = (columns.x_names[0], *columns.y_names[: model.likelihood.y_size(len(columns.y_names))])
    return plots.save_figure(plots.functions(model.prior.functions(10, seed), grid, labels=labels, data=data), path)
