"""Turns the words of a command line into the library's objects, and results into printed lines."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bnnp._core.files import write_atomically
from bnnp.models import MetaLearner

if TYPE_CHECKING:
    import pandas as pd


def numbers(text: str, kind: type, name: str) -> list:
    """Numbers with commas between them, as `64,64`.

    Args:
        text: What the user gave.
        kind: Type of the numbers, as `int`.
        name: The option's name, for the error.

    Raises:
        ValueError: If a part is not a number.
    """
    try:
        return [kind(part) for part in text.split(",")] if text.strip() else []
    except ValueError:
        raise ValueError(f"--{name}: got {text!r}, expected numbers with commas between them") from None


def pair(text: str, name: str) -> tuple[float, float]:
    """Two numbers, as `0.1,0.5`; one number stands for both.

    Args:
        text: What the user gave.
        name: The option's name, for the error.

    Raises:
        ValueError: If there are not one or two numbers.
    """
    values = numbers(text, float, name)
    if len(values) not in (1, 2):
        raise ValueError(f"--{name}: got {text!r}, expected one number or two, as in 0.1,0.5")
    return values[0], values[-1]


def with_prior(model: MetaLearner, verb: str) -> Any:
    """The model, if it has a prior over weights.

    Raises:
        ValueError: If it has none.
    """
    if model.weight_prior is None:
        name = type(model).__name__
        raise ValueError(f"{verb}: {name} models have no prior over weights; give a BNNP, or use `bnnp predict`")
    return model


@contextmanager
def folder_for_results(folder: Path) -> Iterator[None]:
    """Find out now whether a folder can be written to; remove it again if nothing is written to it after all."""
    new = [place for place in (folder, *folder.parents) if not place.exists()]
    write_atomically(folder / "model.bnnp.tmp", b"").unlink()
    try:
        yield
    finally:
        with suppress(OSError):  # not empty
            for place in new:
                place.rmdir()


def print_table(frame: "pd.DataFrame", title: str) -> None:
    """A table of scores, three digits after the point."""
    print(title)
    print(frame.to_string(float_format=lambda value: f"{value:.3f}"))


def print_files(files: list[Path]) -> None:
    """One line per file that was written."""
    for file in files:
        print(f"wrote {file}")
