"""`bnnp app`: the page on which one clicks points and watches the posterior."""

from pathlib import Path
from typing import Annotated

import typer

import bnnp
from bnnp._core.files import write_atomically
from bnnp.app import Gallery, export
from bnnp.cli.evaluate import TestSource, data_sets
from bnnp.cli.options import DATA, OUTPUT, DropMissing, TaskColumn
from bnnp.cli.reading import Reading
from bnnp.cli.words import print_files, with_prior
from bnnp.tasks.datasets.optional import optional_module

SERVER = ("starlette", "uvicorn", "websockets")

Models = Annotated[
    list[str],
    typer.Argument(
        help="Model files, folders of `bnnp train`, or zoo:NAME. The page switches between several, as between "
        "models trained with different learnable shares of the prior."
    ),
]
Table = Annotated[
    Path | None, typer.Option(help="Data sets to show, as a long table, CSV or Parquet.", rich_help_panel=DATA)
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes a free one.")]
ExportFile = Annotated[
    Path | None,
    typer.Option("--export", help="Write the page as one file that needs no Python, and end.", rich_help_panel=OUTPUT),
]


def app(
    models: Models,
    table: Table = None,
    task: TaskColumn = None,
    source: TestSource = None,
    drop_missing: DropMissing = False,
    port: Port = 8000,
    out: ExportFile = None,
) -> None:
    """Click points and watch the posterior in a browser, with the server on this machine alone.

    Example: bnnp app zoo:sawtooth --source sawtooth
    """
    loaded = {name: with_prior(bnnp.load(name), "app") for name in models}
    reading = Reading(None, None, drop_missing, False)
    wanted = table is not None or source is not None
    tasks = data_sets("app", loaded[models[0]], table, source, task, None, reading) if wanted else None
    gallery = Gallery(loaded, tasks)
    if out is not None:
        print_files([write_atomically(out, export(gallery))])
        return
    for name in SERVER:
        optional_module(name, "bnnp app", "app")
    from bnnp.app.server import serve

    serve(gallery, port)
