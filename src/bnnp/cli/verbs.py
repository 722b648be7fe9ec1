"""The command line. Each verb checks its input, calls the library, and writes its results whole or not at all."""

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from rich.console import Console
from rich.table import Table

import bnnp
from bnnp import bench as benchmark
from bnnp import demo as demonstration
from bnnp import plots
from bnnp._core.files import write_atomically
from bnnp.evaluation.scores import Posterior
from bnnp.experiment import SCALES, perform
from bnnp.inference import METHODS, Effort, InferenceWarning, infer_many
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.bernoulli import Bernoulli
from bnnp.likelihoods.categorical import Categorical
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.likelihoods.heteroscedastic import HeteroscedasticGaussian
from bnnp.models import MetaLearner
from bnnp.models.bnnp import BNNP
from bnnp.neural_processes import PEERS
from bnnp.tasks.datasets.registry import SOURCES, TESTS, source_named
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.tables import check_columns, from_table, numeric_columns, read_table
from bnnp.training.fit import TrainingDiverged

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
MISUSE, INTERRUPTED = 2, 130
QUANTILES = (0.05, 0.5, 0.95)

Out = Annotated[Path, typer.Option("--out", help="Where to write.")]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.")]
TaskColumn = Annotated[str | None, typer.Option("--task", help="Column that names the data set of each row.")]
XColumns = Annotated[list[str] | None, typer.Option("--x", help="Input column; repeat for several.")]
YColumns = Annotated[list[str] | None, typer.Option("--y", help="Output column; repeat for several.")]
Samples = Annotated[int, typer.Option("--samples", help="Weight samples.")]
PosteriorSamples = Annotated[
    int | None, typer.Option("--samples", help="Weight samples; as many as predictions need, where not given.")
]
Source = Annotated[str | None, typer.Option("--source", help=f"Known data instead of a table: {', '.join(SOURCES)}.")]


def main() -> None:
    """Entry point. Wrong input ends with a message and exit code 2."""
    try:
        app()
    except (ValueError, OSError, ImportError, TrainingDiverged) as error:
        Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {error}", style="bold red", markup=False)
        sys.exit(MISUSE)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"bnnp {bnnp.__version__}")
        raise typer.Exit


@app.callback()
def before_all_verbs(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version, and end.")
    ] = False,
) -> None:
    """Meta-learn a prior over the weights of a neural network, and predict new data sets with it."""


