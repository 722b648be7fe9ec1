"""`bnnp compare`: left-out data sets, predicted by a BNNP and by simple methods."""

from pathlib import Path
from typing import Annotated

import typer

from bnnp import plots
from bnnp.cli.messages import say
from bnnp.cli.options import DATA, TRAINING, Decimal, Delimiter, DropMissing, Out, Quiet, Seed, SkipSmall
from bnnp.cli.reading import Reading
from bnnp.cli.words import folder_for_results, print_files, print_table
from bnnp.comparison.run import compare_tasks
from bnnp.tasks.tables import write_table

Table = Annotated[Path, typer.Argument(help="A long table, CSV, TSV, Excel or Parquet: one row per point.")]
Task = Annotated[str, typer.Option("--task", help="Column that names the data set of each row.", rich_help_panel=DATA)]
X = Annotated[list[str], typer.Option("--x", help="Input column; repeat --x for several.", rich_help_panel=DATA)]
Y = Annotated[str, typer.Option("--y", help="Output column, of numbers.", rich_help_panel=DATA)]
Folds = Annotated[
    int, typer.Option(help="How many groups of data sets are made; each is left out once.", rich_help_panel=TRAINING)
]
Minutes = Annotated[
    float, typer.Option(help="Minutes per group after which no new round of training begins.", rich_help_panel=TRAINING)
]


def compare(
    table: Table,
    task: Task,
    x: X,
    y: Y,
    drop_missing: DropMissing = False,
    skip_small: SkipSmall = False,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    folds: Folds = 4,
    minutes: Minutes = 10.0,
    out: Out = Path("comparison"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Compare a BNNP with simple methods on data sets that are left out, a third of whose points is known.

    The others are a population curve, a hierarchical Gaussian process and a linear mixed model. Scores are in units of
    the outputs' standard deviation, with standard errors over data sets.

    Example: bnnp compare trial.csv --task subject --x time --y conc --out comparison
    """
    reading = Reading(delimiter, decimal, drop_missing, skip_small)
    tasks = reading.tasks(table, task=task, x=x, y=[y], min_points=2 if skip_small else 1)
    with folder_for_results(out):
        found = compare_tasks(tasks, folds=folds, minutes=minutes, progress=not quiet, seed=seed)
    print_table(found.table(), f"{table}, {found.per_task['task'].nunique()} data sets")
    for gain in found.differences().to_dict("records"):
        word = "is real" if gain["real"] else "may be chance"
        say(f"gain on {gain['than']} in {gain['in']}: {gain['gain']:+.3f} (standard error {gain['error']:.3f}), {word}")
    files = [write_table(out / "scores.csv", found.per_task), write_table(out / "gains.csv", found.differences())]
    print_files([*files, plots.save_figure(found.figure(), out / "comparison.png")])
