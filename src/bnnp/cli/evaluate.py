"""`bnnp evaluate`: score a model's predictions."""

from pathlib import Path
from typing import Annotated

import typer

import bnnp
from bnnp._core.files import write_atomically
from bnnp.cli.options import (
    DATA,
    INFERENCE,
    ContextShare,
    DropMissing,
    ModelFile,
    OutJson,
    PosteriorSamples,
    Quiet,
    Seed,
    TaskColumn,
)
from bnnp.cli.words import pair, print_files, print_table
from bnnp.models import MetaLearner
from bnnp.tasks.datasets.registry import SOURCES, TESTS, source_named
from bnnp.tasks.source import TaskSource
from bnnp.tasks.tables import from_table

Table = Annotated[Path | None, typer.Argument(help="Test data sets as a long table, CSV or Parquet.")]
Role = Annotated[
    str | None,
    typer.Option("--role", help="Column that says context or target; else splits are random.", rich_help_panel=DATA),
]
TestSource = Annotated[
    str | None,
    typer.Option("--source", help=f"Instead of a table: {', '.join([*TESTS, *SOURCES])}.", rich_help_panel=DATA),
]
Noise = Annotated[
    float | None,
    typer.Option("--noise", help="Score at this noise instead of the learned one.", rich_help_panel=INFERENCE),
]


def evaluate(
    model: ModelFile,
    table: Table = None,
    task: TaskColumn = None,
    role: Role = None,
    source: TestSource = None,
    context_share: ContextShare = "0.1,0.5",
    drop_missing: DropMissing = False,
    noise: Noise = None,
    samples: PosteriorSamples = None,
    out: OutJson = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Score a model's predictions: log densities, errors, calibration.

    Example: bnnp evaluate zoo:sawtooth --source sawtooth-tests
    """
    loaded = bnnp.load(model)
    tasks = _test_tasks(loaded, table, source, task, role, drop_missing)
    share = pair(context_share, "context-share")
    choices = {"num_samples": samples, "context_share": share, "noise": noise, "seed": seed}
    scores = bnnp.evaluate(loaded, tasks, **choices, progress=not quiet)
    print_table(scores.table(), f"{model}, {len(scores.per_task)} data sets")
    if out is not None:
        print_files([write_atomically(out, scores.to_json())])


def _test_tasks(
    model: MetaLearner, table: Path | None, source: str | None, task: str | None, role: str | None, drop: bool
) -> TaskSource:
    if source is not None:
        return source_named(source, {**TESTS, **SOURCES})
    if table is None or task is None:
        raise ValueError("evaluate: give a table with --task, or --source")
    missing = "drop" if drop else "error"
    x, y = model.columns.x_names, model.columns.y_names
    return from_table(table, task=task, x=x, y=y, role=role, missing=missing)
