"""`bnnp app`: the page on which one clicks points and watches the posterior."""

from pathlib import Path
from typing import Annotated

import typer

import bnnp
from bnnp._core.files import write_atomically
from bnnp._core.optional import optional_module
from bnnp.app import Gallery
from bnnp.app import export as exported
from bnnp.cli.evaluate import TestSource, data_sets
from bnnp.cli.given import refuse
from bnnp.cli.options import DATA, OUTPUT, Decimal, Delimiter, DropMissing, SkipSmall, TaskColumn
from bnnp.cli.reading import READING, Reading
from bnnp.cli.words import print_files, with_prior
from bnnp.tasks.tables import check_out

SERVER = ("starlette", "uvicorn", "websockets")

Models = Annotated[
    list[str],
    typer.Argument(
        help="Model files, folders of `bnnp train`, or zoo:NAME. The page switches between several, as between "
        "models trained with different learnable shares of the prior."
    ),
]
Table = Annotated[
    Path | None, typer.Option(help="Data sets to show, as a long table, as in `bnnp train`.", rich_help_panel=DATA)
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes a free one.")]
ExportFile = Annotated[
    Path | None,
    typer.Option("--export", help="Write the page as one file that needs no Python, and end.", rich_help_panel=OUTPUT),
]


def app(
    context: typer.Context,
    models: Models,
    table: Table = None,
    task: TaskColumn = None,
    source: TestSource = None,
    drop_missing: DropMissing = False,
    skip_small: SkipSmall = False,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    port: Port = 8000,
    export: ExportFile = None,
) -> None:
    """Click points and watch the posterior in a browser, with the server on this machine alone.

    Example: bnnp app zoo:sawtooth --source sawtooth
    """
    if table is None:
        refuse(context, ("task", *READING), "no --table", "no table is read")
    else:
        refuse(context, ("source",), "--table", "both say which data sets to show")
    if export is not None:
        refuse(context, ("port",), "--export", "nothing is served")
        check_out(export, (".html", ".htm"), [table], "export")
    loaded = {name: with_prior(bnnp.load(name), "app") for name in models}
    reading = Reading(delimiter, decimal, drop_missing, skip_small)
    wanted = table is not None or source is not None
    tasks = data_sets("app", loaded[models[0]], table, source, task, None, reading) if wanted else None
    gallery = Gallery(loaded, tasks)
    if export is not None:
        print_files([write_atomically(export, exported(gallery))])
    else:
        _serve(gallery, port)


def _serve(gallery: Gallery, port: int) -> None:
    for name in SERVER:
        optional_module(name, "bnnp app", "app")
    from bnnp.app.server import serve

    serve(gallery, port)
