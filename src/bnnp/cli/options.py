"""Options that several verbs have, and the groups in which the help shows all options."""

from pathlib import Path
from typing import Annotated

import typer

from bnnp.tasks.datasets.registry import SOURCES

DATA, MODEL, TRAINING, INFERENCE, OUTPUT = "Data", "Model", "Training", "Inference", "Output and randomness"

ModelFile = Annotated[str, typer.Argument(help="A model file, the folder of `bnnp train`, or zoo:NAME.")]

TaskColumn = Annotated[
    str | None, typer.Option("--task", help="Column that names the data set of each row.", rich_help_panel=DATA)
]
Source = Annotated[
    str | None,
    typer.Option("--source", help=f"Known data instead of a table: {', '.join(SOURCES)}.", rich_help_panel=DATA),
]
DropMissing = Annotated[
    bool, typer.Option("--drop-missing", help="Leave out rows with empty cells.", rich_help_panel=DATA)
]
SkipSmall = Annotated[
    bool,
    typer.Option("--skip-small", help="Leave out data sets with fewer than 2 points.", rich_help_panel=DATA),
]
Positive = Annotated[
    bool,
    typer.Option(
        "--positive",
        help="Learn the logarithms of the outputs, which must be positive. Predictions are in the table's units.",
        rich_help_panel=DATA,
    ),
]
SkipUnknown = Annotated[
    bool,
    typer.Option("--skip-small", help="Leave out data sets without known points.", rich_help_panel=DATA),
]
Delimiter = Annotated[
    str | None,
    typer.Option(
        "--delimiter", help="What separates columns in text files; found out by default.", rich_help_panel=DATA
    ),
]
Decimal = Annotated[
    str | None,
    typer.Option("--decimal", help="Decimal mark in text files; found out by default.", rich_help_panel=DATA),
]
Context = Annotated[
    Path, typer.Option(help="Known points of the new data set: CSV, TSV, Excel or Parquet.", rich_help_panel=DATA)
]
ContextShare = Annotated[
    str,
    typer.Option(
        help="How much of each data set counts as known: the smallest and the largest share.",
        rich_help_panel=DATA,
    ),
]

PosteriorSamples = Annotated[
    int | None,
    typer.Option(
        "--samples", help="Weight samples; by default as many as predictions need.", rich_help_panel=INFERENCE
    ),
]

Out = Annotated[Path, typer.Option("--out", help="Folder to write to.", rich_help_panel=OUTPUT)]
OutTable = Annotated[
    Path, typer.Option("--out", help="Where to write: .csv, .tsv or .parquet.", rich_help_panel=OUTPUT)
]
OutJson = Annotated[Path | None, typer.Option("--out", help="Write the numbers here, as JSON.", rich_help_panel=OUTPUT)]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.", rich_help_panel=OUTPUT)]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress bar.", rich_help_panel=OUTPUT)]
