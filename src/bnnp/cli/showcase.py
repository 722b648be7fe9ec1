"""`bnnp demo` and `bnnp bench`: a demonstration of the library, and its speed on this machine."""

from pathlib import Path
from typing import Annotated

import torch
import typer

from bnnp import bench as benchmark
from bnnp import demo as demonstration
from bnnp._core.checks import check_count
from bnnp._core.files import write_atomically
from bnnp.cli.options import TRAINING, Out, OutJson, Quiet, Seed
from bnnp.cli.words import folder_for_results, print_files, print_table
from bnnp.tasks.tables import check_out

MEASUREMENT = "Measurement"

Steps = Annotated[int, typer.Option(help="Training steps; fewer for a quick look.", rich_help_panel=TRAINING)]
SettingNames = Annotated[
    list[str] | None,
    typer.Option(
        "--setting", help=f"{', '.join(benchmark.SETTINGS)}; repeat for several.", rich_help_panel=MEASUREMENT
    ),
]
Plain = Annotated[
    Path | None,
    typer.Option(help="benchmarks/plain.py of the repository, to measure it too.", rich_help_panel=MEASUREMENT),
]
Repeats = Annotated[int, typer.Option(min=1, help="Repeats, of which the median counts.", rich_help_panel=MEASUREMENT)]


def demo(steps: Steps = demonstration.STEPS, out: Out = Path("demo"), seed: Seed = 0, quiet: Quiet = False) -> None:
    """Learn a sawtooth prior in minutes, print its scores beside the best possible, write figures.

    Example: bnnp demo --out demo
    """
    check_count("steps", steps, "whole number, as in 1500")
    with folder_for_results(out):
        result = demonstration.run(out, steps=steps, progress=not quiet, seed=seed)
    print_table(result.table(), "The paper's 16 sawtooth test sets (higher lppd, lower error is better)")
    print_files(result.files)


def bench(
    setting: SettingNames = None,
    plain: Plain = None,
    repeats: Repeats = 9,
    out: OutJson = None,
    quiet: Quiet = False,
) -> None:
    """Time a training step and a prediction in five settings, beside the limit of this machine.

    Example: bnnp bench --setting a --setting b
    """
    if out is not None:
        check_out(out, (".json",))
    names = setting or list(benchmark.SETTINGS)
    measurements = benchmark.run(names, plain, repeats, progress=not quiet)
    for name in names:
        typer.echo(benchmark.SETTINGS[name].describe())
    print_table(benchmark.table(measurements), f"Medians of {repeats} repeats, {torch.get_num_threads()} threads")
    if out is not None:
        print_files([write_atomically(out, benchmark.to_json(measurements))])