@app.command()
def demo(
    out: Out = Path("demo"),
    steps: Annotated[int, typer.Option(help="Training steps; fewer for a quick look.")] = demonstration.STEPS,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Learn a sawtooth prior in minutes, print its scores beside the best possible, write figures.

    Example: bnnp demo --out demo
    """
    result = demonstration.run(out, steps=steps, progress=not quiet, seed=seed)
    print_table(result.table(), "The paper's 16 sawtooth test sets (higher lppd, lower error is better)")
    print_files(result.files)


@app.command()
def train(
    table: Annotated[Path | None, typer.Argument(help="A long table, CSV or Parquet: one row a point.")] = None,
    out: Out = Path("model"),
    task: TaskColumn = None,
    x: XColumns = None,
    y: YColumns = None,
    source: Source = None,
    model: Annotated[str, typer.Option(help=f"bnnp, or a neural process: {', '.join(PEERS)}.")] = "bnnp",
    hidden: Annotated[str, typer.Option(help="Units of the hidden layers.")] = "64,64",
    activation: Annotated[str, typer.Option(help="relu, tanh, silu, gelu or softplus.")] = "relu",
    prior: Annotated[str, typer.Option(help="factorised, unitwise, layerwise or networkwise.")] = "unitwise",
    prior_start: Annotated[
        str, typer.Option(help="spread, fitted, switch, floor, place or standard: where learning the prior starts.")
    ] = "spread",
    learnability: Annotated[
        float, typer.Option(help="Share of the prior that is learned; less for few data sets.")
    ] = 1.0,
    likelihood: Annotated[
        str | None,
        typer.Option(
            help="gaussian, bernoulli, categorical, or heteroscedastic: noise that is predicted for every point, which "
            "neural processes have by default; gaussian for a BNNP."
        ),
    ] = None,
    noise: Annotated[float, typer.Option(help="First guess of the noise, in standardised units of y.")] = 0.1,
    max_noise: Annotated[float | None, typer.Option(help="Upper bound of the learned noise.")] = None,
    steps: Annotated[int, typer.Option(help="Training steps.")] = 2000,
    samples: Annotated[
        int | None, typer.Option("--samples", help="Samples per data set and step; enough of them, where not given.")
    ] = None,
    batch_size: Annotated[int, typer.Option(help="Data sets a step.")] = 5,
    context_share: Annotated[str, typer.Option(help="Range of the share of points given as context.")] = "0.1,0.5",
    learning_rate: Annotated[str, typer.Option(help="First and last learning rate.")] = "3e-3,1e-4",
    clip_norm: Annotated[float, typer.Option(help="Bound on the norm of the gradient.")] = 200.0,
    prior_rate: Annotated[
        float, typer.Option(help="How many times faster the prior learns than the rest; 3 pays with very many tasks.")
    ] = 1.0,
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with empty cells.")] = False,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Learn a prior from related data sets. Stopped runs go on from where they were when called again.

    Example: bnnp train trial.csv --task subject --x time --y conc --out model
    """
    tasks = _training_tasks(table, source, task, x, y, drop_missing)
    kind = likelihood or ("gaussian" if model == "bnnp" else "heteroscedastic")
    chosen, outputs = _likelihood(kind, noise, max_noise, tasks)
    sizes = _numbers(hidden, int, "hidden")
    learner: MetaLearner
    if model == "bnnp":
        learner = BNNP(tasks.in_size, outputs, sizes, activation, prior, chosen, seed=seed)
        learner.set_prior_learnability(learnability)
    elif model in PEERS:
        if learnability != 1:
            raise ValueError(f"learnability: got {learnability}, but a neural process has no prior over weights")
        learner = PEERS[model](tasks.in_size, outputs, sizes, activation, chosen, seed=seed)
    else:
        raise ValueError(f"model: got {model!r}, expected bnnp, {', '.join(PEERS)}")
    objective = bnnp.objectives.PPAVI if model == "bnnp" else bnnp.objectives.NPML
    probe = write_atomically(out / "model.bnnp.tmp", b"")  # a folder one cannot write to is found out now, not later
    probe.unlink()
    result = bnnp.fit(
        learner,
        tasks,
        objective=None if samples is None else objective(samples),
        steps=steps,
        batch_size=batch_size,
        context_share=_pair(context_share, "context-share"),
        learning_rate=_pair(learning_rate, "learning-rate"),
        clip_norm=clip_norm,
        prior_rate=prior_rate,
        prior_start=prior_start,
        checkpoint=out,
        progress=not quiet,
        seed=seed,
    )
    files = [learner.save(out / "model.bnnp"), result.history.save(out / "history.json")]
    files.append(plots.save_figure(plots.history(result.history), out / "history.png"))
    if tasks.in_size == 1 and isinstance(learner, BNNP):
        files.append(_prior_figure(learner, tasks, out / "prior.png", seed))
    print_files(files)
    if result.interrupted:
        Console(stderr=True).print("stopped; the same command goes on from here")
        raise typer.Exit(INTERRUPTED)


@app.command()
def predict(
    model: Annotated[str, typer.Argument(help="A model file, the folder of `bnnp train`, or zoo:NAME.")],
    context: Annotated[Path, typer.Option(help="Known points of the new data set, CSV or Parquet.")],
    targets: Annotated[Path, typer.Option(help="Inputs to predict at, CSV or Parquet.")],
    out: Out = Path("predictions.csv"),
    task: TaskColumn = None,
    samples: PosteriorSamples = None,
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


@app.command()
def infer(
    model: Annotated[str, typer.Argument(help="Whose prior to use: a model file, a folder of `bnnp train`, zoo:NAME.")],
    context: Annotated[Path, typer.Option(help="Known points of the new data set, CSV or Parquet.")],
    targets: Annotated[
        Path | None, typer.Option(help="Inputs to predict at, CSV or Parquet; the context's own where not given.")
    ] = None,
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "nuts",
    out: Out = Path("predictions.csv"),
    task: TaskColumn = None,
    samples: Samples = 1000,
    steps: Annotated[int | None, typer.Option(help="Of the optimiser, or of each chain after its warm-up.")] = None,
    warmup: Annotated[int, typer.Option(help="Steps of each chain that are thrown away.")] = 500,
    chains: Annotated[int, typer.Option(help="Markov chains.")] = 4,
    quiet: Quiet = False,
    seed: Seed = 0,
) -> None:
    """Predict new points under a model's prior, by another inference than the model's own. All data sets run at once.

    What speaks against the result, as chains that have not mixed, is told on standard error.

    Example: bnnp infer model --context known.csv --targets wanted.csv --method hmc --out predictions.csv
    """
    loaded = _with_prior(bnnp.load(model), "infer")
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


@dataclass(frozen=True)
class _Question:
    """A data set's known points, the inputs to predict at, and their rows in the table of all targets."""

    x: np.ndarray
    y: np.ndarray
    x_new: np.ndarray
    rows: np.ndarray


def _questions(
    model: MetaLearner, context: Path, targets: Path, task: str | None
) -> tuple[pd.DataFrame, list[_Question]]:
    """The table of targets, and what is asked of each data set."""
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
    wanted: pd.DataFrame,
    questions: Sequence[_Question],
    posteriors: Sequence[Posterior],
) -> Path:
    columns: dict[str, np.ndarray] = {}
    for question, posterior in zip(questions, posteriors, strict=True):
        predictive = posterior.predict(question.x_new)
        for column, values in _prediction_columns(predictive, model.columns.y_names).items():
            columns.setdefault(column, np.empty(len(wanted)))[question.rows] = values
    result = pd.concat([wanted.reset_index(drop=True), pd.DataFrame(columns)], axis=1)
    return write_atomically(out, result.to_csv(index=False))


@app.command()
def evaluate(
    model: Annotated[str, typer.Argument(help="A model file, the folder of `bnnp train`, or zoo:NAME.")],
    table: Annotated[Path | None, typer.Argument(help="Test data sets as a long table, CSV or Parquet.")] = None,
    task: TaskColumn = None,
    role: Annotated[
        str | None, typer.Option(help="Column that says context or target; else splits are random.")
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", help=f"Instead of a table: {', '.join([*TESTS, *SOURCES])}.")
    ] = None,
    context_share: Annotated[str, typer.Option(help="Range of the share of points given as context.")] = "0.1,0.5",
    noise: Annotated[float | None, typer.Option(help="Score at this noise instead of the learned one.")] = None,
    samples: PosteriorSamples = None,
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="Leave out rows with empty cells.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Write the scores as JSON.")] = None,
    seed: Seed = 0,
) -> None:
    """Score a model's predictions: log densities, errors, calibration.

    Example: bnnp evaluate zoo:sawtooth --source sawtooth-tests
    """
    loaded = bnnp.load(model)
    tasks: TaskSource
    if source is not None:
        tasks = source_named(source, {**TESTS, **SOURCES})
    elif table is None or task is None:
        raise ValueError("evaluate: give a table with --task, or --source")
    else:
        missing = "drop" if drop_missing else "error"
        tasks = from_table(
            table, task=task, x=loaded.columns.x_names, y=loaded.columns.y_names, role=role, missing=missing
        )
    scores = bnnp.evaluate(
        loaded, tasks, num_samples=samples, context_share=_pair(context_share, "context-share"), noise=noise, seed=seed
    )
    print_table(scores.table(), f"{model}, {len(scores.per_task)} data sets")
    if out is not None:
        print_files([write_atomically(out, scores.to_json())])


