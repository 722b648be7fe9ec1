"""The options of `bnnp train` that no other verb has."""

from pathlib import Path
from typing import Annotated

import typer

from bnnp.cli.options import DATA, MODEL, TRAINING
from bnnp.neural_processes import PEERS

Table = Annotated[Path | None, typer.Argument(help="A long table, CSV, TSV, Excel or Parquet: one row per point.")]
XColumns = Annotated[
    list[str] | None, typer.Option("--x", help="Input column; repeat --x for several.", rich_help_panel=DATA)
]
YColumns = Annotated[
    list[str] | None, typer.Option("--y", help="Output column; repeat --y for several.", rich_help_panel=DATA)
]
Kind = Annotated[
    str, typer.Option("--model", help=f"bnnp, or a neural process: {', '.join(PEERS)}.", rich_help_panel=MODEL)
]
Hidden = Annotated[str, typer.Option(help="Units of each hidden layer, separated by commas.", rich_help_panel=MODEL)]
Activation = Annotated[
    str | None,
    typer.Option(
        help="relu, tanh, silu, gelu or softplus. By default left-out data sets choose; with few, silu.",
        rich_help_panel=MODEL,
    ),
]
PriorName = Annotated[
    str, typer.Option("--prior", help="factorised, unitwise, layerwise or networkwise.", rich_help_panel=MODEL)
]
PriorStart = Annotated[
    str | None,
    typer.Option(
        help="empirical, spread or standard: where learning the prior starts. Needs --steps.", rich_help_panel=TRAINING
    ),
]
Learnability = Annotated[
    str,
    typer.Option(
        help="Share of the prior that may be learned (the paper's decimal); auto: as much as the data sets bear.",
        rich_help_panel=MODEL,
    ),
]
LikelihoodName = Annotated[
    str | None,
    typer.Option(
        "--likelihood",
        help="gaussian, bernoulli, categorical, or heteroscedastic: noise that is predicted for every point, which "
        "neural processes have by default; gaussian for a BNNP.",
        rich_help_panel=MODEL,
    ),
]
Noise = Annotated[
    float, typer.Option(help="First guess of the noise, in standardised units of y.", rich_help_panel=MODEL)
]
MaxNoise = Annotated[float | None, typer.Option(help="Upper bound of the learned noise.", rich_help_panel=MODEL)]
Minutes = Annotated[
    float,
    typer.Option(
        help="Minutes after which no new round of training begins. Not together with --steps.", rich_help_panel=TRAINING
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        help="Training steps. By default, data sets that are left out decide how much to train.",
        rich_help_panel=TRAINING,
    ),
]
Samples = Annotated[
    int | None,
    typer.Option(
        "--samples",
        help="Weight samples per data set and step; by default as many as are needed. Needs --steps.",
        rich_help_panel=TRAINING,
    ),
]
BatchSize = Annotated[
    int | None, typer.Option(help="Data sets per step; 5 by default. Needs --steps.", rich_help_panel=TRAINING)
]
LearningRate = Annotated[
    str | None,
    typer.Option(help="First and last learning rate, as 0.003,0.0001. Needs --steps.", rich_help_panel=TRAINING),
]
ClipNorm = Annotated[
    float | None, typer.Option(help="Bound on the norm of the gradient. Needs --steps.", rich_help_panel=TRAINING)
]
PriorLrMultiplier = Annotated[
    float | None,
    typer.Option(
        help="How many times faster the prior learns than the rest; 3 pays with thousands of data sets. Needs --steps.",
        rich_help_panel=TRAINING,
    ),
]
