"""`bnnp evaluate`: score a model's predictions."""

from pathlib import Path
from typing import Annotated

import typer

import bnnp
from bnnp._core.files import write_atomically
from bnnp.cli.given import refuse
from bnnp.cli.options import (
    DATA,
    INFERENCE,
    ContextShare,
    Decimal,
    Delimiter,
    DropMissing,
    ModelFile,
    OutJson,
    PosteriorSamples,
    Quiet,
    Seed,
    SkipSmall,
    TaskColumn,
)
from bnnp.cli.reading import READING, Reading
from bnnp.cli.words import pair, print_files, print_table
from bnnp.models import MetaLearner
from bnnp.tasks.datasets.registry import SOURCES, TESTS, source_named
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.tables import check_out

Table = Annotated[Path | None, typer.Argument(help="Test data sets as a long table: CSV, TSV, Excel or Parquet.")]
Role = Annotated[
    str | None,
    typer.Option("--role", help="Column that says context or target; else splits are random.", rich_help_panel=DATA),
]
TestSource = Annotated[
    str | None,
    typer.Option("--source", help=f"Known data by name: {', '.join([*TESTS, *SOURCES])}.", rich_help_panel=DATA),
]
Noise = Annotated[
    float | None,
    typer.Option("--noise", help="Score at this noise instead of the learned one.", rich_help_panel=INFERENCE),
]


def evaluate(
    context: typer.Context,
    model: ModelFile,
    table: Table = None,
    task: TaskColumn = None,
    role: Role = None,
    source: TestSource = None,
    context_share: ContextShare = "0.1,0.5",
    drop_missing: DropMissing = False,
    skip_small: SkipSmall = False,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    noise: Noise = None,
    samples: PosteriorSamples = None,
    out: OutJson = None,
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Score a model's predictions: log densities, errors, calibration.

    Example: bnnp evaluate zoo:sawtooth --source sawtooth-tests
    """
    if source is not None and table is not None:
        raise ValueError("--source: got it beside a table, expected one of them; leave one of them out")
    if source is not None:
        refuse(context, ("task", "role", *READING), "--source", "no table is read")
    if out is not None:
        check_out(out, (".json",), [table])
    loaded = bnnp.load(model)
    reading = Reading(delimiter, decimal, drop_missing, skip_small)
    tasks = data_sets("evaluate", loaded, table, source, task, role, reading)
    if isinstance(tasks, Collection) and tasks.splits:
        refuse(context, ("context_share",), "data with fixed contexts", "contexts are as they are")
    share = pair(context_share, "context-share")
    choices = {"num_samples": samples, "context_share": share, "noise": noise, "seed": seed}
    scores = bnnp.evaluate(loaded, tasks, **choices, progress=not quiet)
    print_table(scores.table(), f"{model}, {len(scores.per_task)} data sets")
    if out is not None:
        print_files([write_atomically(out, scores.to_json())])


def data_sets(
    verb: str,
    model: MetaLearner,
    table: Path | None,
    source: str | None,
    task: str | None,
    role: str | None,
    reading: Reading,
) -> TaskSource:
    """The data sets of a table with the model's columns, or of a source by its name.

    The column that tells the data sets of a table apart is that of training, if none is named.

    Raises:
        ValueError: If there is neither.
    """
    if source is not None:
        return source_named(source, {**TESTS, **SOURCES})
    task = model.columns.task_name if task is None else task
    if table is None or task is None:
        raise ValueError(f"{verb}: got no data, expected a table with --task COLUMN, or --source NAME")
    columns = model.columns
    return reading.tasks(table, task=task, x=columns.tables_names, y=columns.y_names, role=role, like=model)
