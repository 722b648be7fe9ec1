"""What a user of the command line reads on standard error: errors, warnings and notes, in the words of this door."""

import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

from bnnp._core.show import Few
from bnnp.numerics.solve import FactorisationError
from bnnp.training import TrainingDiverged

EXPECTED = (ValueError, OSError, ImportError, TrainingDiverged, FactorisationError)
"""Errors whose message says what to do."""
FLAGS = {
    "num_samples": "--samples",
    "context_share": "--context-share",
    "batch_size": "--batch-size",
    "learning_rate": "--learning-rate",
    "clip_norm": "--clip-norm",
    "prior_lr_multiplier": "--prior-lr-multiplier",
    "prior_start": "--prior-start",
    "max_noise": "--max-noise",
}
"""Arguments of the library that have another name here, wherever they stand in a message."""
FIRST_WORDS = [
    "activation",
    "backend",
    "chains",
    "decimal",
    "delimiter",
    "export",
    "folds",
    "hidden",
    "learnability",
    "likelihood",
    "method",
    "minutes",
    "model",
    "noise",
    "out",
    "plain",
    "prior",
    "repeats",
    "scale",
    "seed",
    "setting",
    "source",
    "steps",
    "task",
    "thin",
    "warmup",
    "workers",
]
"""Arguments that are flags of the same name, where a message begins with them."""
PHRASES = {
    r"missing='drop'": "--drop-missing",
    r"positive=True": "--positive",
    r"from_table\(\.\.\., small='drop'\)": "--skip-small",
    r"bnnp\.tasks\.read_table\(path, (delimiter|decimal)=\.\.\.\)": r"--\1",
    r"bnnp\.tasks\.read_table\(path, (delimiter|decimal)=('.*?')\)": r"--\1 \2",
    r"as in \(([^ ()]+), ([^ ()]+)\)": r"as in \1,\2",
    r"^share: ": "--learnability: ",
    r"expected bnnp\.Categorical\(\d+\)": "expected --likelihood categorical",
    r"as in bnnp\.Gaussian\((\S+)\), or a larger min_pseudo_noise": r"as in bnnp train --noise \1",
}
"""Cures of the library, and what they are called here."""


def in_flags(message: str) -> str:
    """A message of the library in the words of the command line."""
    for pattern, words in PHRASES.items():
        message = re.sub(pattern, words, message)
    message = re.sub(rf"\b({'|'.join(FLAGS)})\b", lambda found: FLAGS[found[0]], message)
    return re.sub(rf"^({'|'.join(FIRST_WORDS)}): (?!there is no|this is a|not a)", r"--\1: ", message)  # no file's name


def show_error(error: Exception, *, debug: bool) -> None:
    """Say what went wrong; with `debug` also where.

    Args:
        error: What was raised.
        debug: Whether to print the traceback.
    """
    from rich.console import Console

    if debug:
        traceback.print_exception(error)
    message = in_flags(str(error))
    if isinstance(error, MemoryError) or "can't allocate memory" in message:  # torch raises a RuntimeError
        message = (
            "this needs more memory than the machine has; ask for fewer samples, points or chains, or less at once"
        )
    elif not isinstance(error, EXPECTED):
        message = f"{type(error).__name__}: {message}; this should not happen: --debug shows where it did"
    Console(stderr=True, highlight=False, soft_wrap=True).print(f"error: {message}", style="bold red", markup=False)


def show_warning(message: Any, *_: Any) -> None:
    """A warning of the library in one line; takes the place of `warnings.showwarning`."""
    say(f"warning: {in_flags(str(message))}")


def say(line: str) -> None:
    """A line on standard error."""
    print(line, file=sys.stderr)


def note_left_out(what: str, names: Sequence[str] | Few) -> None:
    """Say what was left out, if anything was."""
    few = names if isinstance(names, Few) else Few.of(names)
    if few.count:
        say(f"left out: {few.count} {what} ({few})")
