"""`bnnp sample`: draw functions from a model's prior."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

import bnnp
from bnnp import plots
from bnnp._core.checks import check_count, is_number
from bnnp._core.columns import Columns
from bnnp._core.memory import check_memory
from bnnp._core.progress import ProgressBar
from bnnp.cli.given import refuse
from bnnp.cli.messages import say
from bnnp.cli.options import Decimal, Delimiter, DropMissing, ModelFile, OutTable, Quiet, Seed
from bnnp.cli.reading import Reading
from bnnp.cli.words import print_files, with_prior
from bnnp.likelihoods.base import Likelihood
from bnnp.plots.functions import Drawn
from bnnp.questions import checked_inputs
from bnnp.tasks.tables import check_out, write_table

if TYPE_CHECKING:
    import pandas as pd

INPUTS = "Inputs"
WIDE = 3.0
"""How many times wider than the training outputs a prior's functions may be before the user is told."""
BYTES_A_CELL = 30
"""Memory for a number of the table and for its text."""

Num = Annotated[int, typer.Option(help="How many functions.")]
Low = Annotated[float | None, typer.Option(help="Where the grid of one input starts.", rich_help_panel=INPUTS)]
High = Annotated[
    float | None,
    typer.Option(help="Where it ends; the range of training by default.", rich_help_panel=INPUTS),
]
Points = Annotated[int, typer.Option(help="Points of the grid.", rich_help_panel=INPUTS)]
At = Annotated[
    Path | None, typer.Option(help="Inputs from a table, for models of several inputs.", rich_help_panel=INPUTS)
]


def sample(
    context: typer.Context,
    model: ModelFile,
    num: Num = 10,
    low: Low = None,
    high: High = None,
    points: Points = 200,
    at: At = None,
    drop_missing: DropMissing = False,
    delimiter: Delimiter = None,
    decimal: Decimal = None,
    out: OutTable = Path("prior_functions.csv"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Draw functions from a model's prior: a table of values and, for one input, a figure beside it.

    Example: bnnp sample zoo:sawtooth --num 10 --low -2 --high 2 --out prior.csv
    """
    if at is None:
        refuse(context, ("drop_missing", "delimiter", "decimal"), "no --at", "no table is read")
    else:
        refuse(context, ("low", "high", "points"), "--at", "the inputs are those of the table")
    check_out(out, inputs=[at])
    check_count("--num", num, "whole number of functions, as in 10")
    loaded = with_prior(bnnp.load(model), "sample")
    columns: Columns = loaded.columns
    reading = Reading(delimiter, decimal, drop_missing)
    if at is None:
        _check_size(num, points, columns)
    x = _grid(columns, low, high, points) if at is None else _inputs(at, columns, reading)
    _check_size(num, len(x), columns)
    drawn = loaded.prior.functions(num, seed)
    table = _table(drawn, x, columns, progress=not quiet)
    _tell_of_distance(columns, loaded.likelihood, x, table)
    files = [write_table(out, table)]
    if at is None:
        names = columns.y_names[: loaded.likelihood.y_size(len(columns.y_names))]
        figure = plots.functions(drawn, x[:, 0], labels=(columns.x_names[0], *names))
        files.append(plots.save_figure(figure, out.with_suffix(".png")))
    print_files(files)


def _check_size(num: int, points: int, columns: Columns) -> None:
    """Refuse a table that does not fit into memory."""
    numbers = num * points * (len(columns.x_names) + len(columns.y_names) + 1)
    check_memory("sample", numbers, "draw fewer functions with --num, or at fewer points", BYTES_A_CELL)


def _grid(columns: Columns, low: float | None, high: float | None, points: int) -> np.ndarray:
    """Evenly spaced inputs for a model of one input, by default over the range of the training inputs."""
    names = columns.x_names
    if len(names) > 1:
        raise ValueError(f"sample: this model has the inputs {', '.join(names)}; give a table of them with --at")
    start, end = _range_of_training(columns)
    low, high = start if low is None else low, end if high is None else high
    if not (is_number(low) and is_number(high) and low < high and points >= 2):
        raise ValueError(
            f"sample: got --low {low}, --high {high}, --points {points}; expected low < high and 2 points or more"
        )
    grid = np.linspace(low, high, points)[:, None]
    return columns.inputs(grid).numpy()


def _range_of_training(columns: Columns) -> tuple[float, float]:
    """The range of the one input; about it, where the model's file does not say."""
    if columns.ranges is not None:
        return columns.ranges.x[0]
    centre, spread = float(columns.x_shift[0]), float(columns.x_scale[0])
    return centre - 2 * spread, centre + 2 * spread


def _inputs(path: Path, columns: Columns, reading: Reading) -> np.ndarray:
    table = reading.complete(path, [], columns.tables_names)
    if len(table) == 0:
        raise ValueError(f"{path}: got no rows, expected inputs")
    return checked_inputs(table, columns)[0]


def _table(drawn: Drawn, x: np.ndarray, columns: Columns, *, progress: bool) -> "pd.DataFrame":
    """One row per function and input."""
    import pandas as pd

    inputs = dict(zip(columns.x_names, x.T, strict=True))
    parts = []
    with ProgressBar(len(drawn), enabled=progress, label="functions") as bar:
        for index, function in enumerate(drawn):
            values = function(x)
            several = values.shape[1] != len(columns.y_names)
            names = [f"class_{c}" for c in range(values.shape[1])] if several else columns.y_names
            parts.append(pd.DataFrame({"sample": index, **inputs, **dict(zip(names, values.T, strict=True))}))
            bar.advance()
    return pd.concat(parts, ignore_index=True)


def _tell_of_distance(columns: Columns, likelihood: Likelihood, x: np.ndarray, table: "pd.DataFrame") -> None:
    """Say where inputs or functions are far from the training data."""
    if columns.ranges is None:
        return
    outside = int(columns.outside(x).sum())
    if outside:
        range_of_training = columns.ranges.of_inputs(columns.x_names)
        say(f"warning: {outside} of {len(x)} inputs are outside the range of the training inputs ({range_of_training})")
    if not likelihood.real_valued:
        return
    for name, (low, high) in zip(columns.y_names, columns.ranges.y, strict=True):
        least, most = float(np.min(table[name])), float(np.max(table[name]))
        if most - least > WIDE * (high - low):
            say(
                f"warning: functions of this prior go from {least:.4g} to {most:.4g} in {name!r}, and the training "
                f"data from {low:.4g} to {high:.4g}: the prior is far wider than the data"
            )
