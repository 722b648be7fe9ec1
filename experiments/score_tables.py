"""Scores as cells of Markdown tables."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Estimate = tuple[float, float]
"""A mean and its standard error; not a number where there is none."""
CONVERGENCE = ("R-hat", "ESS", "acceptance", "slope", "doubtful")
"""The header of `convergence`."""


def mean_and_error(scores: Mapping[str, Any] | None, name: str) -> tuple[float, float]:
    """Of a score by its name without the number of samples; not a number where there is none."""
    for key, value in (scores or {"scores": {}})["scores"].items():
        if key.split("@")[0] == name:
            mean, error = value["mean"], value["standard_error"]
            return math.nan if mean is None else mean, math.nan if error is None else error
    return math.nan, math.nan


def samples_of(scores: Mapping[str, Any]) -> str:
    """Of how many samples log densities are estimated, as the names of the scores have it; "exact" if of none."""
    return next(key for key in scores["scores"] if "@" in key).split("@")[1]


def over(values: Sequence[float]) -> Estimate:
    """The mean of repeats, as of seeds, and its standard error, for which two are needed."""
    if not len(values):
        return math.nan, math.nan
    numbers = np.array(values, dtype=float)
    error = numbers.std(ddof=1) / math.sqrt(len(numbers)) if len(numbers) > 1 else math.nan
    return float(numbers.mean()), float(error)


def over_seeds(scores: Sequence[Mapping[str, Any]], name: str) -> Estimate:
    """Of a score that each seed has: the mean over seeds with its standard error.

    With one seed the standard error is that over its data sets.
    """
    return mean_and_error(scores[0], name) if len(scores) == 1 else over([mean_and_error(s, name)[0] for s in scores])


def text_of(estimate: Estimate, digits: int = 2) -> str:
    mean, error = estimate
    if math.isnan(mean):
        return ""
    return f"{mean:.{digits}f}" if math.isnan(error) else f"{mean:.{digits}f} ± {error:.{digits}f}"


def convergence(found: Mapping[str, Any] | None) -> list[str]:
    """Cells of what `common.diagnosed` found; empty where a method has no such number."""
    if found is None:
        return [""] * len(CONVERGENCE)
    numbers = [found["rhat"], found["ess"], found["acceptance"]]
    forms = ("{:.2f}", "{:.0f}", "{:.2f}")
    texts = ["" if n is None else form.format(n) for n, form in zip(numbers, forms, strict=True)]
    return [*texts, slope_text(found), f"{found['doubtful']} of {found['sets']}"]


def slope_text(found: Mapping[str, Any]) -> str:
    """How much a bound still rose, in nats per thousand steps."""
    return "" if found["slope"] is None else f"{found['slope']:.2g} ± {found['slope_error']:.2g}"


def cell(scores: Mapping[str, Any] | None, name: str, digits: int = 2) -> str:
    """A mean with its standard error, for a table; empty where there is none."""
    return text_of(mean_and_error(scores, name), digits)


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"