@app.command()
def sample(
    model: Annotated[str, typer.Argument(help="A model file, the folder of `bnnp train`, or zoo:NAME.")],
    num: Annotated[int, typer.Option(help="How many functions.")] = 10,
    low: Annotated[float | None, typer.Option(help="Where the grid of one input starts.")] = None,
    high: Annotated[float | None, typer.Option(help="Where it ends; about the range of training by default.")] = None,
    points: Annotated[int, typer.Option(help="Points of the grid.")] = 200,
    at: Annotated[Path | None, typer.Option(help="Inputs from a table, for models of several inputs.")] = None,
    out: Out = Path("prior_functions.csv"),
    seed: Seed = 0,
) -> None:
    """Draw functions from a model's prior: a table of values and, for one input, a figure beside it.

    Example: bnnp sample zoo:sawtooth --num 10 --low -2 --high 2 --out prior.csv
    """
    loaded = _with_prior(bnnp.load(model), "sample")
    x_names, y_names = loaded.columns.x_names, loaded.columns.y_names
    if at is None and len(x_names) > 1:
        raise ValueError(f"sample: this model has the inputs {', '.join(x_names)}; give a table of them with --at")
    centre, spread = float(loaded.columns.x_shift[0]), float(loaded.columns.x_scale[0])
    low = centre - 2 * spread if low is None else low
    high = centre + 2 * spread if high is None else high
    if at is None and not (low < high and points >= 2):
        raise ValueError(
            f"sample: got low={low}, high={high}, points={points}; expected low < high and 2 points or more"
        )
    if at is not None:
        frame = read_table(at)
        check_columns(frame, x_names)
        x = numeric_columns(frame, x_names).to_numpy()
    else:
        x = np.linspace(low, high, points)[:, None]
    drawn = loaded.prior.functions(num, seed)
    parts = []
    for index, function in enumerate(drawn):
        values = function(x)
        names = y_names if values.shape[1] == len(y_names) else [f"class_{c}" for c in range(values.shape[1])]
        parts.append(
            pd.DataFrame(
                {"sample": index, **dict(zip(x_names, x.T, strict=True)), **dict(zip(names, values.T, strict=True))}
            )
        )
    files = [write_atomically(out, pd.concat(parts).to_csv(index=False))]
    if len(x_names) == 1 and at is None:
        figure = plots.functions(drawn, x[:, 0], labels=(x_names[0], y_names[0]))
        files.append(plots.save_figure(figure, out.with_suffix(".png")))
    print_files(files)


