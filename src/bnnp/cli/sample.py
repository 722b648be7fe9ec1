"""`bnnp sample`: draw functions from a model's prior."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import bnnp
from bnnp import plots
from bnnp._core.columns import Columns
from bnnp._core.files import write_atomically
from bnnp._core.memory import check_memory
from bnnp._core.progress import ProgressBar
from bnnp.cli.options import ModelFile, Out, Quiet, Seed
from bnnp.cli.words import print_files, with_prior
from bnnp.plots.functions import Drawn
from bnnp.tasks.tables import check_columns, numeric_columns, read_table

INPUTS = "Inputs"
BYTES_A_CELL = 30
"""Memory for a number of the table and for its text."""

Num = Annotated[int, typer.Option(help="How many functions.")]
Low = Annotated[float | None, typer.Option(help="Where the grid of one input starts.", rich_help_panel=INPUTS)]
High = Annotated[
    float | None,
    typer.Option(help="Where it ends; about the range of training by default.", rich_help_panel=INPUTS),
]
Points = Annotated[int, typer.Option(help="Points of the grid.", rich_help_panel=INPUTS)]
At = Annotated[
    Path | None, typer.Option(help="Inputs from a table, for models of several inputs.", rich_help_panel=INPUTS)
]


def sample(
    model: ModelFile,
    num: Num = 10,
    low: Low = None,
    high: High = None,
    points: Points = 200,
    at: At = None,
    out: Out = Path("prior_functions.csv"),
    seed: Seed = 0,
    quiet: Quiet = False,
) -> None:
    """Draw functions from a model's prior: a table of values and, for one input, a figure beside it.

    Example: bnnp sample zoo:sawtooth --num 10 --low -2 --high 2 --out prior.csv
    """
    loaded = with_prior(bnnp.load(model), "sample")
    columns: Columns = loaded.columns
    x = _grid(columns, low, high, points) if at is None else _inputs(at, columns.x_names)
    numbers = num * len(x) * (len(columns.x_names) + len(columns.y_names) + 1)
    check_memory("sample", numbers, "draw fewer functions with --num, or at fewer points", BYTES_A_CELL)
    drawn = loaded.prior.functions(num, seed)
    files = [write_atomically(out, _table(drawn, x, columns, progress=not quiet))]
    if at is None:
        figure = plots.functions(drawn, x[:, 0], labels=(columns.x_names[0], columns.y_names[0]))
        files.append(plots.save_figure(figure, out.with_suffix(".png")))
    print_files(files)


def _grid(columns: Columns, low: float | None, high: float | None, points: int) -> np.ndarray:
    """Evenly spaced inputs for a model of one input, by default within two standard deviations of the training's."""
    names = columns.x_names
    if len(names) > 1:
        raise ValueError(f"sample: this model has the inputs {', '.join(names)}; give a table of them with --at")
    centre, spread = float(columns.x_shift[0]), float(columns.x_scale[0])
    low = centre - 2 * spread if low is None else low
    high = centre + 2 * spread if high is None else high
    if not (low < high and points >= 2):
        raise ValueError(
            f"sample: got low={low}, high={high}, points={points}; expected low < high and 2 points or more"
        )
    return np.linspace(low, high, points)[:, None]


def _inputs(path: Path, names: list[str]) -> np.ndarray:
    frame = read_table(path)
    check_columns(frame, names)
    return numeric_columns(frame, names).to_numpy()


def _table(drawn: Drawn, x: np.ndarray, columns: Columns, *, progress: bool) -> str:
    """One row per function and input, as CSV."""
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
    return pd.concat(parts).to_csv(index=False)
