"""Scores as cells of Markdown tables."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def mean_and_error(scores: Mapping[str, Any] | None, name: str) -> tuple[float, float]:
    """Of a score by its name without the number of samples; not a number where there is none."""
    for key, value in (scores or {"scores": {}})["scores"].items():
        if key.split("@")[0] == name:
            mean, error = value["mean"], value["standard_error"]
            return math.nan if mean is None else mean, math.nan if error is None else error
    return math.nan, math.nan


def cell(scores: Mapping[str, Any] | None, name: str, digits: int = 2) -> str:
    """A mean with its standard error, for a table; empty where there is none."""
    mean, error = mean_and_error(scores, name)
    if math.isnan(mean):
        return ""
    return f"{mean:.{digits}f}" if math.isnan(error) else f"{mean:.{digits}f} ± {error:.{digits}f}"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"
