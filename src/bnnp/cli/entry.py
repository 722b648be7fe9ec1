"""The command `bnnp`: all verbs, in the order in which its help shows them."""

import sys
import warnings
from typing import Annotated

import typer

import bnnp
from bnnp.cli.card import card
from bnnp.cli.compare import compare
from bnnp.cli.evaluate import evaluate
from bnnp.cli.experiment import experiment
from bnnp.cli.info import info
from bnnp.cli.messages import show_error, show_warning
from bnnp.cli.page import app as show_page
from bnnp.cli.predict import infer, predict
from bnnp.cli.sample import sample
from bnnp.cli.showcase import bench, demo
from bnnp.cli.train import train

MISUSE = 2
DEBUG = "--debug"
VERBS = (demo, train, predict, infer, evaluate, compare, sample, show_page, experiment, bench, info, card)

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="rich")
for verb in VERBS:
    app.command(verb.__name__)(verb)


def main() -> None:
    """Entry point. Whatever fails ends with a message and exit code 2; `--debug`, anywhere, shows the traceback."""
    words = sys.argv[1:]
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show_warning
        try:
            app([word for word in words if word != DEBUG])
        except Exception as error:  # no traceback reaches a user who did not ask for it
            show_error(error, debug=DEBUG in words)
            sys.exit(MISUSE)


def _show_version(asked: bool) -> None:
    if asked:
        print(f"bnnp {bnnp.__version__}")
        raise typer.Exit


@app.callback()
def before_all_verbs(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version, and end.")
    ] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error; may stand anywhere.")] = False,
) -> None:
    """Meta-learn a prior over the weights of a neural network, and predict new data sets with it.

    Example: bnnp predict zoo:sawtooth --context known.csv --targets wanted.csv --out predictions.csv
    """
