"""`bnnp predict` and `bnnp infer`: predict new points, by a model's own inference or by another under its prior."""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

import bnnp
from bnnp._core.files import write_atomically
from bnnp.cli.options import DATA, INFERENCE, Context, ModelFile, Out, PosteriorSamples, Quiet, Seed, TaskColumn
from bnnp.cli.words import print_files, with_prior
from bnnp.evaluation.scores import Posterior
from bnnp.inference import METHODS, Effort, InferenceWarning, infer_many
from bnnp.likelihoods.categorical import Categorical
from bnnp.models import MetaLearner
from bnnp.prediction.base import Predictive
from bnnp.tasks.tables import check_columns, numeric_columns, read_table

if TYPE_CHECKING:
    import pandas as pd

QUANTILES = (0.05, 0.5, 0.95)

Targets = Annotated[Path, typer.Option(help="Inputs to predict at, CSV or Parquet.", rich_help_panel=DATA)]
TargetsOrContext = Annotated[
    Path | None,
    typer.Option(
        "--targets",
        help="Inputs to predict at, CSV or Parquet; by default those of the context.",
        rich_help_panel=DATA,
    ),
]
MethodName = Annotated[str, typer.Option("--method", help=f"One of {', '.join(METHODS)}.", rich_help_panel=INFERENCE)]
Samples = Annotated[int, typer.Option("--samples", help="Weight samples.", rich_help_panel=INFERENCE)]
Steps = Annotated[
    int | None,
    typer.Option(help="Steps of the optimiser, or of each chain after its warm-up.", rich_help_panel=INFERENCE),
]
Warmup = Annotated[int, typer.Option(help="First steps of each chain, which are not used.", rich_help_panel=INFERENCE)]
Chains = Annotated[int, typer.Option(help="Markov chains.", rich_help_panel=INFERENCE)]


def predict(
    model: ModelFile,
    context: Context,
    targets: Targets,
    task: TaskColumn = None,
    samples: PosteriorSamples = None,
    out: Out = Path("predictions.csv"),
    seed: Seed = 0,
) -> None:
    """Predict new points of one data set, or of several told apart by --task, in the units of the tables.

    Example: bnnp predict model --context known.csv --targets wanted.csv --out predictions.csv
    """
    loaded = bnnp.load(model)
    wanted, questions = _questions(loaded, context, targets, task)
    choices = {} if samples is None else {"num_samples": samples}
    posteriors = [loaded.condition(q.x, q.y, seed=seed, **choices) for q in questions]
    print_files([_write_predictions(out, loaded, wanted, questions, posteriors)])


def infer(
    model: ModelFile,
    context: Context,
    targets: TargetsOrContext = None,
    task: TaskColumn = None,
    method: MethodName = "nuts",
    samples: Samples = 1000,
    steps: Steps = None,
    warmup: Warmup = 500,
    chains: Chains = 4,
    out: Out = Path("predictions.csv"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Predict new points under a model's prior, by a method other than the model's own. All data sets run at once.

    Warnings about the result, such as chains that have not mixed, go to standard error.

    Example: bnnp infer model --context known.csv --targets wanted.csv --method hmc --out predictions.csv
    """
    loaded = with_prior(bnnp.load(model), "infer")
    wanted, questions = _questions(loaded, context, targets or context, task)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InferenceWarning)
        posteriors = infer_many(
            loaded,
            [(q.x, q.y) for q in questions],
            method=method,
            num_samples=samples,
            effort=Effort(steps=steps, warmup=warmup, chains=chains),
            seed=seed,
            progress=not quiet,
        )
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    print_files([_write_predictions(out, loaded, wanted, questions, posteriors)])


@dataclass(frozen=True, eq=False)
class _Question:
    """A data set's known points, the inputs to predict at, and their rows in the table of all targets."""

    x: np.ndarray
    y: np.ndarray
    x_new: np.ndarray
    rows: np.ndarray


def _questions(
    model: MetaLearner, context: Path, targets: Path, task: str | None
) -> "tuple[pd.DataFrame, list[_Question]]":
    """The table of targets, and one question per data set."""
    known, wanted = read_table(context), read_table(targets)
    x_names, y_names = model.columns.x_names, model.columns.y_names
    extra = [task] if task else []
    check_columns(known, [*extra, *x_names, *y_names])
    check_columns(wanted, [*extra, *x_names])
    known_numbers, wanted_numbers = numeric_columns(known, [*x_names, *y_names]), numeric_columns(wanted, x_names)
    if len(wanted) == 0:
        raise ValueError(f"{targets}: got no rows, expected inputs to predict at")
    groups = wanted.groupby(task, sort=False).indices if task else {"": np.arange(len(wanted))}
    questions = []
    for name, rows in groups.items():
        mine = (known[task] == name).to_numpy() if task else np.ones(len(known), dtype=bool)
        seen_x, seen_y = np.split(known_numbers.to_numpy()[mine], [len(x_names)], axis=1)
        questions.append(_Question(seen_x, seen_y, wanted_numbers[x_names].to_numpy()[rows], rows))
    return wanted, questions


def _write_predictions(
    out: Path,
    model: MetaLearner,
    wanted: "pd.DataFrame",
    questions: Sequence[_Question],
    posteriors: Sequence[Posterior],
) -> Path:
    import pandas as pd

    columns: dict[str, np.ndarray] = {}
    for question, posterior in zip(questions, posteriors, strict=True):
        predictive = posterior.predict(question.x_new)
        for column, values in _prediction_columns(predictive, model.columns.y_names).items():
            columns.setdefault(column, np.empty(len(wanted)))[question.rows] = values
    result = pd.concat([wanted.reset_index(drop=True), pd.DataFrame(columns)], axis=1)
    return write_atomically(out, result.to_csv(index=False))


def _prediction_columns(predictive: Predictive, y_names: list[str]) -> dict[str, np.ndarray]:
    if isinstance(predictive.likelihood, Categorical):
        return {f"{y_names[0]}_is_{c}": predictive.mean[:, c] for c in range(predictive.mean.shape[1])}
    quantiles = predictive.quantile(QUANTILES)
    columns = {}
    for i, name in enumerate(y_names):
        columns[f"{name}_mean"] = predictive.mean[:, i]
        columns[f"{name}_std"] = predictive.std[:, i]
        for level, values in zip(QUANTILES, quantiles, strict=True):
            columns[f"{name}_q{round(100 * level):02d}"] = values[:, i]
    return columns
