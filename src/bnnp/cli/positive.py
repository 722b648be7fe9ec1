"""Outputs that are positive and skewed: `bnnp train` offers to learn their logarithms."""

import sys

import numpy as np

from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.task import stacked

SKEWED = 1.0
"""Skewness above which outputs are skewed: a normal distribution has 0, an exponential one 2."""


def offer_positive(tasks: TaskSource) -> None:
    """Say that `--positive` may help, if all outputs are positive and skewed, and their logarithms less so."""
    if not isinstance(tasks, Collection) or tasks.positive:
        return
    y = stacked(tasks.tasks)[1].numpy()
    if not (y > 0).all():
        return
    skewness, of_logarithms = _skewness(y), _skewness(np.log(y))
    if (skewness > SKEWED).all() and (np.abs(of_logarithms) < skewness).all():
        names = ", ".join(tasks.y_names)
        print(f"{names}: all values are positive, and skewed; --positive learns their logarithms", file=sys.stderr)


def _skewness(values: np.ndarray) -> np.ndarray:
    centred = values - values.mean(0)
    spread = np.sqrt(np.square(centred).mean(0))
    return ((centred / np.where(spread > 0, spread, 1)) ** 3).mean(0)