@app.command()
def experiment(
    name: Annotated[str, typer.Argument(help="An experiment of the paper: a folder of experiments/.")],
    scale: Annotated[
        str, typer.Option(help=f"{', '.join(SCALES)}: seconds, up to half an hour, the paper's own.")
    ] = "small",
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; experiments/NAME/results/SCALE if not given.")
    ] = None,
    workers: Annotated[int, typer.Option(help="Runs side by side.")] = 1,
    backend: Annotated[str, typer.Option(help="Of joblib: loky here, dask or ray on a cluster.")] = "loky",
    only: Annotated[str, typer.Option(help="Only runs whose name contains this.")] = "",
    quiet: Quiet = False,
) -> None:
    """Do an experiment of the paper again. Runs that are done already are not repeated; a stopped one goes on.

    Example: bnnp experiment posterior_quality --scale small --workers 2
    """
    outcome = perform(name, scale, out, workers=workers, backend=backend, only=only, progress=not quiet)
    for file in outcome.files:
        if file.suffix == ".md":
            print(file.read_text())
    print_files(outcome.files)
    for run, reason in outcome.failed.items():
        print(f"failed: {run}: {reason}", file=sys.stderr)
    if outcome.failed:
        raise typer.Exit(1)


@app.command()
def bench(
    setting: Annotated[list[str] | None, typer.Option("--setting", help="a, b, c or d; repeat for several.")] = None,
    plain: Annotated[
        Path | None, typer.Option(help="benchmarks/plain.py of the repository, to measure it too.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Repeats, of which the median counts.")] = 9,
    out: Annotated[Path | None, typer.Option("--out", help="Write the measurements here, as JSON.")] = None,
    quiet: Quiet = False,
) -> None:
    """Time a training step and a prediction in four settings, beside the limit of this machine.

    Example: bnnp bench --setting a --setting b
    """
    names = setting or list(benchmark.SETTINGS)
    measurements = benchmark.run(names, plain, repeats, progress=not quiet)
    for name in names:
        typer.echo(benchmark.SETTINGS[name].describe())
    print_table(benchmark.table(measurements), f"Medians of {repeats} repeats, {torch.get_num_threads()} threads")
    if out is not None:
        print_files([write_atomically(out, benchmark.to_json(measurements))])


