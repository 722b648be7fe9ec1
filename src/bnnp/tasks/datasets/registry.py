"""All sources of tasks by name, for the command line."""

from collections.abc import Callable
from functools import partial

from bnnp.tasks.curves import curves
from bnnp.tasks.datasets.abalone import abalone
from bnnp.tasks.datasets.cells import paul15
from bnnp.tasks.datasets.climate import era5
from bnnp.tasks.datasets.ecg import ecg
from bnnp.tasks.datasets.images import mnist
from bnnp.tasks.datasets.paper_tests import sawtooth_tests
from bnnp.tasks.source import TaskSource
from bnnp.tasks.synthetic import SOURCES as SYNTHETIC

SOURCES: dict[str, Callable[[], TaskSource]] = {
    **SYNTHETIC,
    "curves": curves,
    "ecg": ecg,
    "mnist": mnist,
    "abalone": abalone,
    "paul15": paul15,
    "era5": era5,
}
"""Sources to train on."""

TESTS: dict[str, Callable[[], TaskSource]] = {
    "sawtooth-tests": sawtooth_tests,
    "mnist-tests": partial(mnist, "test"),
    "abalone-tests": partial(abalone, "test"),
    "paul15-tests": partial(paul15, "test"),
    "era5-tests": partial(era5, "test"),
}
"""Fixed test sets, and the parts of data that are for tests."""


def source_named(name: str, known: dict[str, Callable[[], TaskSource]]) -> TaskSource:
    """The source of this name among those that are known."""
    if name not in known:
        raise ValueError(f"source: got {name!r}, expected one of {', '.join(known)}")
    return known[name]()
