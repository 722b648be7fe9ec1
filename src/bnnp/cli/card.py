"""`bnnp card`: a model card, made from the model's file and what lies beside it."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

import bnnp
from bnnp import plots
from bnnp._core.columns import Columns
from bnnp._core.files import write_atomically
from bnnp.cli.evaluate import TestSource
from bnnp.cli.options import OUTPUT, ModelFile, Quiet, Seed
from bnnp.cli.words import print_files
from bnnp.evaluation.scores import drawn_splits
from bnnp.models import MetaLearner
from bnnp.tasks.datasets.registry import SOURCES, TESTS, source_named
from bnnp.tasks.source import TaskSource
from bnnp.tasks.tables import check_out
from bnnp.tasks.task import Split

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OutCard = Annotated[
    Path | None,
    typer.Option(
        "--out",
        help="Write the card here (.md), and a figure of the prior beside it; else it is printed.",
        rich_help_panel=OUTPUT,
    ),
]
NO_STEPS = (
    "No steps of training everything: the prior is where the data sets suggested in closed form, but for its features, "
    "if rounds that trained them have helped."
)
TESTED = 64
"""Data sets of a source on which the model is scored; a source of fixed test sets has all of them."""
DRAWN = 10
"""Functions in the figure of the prior."""


@dataclass(frozen=True)
class _Test:
    """What the model is scored on.

    source: its name; tasks: the source itself; splits: the data sets, with what is known of them.
    """

    source: str
    tasks: TaskSource
    splits: Sequence[Split]
    seed: int

    @staticmethod
    def of(source: str, seed: int) -> "_Test":
        tasks = source_named(source, {**TESTS, **SOURCES})
        return _Test(source, tasks, drawn_splits(tasks, TESTED, seed), seed)


def card(
    model: ModelFile,
    source: TestSource = None,
    out: OutCard = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """What one should know before using a model: data, network, noise, range, scores, limits. Text in Markdown.

    Example: bnnp card zoo:sawtooth --source sawtooth-tests --out sawtooth.md
    """
    if out is not None:
        check_out(out, (".md",))
    loaded = bnnp.load(model)
    test = None if source is None else _Test.of(source, seed)
    parts = [*_of_the_file(model, loaded), *_training(model), *_scores(model, loaded, test, quiet)]
    written = []
    if out is not None and test is not None and loaded.likelihood.real_valued:
        written.append(plots.save_figure(_calibration(loaded, test), out.with_name(f"{out.stem}_calibration.png")))
        parts.append(f"![Observed against promised coverage of intervals]({written[0].name})")
    if out is not None and loaded.weight_prior is not None and loaded.columns.ranges is not None and _is_curve(loaded):
        written.append(plots.save_figure(_prior_figure(loaded, seed), out.with_name(f"{out.stem}_prior.png")))
        parts += ["## Functions drawn from its prior", f"![Functions drawn from the prior]({written[-1].name})"]
    text = "\n\n".join([*parts, *_limits(loaded)]) + "\n"
    if out is None:
        print(text, end="")
    else:
        print_files([write_atomically(out, text), *written])


def _of_the_file(name: str, model: MetaLearner) -> Iterator[str]:
    """The title, and all that the file itself says."""
    yield f"# {_plain(name)}"
    yield f"Made from the model's file by bnnp {bnnp.__version__}."
    yield "## The model"
    yield _rows({"kind": type(model).__name__, **model._described()})
    yield "## The data it has learned from"
    columns = model.columns
    known = {"data sets are told apart by": columns.task_name or "not recorded"}
    known["outputs"] = "positive, on a logarithmic scale" if columns.positive else "as they are"
    yield _rows(known)
    yield from _ranges(columns)


def _ranges(columns: Columns) -> Iterator[str]:
    if columns.ranges is None:
        yield "The file does not say which range the data had: the model is untrained, or of an earlier version."
        return
    lines = ["| column | is | smallest | largest |", "|---|---|---|---|"]
    for names, kind, pairs in (
        (columns.x_names, "input", columns.ranges.x),
        (columns.y_names, "output", columns.ranges.y),
    ):
        for name, (low, high) in zip(names, pairs, strict=False):
            lines.append(f"| {_plain(name)} | {kind} | {low:.4g} | {high:.4g} |")
    yield "\n".join(lines)


def _training(name: str) -> Iterator[str]:
    """How long it was trained, if the history of its training lies beside it."""
    yield "## Training"
    file = Path(name)
    beside = (file if file.is_dir() else file.parent) / "history.json"
    if name.startswith("zoo:"):
        yield _recipe_of_the_zoo(name)
        return
    try:
        steps = json.loads(beside.read_text())["steps"]
        last = {"steps": f"{steps[-1]['step']:g}", "time": f"{steps[-1]['seconds'] / 60:.1f} minutes"} if steps else {}
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        yield f"Not recorded: there is no `{beside.name}` beside the file that can be read."
        return
    yield _rows(last) if last else NO_STEPS
    report = beside.with_name("report.html")
    if report.exists():
        yield f"What was decided, and how data sets that were left out were predicted: `{report.name}` beside the file."


def _recipe_of_the_zoo(name: str) -> str:
    """How a model that ships was made: its section of the file that lies beside it."""
    sections = files("bnnp.zoo").joinpath("README.md").read_text(encoding="utf-8").split("\n## ")[1:]
    titles_and_texts = (section.split("\n", 1) for section in sections)
    return next(text.strip() for title, text in titles_and_texts if f"`{name}`" in title)


def _scores(name: str, model: MetaLearner, test: _Test | None, quiet: bool) -> Iterator[str]:
    """The scores on a source of data sets, beside those of the exact predictions where the source knows them."""
    yield "## Scores"
    if test is None:
        yield "Not measured for this card. `--source NAME` measures them; for a table, `bnnp evaluate` does."
        return
    found = {"this model": bnnp.evaluate(model, test.splits, seed=test.seed, progress=not quiet)}
    if hasattr(test.tasks, "oracle"):
        oracle = bnnp.Oracle(test.tasks)  # pyright: ignore
        found["the best possible"] = bnnp.evaluate(oracle, test.splits, seed=test.seed)
    command = f"bnnp card {name} --source {test.source} --seed {test.seed}"
    yield f"Means and standard errors over {len(test.splits)} data sets (`{command}`)."
    lines = ["| score | " + " | ".join(found) + " |", "|---" * (1 + len(found)) + "|"]
    for kind in found["this model"].names():
        plain = kind.split("@")[0]
        cells = [f"{scores[plain]:.3f} ± {scores.standard_error(plain):.3f}" for scores in found.values()]
        lines.append(f"| {plain} | " + " | ".join(cells) + " |")
    yield "\n".join(lines)


def _calibration(model: MetaLearner, test: _Test) -> "Figure":
    posts = [model.condition(split.context.x, split.context.y, seed=test.seed) for split in test.splits]
    predicted = [post.predict(split.target.x) for post, split in zip(posts, test.splits, strict=True)]
    truths = [split.target.y.numpy() for split in test.splits]
    return plots.calibration(list(zip(predicted, truths, strict=True)), seed=test.seed)


def _limits(model: MetaLearner) -> Iterator[str]:
    yield "## Limits"
    ranges, columns = model.columns.ranges, model.columns
    inside = "the range above" if ranges is not None else "the range of its training data, which the file does not hold"
    lines = [
        f"Predictions are meant for inputs within {inside}. Outside of it they may be wrong however sure they look.",
        "It expects data sets like those it has learned from. `post.check()` tells of ones that are not.",
    ]
    if columns.encodings is not None:
        lines.append("Categories that training did not have are predicted as unknown ones.")
    if model.weight_prior is None:
        lines.append(
            "It has no prior over weights: it can predict, and neither `bnnp sample` nor `bnnp infer` takes it."
        )
    yield "\n".join(f"- {line}" for line in lines)


def _is_curve(model: MetaLearner) -> bool:
    return len(model.columns.x_names) == 1 and model.likelihood.real_valued


def _prior_figure(model: MetaLearner, seed: int) -> "Figure":
    columns = model.columns
    assert columns.ranges is not None
    grid = np.linspace(*columns.ranges.x[0], 300)
    drawn = model.prior.functions(DRAWN, seed)  # pyright: ignore
    return plots.functions(drawn, grid, labels=(columns.x_names[0], *columns.y_names))


def _rows(values: Mapping[str, object]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {_plain(k)} | {_plain(v)} |" for k, v in values.items())])


def _plain(value: object) -> str:
    """A name of the user's as a cell of a Markdown table: in one line, without marks."""
    text = " ".join(str(value).split()).replace("\\", "\\\\")
    for mark in "|`*_<>[]#":
        text = text.replace(mark, f"\\{mark}")
    return text.replace(os.sep, "/")
