"""`bnnp predict` and `bnnp infer`: predict new points, by a model's own inference or by another under its prior."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import bnnp
from bnnp import plots
from bnnp.cli.joined import Asking
from bnnp.cli.messages import say
from bnnp.cli.options import (
    DATA,
    INFERENCE,
    Context,
    Decimal,
    Delimiter,
    DropMissing,
    ModelFile,
    OutTable,
    PosteriorSamples,
    Quiet,
    Seed,
    SkipUnknown,
    TaskColumn,
)
from bnnp.cli.reading import Reading
from bnnp.cli.windows import Answering, Asked, Kept
from bnnp.cli.words import print_files, with_prior
from bnnp.evaluation.scores import Predictor
from bnnp.inference import METHODS, Effort, infer_many
from bnnp.prediction import ExtrapolationWarning
from bnnp.questions import Question, prediction_numbers
from bnnp.tasks.tables import check_out, table_writer, write_table
from bnnp.tasks.task import Task

Targets = Annotated[Path, typer.Option(help="Inputs to predict at: CSV, TSV, Excel or Parquet.", rich_help_panel=DATA)]
TargetsOrContext = Annotated[
    Path | None,
    typer.Option(
        "--targets",
        help="Inputs to predict at: CSV, TSV, Excel or Parquet; by default those of the context.",
        rich_help_panel=DATA,
    ),
]
Workers = Annotated[int, typer.Option(min=1, help="Processes that share the work.", rich_help_panel=INFERENCE)]
MethodName = Annotated[str, typer.Option("--method", help=f"One of {', '.join(METHODS)}.", rich_help_panel=INFERENCE)]
Samples = Annotated[int, typer.Option("--samples", help="Weight samples.", rich_help_panel=INFERENCE)]
Steps = Annotated[
    int | None,
    typer.Option(help="Steps of the optimiser, or of each chain after its warm-up.", rich_help_panel=INFERENCE),
]
Warmup = Annotated[int, typer.Option(help="First steps of each chain, which are not used.", rich_help_panel=INFERENCE)]
Chains = Annotated[int, typer.Option(help="Markov chains.", rich_help_panel=INFERENCE)]


Plot = Annotated[
    Path | None,
    typer.Option(help="A figure of all subjects, with known points and bands: PNG, SVG or PDF.", rich_help_panel=DATA),
]

PLOTTED = 20
"""The largest number of subjects in a figure."""


def predict(
    model: ModelFile,
    context: Context,
    targets: Targets,
    task: TaskColumn = None,
    drop_missing: DropMissing = False,
    skip_small: SkipUnknown = False,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    samples: PosteriorSamples = None,
    out: OutTable = Path("predictions.csv"),
    plot: Plot = None,
    seed: Seed = 0,
    workers: Workers = 1,
    quiet: Quiet = False,
) -> None:
    """Predict new points of one data set, or of several told apart by --task, in the units of the tables.

    Standard error says how many subjects have known points. The others are predicted from the prior, and the column
    from_prior says so. The column outside_training marks inputs outside the range of the training inputs.

    The numbers of a subject do not depend on the others, nor on --workers. A command that was ended early goes on where
    it was when it is given again.

    Example: bnnp predict model --context known.csv --targets wanted.csv --out predictions.csv
    """
    _check_files(out, plot, [context, targets])
    loaded = bnnp.load(model)
    reading = Reading(delimiter, decimal, drop_missing, skip_small)
    asking = Asking.of(loaded, context, targets, task, reading)
    pieces, tally = asking.read()
    kept = Kept(out, loaded, Asked(samples, seed))
    subjects = tally.subjects - tally.without.count * skip_small
    first: list[Question] = []
    with table_writer(out, asking.types) as write:
        for piece, numbers in Answering(kept, subjects, workers, not quiet).of(pieces):
            write(piece.table(numbers))
            first += [] if plot is None else piece.asked[: PLOTTED - len(first)]
    choices = {} if samples is None else {"num_samples": samples}
    posteriors = [loaded.condition(q.x, q.y, seed=seed, **choices) for q in first]
    print_files([out, *_plotted(plot, posteriors, first, subjects)])
    kept.remove()


def infer(
    model: ModelFile,
    context: Context,
    targets: TargetsOrContext = None,
    task: TaskColumn = None,
    drop_missing: DropMissing = False,
    skip_small: SkipUnknown = False,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    method: MethodName = "nuts",
    samples: Samples = 1000,
    steps: Steps = None,
    warmup: Warmup = 500,
    chains: Chains = 4,
    out: OutTable = Path("predictions.csv"),
    plot: Plot = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Predict new points under a model's prior, by a method other than the model's own. All data sets run at once.

    Warnings about the result, such as chains that have not mixed, go to standard error.

    Example: bnnp infer model --context known.csv --targets wanted.csv --method hmc --out predictions.csv
    """
    _check_files(out, plot, [context, targets])
    loaded = with_prior(bnnp.load(model), "infer")
    reading = Reading(delimiter, decimal, drop_missing, skip_small)
    asking = Asking.of(loaded, context, targets or context, task, reading)
    (questions,), _ = asking.read(whole=True)
    posteriors = infer_many(
        loaded,
        [(q.x, q.y) for q in questions.asked],
        method=method,
        num_samples=samples,
        effort=Effort(steps=steps, warmup=warmup, chains=chains),
        seed=seed,
        progress=not quiet,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # the questions have said so
        predictives = [p.predict(q.x_new) for p, q in zip(posteriors, questions.asked, strict=True)]
    write_table(out, questions.table([prediction_numbers(one) for one in predictives]))
    print_files([out, *_plotted(plot, posteriors, questions.asked, len(questions.asked))])


def _check_files(out: Path, plot: Path | None, inputs: Sequence[Path | None]) -> None:
    check_out(out, inputs=inputs)
    if plot is not None:
        check_out(plot, plots.ENDINGS, [*inputs, out], "--plot")


def _plotted(
    plot: Path | None, posteriors: Sequence[Predictor], asked: Sequence[Question], subjects: int
) -> list[Path]:
    """A figure of the first posteriors, where one is asked for."""
    if plot is None:
        return []
    known = [Task.of(q.x, q.y, q.name) for q in asked[: len(posteriors)]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)  # the questions have said so
        figure = plots.subjects(posteriors, known, most=PLOTTED)
    if subjects > PLOTTED:
        say(f"note: {plot} shows the first {PLOTTED} of {subjects} subjects")
    return [plots.save_figure(figure, plot)]