@app.command()
def info(model: Annotated[str, typer.Argument(help="A model file, the folder of `bnnp train`, or zoo:NAME.")]) -> None:
    """What a model file holds.

    Example: bnnp info zoo:sawtooth
    """
    loaded = bnnp.load(model)
    rows: dict[str, object] = {
        "inputs": ", ".join(loaded.columns.x_names),
        "outputs": ", ".join(loaded.columns.y_names),
        "model": type(loaded).__name__,
        **loaded.summary(),
        "likelihood": type(loaded.likelihood).__name__,
        "parameters": sum(p.numel() for p in loaded.parameters()),
        "precision": str(loaded.dtype).removeprefix("torch."),
    }
    if isinstance(loaded.likelihood, Gaussian):
        noise = (loaded.likelihood.noise * loaded.columns.y_scale).tolist()
        rows["noise (standard deviation)"] = ", ".join(f"{value:.4g}" for value in noise)
    table = Table(title=model, show_header=False)
    for name, value in rows.items():
        table.add_row(name, str(value))
    Console().print(table)


# --- from the command line's words to the library's objects -----------------------------------------------------------


def _training_tasks(
    table: Path | None, source: str | None, task: str | None, x: list[str] | None, y: list[str] | None, drop: bool
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
    return from_table(table, task=task, x=x, y=y, missing="drop" if drop else "error")


def _with_prior(model: Any, verb: str) -> Any:
    if model.weight_prior is None:
        name = type(model).__name__
        raise ValueError(f"{verb}: {name} models have no prior over weights; give a BNNP, or use `bnnp predict`")
    return model


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


def _numbers(text: str, kind: type, name: str) -> list:
    try:
        return [kind(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ValueError(f"--{name}: got {text!r}, expected numbers with commas between them") from None


def _pair(text: str, name: str) -> tuple[float, float]:
    values = _numbers(text, float, name)
    if len(values) not in (1, 2):
        raise ValueError(f"--{name}: got {text!r}, expected one number or two, as in 0.1,0.5")
    return values[0], values[-1]


# --- results for people ----------------------------------------------------------------------------------------------


def _prediction_columns(predictive: bnnp.Predictive, y_names: list[str]) -> dict[str, np.ndarray]:
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


def _prior_figure(model: BNNP, tasks: TaskSource, path: Path, seed: int) -> Path:
    x = torch.cat([task.x for task in tasks.draw(20, torch.Generator().manual_seed(seed))])
    grid = np.linspace(float(x.min()), float(x.max()), 300)
    labels = (model.columns.x_names[0], model.columns.y_names[0])
    return plots.save_figure(plots.functions(model.prior.functions(10, seed), grid, labels=labels), path)


def print_table(frame: pd.DataFrame, title: str) -> None:
    print(title)
    print(frame.to_string(float_format=lambda value: f"{value:.3f}"))


def print_files(files: list[Path]) -> None:
    for file in files:
        print(f"wrote {file}")
