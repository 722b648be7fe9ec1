"""A user's long table: one row per point, one column that says which data set the point belongs to."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bnnp._core.cells import as_numbers
from bnnp._core.checks import check_choice, check_flag, check_kind
from bnnp._core.columns import Columns
from bnnp._core.encodings import NUMBER, Encoding, Encodings, classes_of
from bnnp.tasks.named import names_of
from bnnp.tasks.source import Collection, collect
from bnnp.tasks.tables.table import Table, read_table
from bnnp.tasks.task import Split, Task

if TYPE_CHECKING:
    import pandas as pd

CONTEXT, TARGET = "context", "target"


def from_table(
    table: pd.DataFrame | str | Path | Table,
    *,
    task: str,
    x: str | Sequence[str],
    y: str | Sequence[str],
    role: str | None = None,
    missing: str = "fill",
    small: str = "error",
    standardise: bool = True,
    min_points: int = 2,
    positive: bool = False,
    like: Any = None,
) -> Collection:
    """Make tasks from a long table: a data frame, or a file of one.

    Input columns may hold numbers, words (each category that two or more data sets have becomes a number 0 or 1), dates
    or times. One output column may hold words: these are class labels, which become 0, 1, ... in alphabetical order.

    Args:
        table: A data frame of pandas, polars or Arrow, the path of a file, or what `bnnp.tasks.read_table` gives.
        task: The column that names the data set of each row. Names are text, as written.
        x: Input columns.
        y: Output columns.
        role: A column that says "context" or "target" for each row, for test sets with a fixed split.
        missing: "fill" gives an empty cell of an input the mean of its column, with one more input that says so, and
            leaves out rows with an empty output, with a warning; "error" refuses empty cells and NaN; "drop" leaves out
            their rows.
        small: "error" refuses data sets of fewer than `min_points` points, "drop" leaves them out.
        standardise: Whether training shifts and scales all columns. Predictions are in the table's units.
        min_points: The fewest points that a data set may have.
        positive: Whether a model learns the logarithms of the outputs, which must then be positive. Predictions and
            their densities are in the table's units.
        like: A trained model, whose categories, dates and means are taken instead of those of this table.

    Returns:
        One task per name in the column `task`, sorted by name, or by number where all names are numbers.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is missing, a cell is not a finite number (or not positive, if it is to be), or a data
            set is too small.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"subject": ["a", "a", "b", "b"], "time": [0, 1, 0, 2], "conc": [0.5, 0.3, 0.7, 0.2]})
        >>> trial = bnnp.tasks.from_table(table, task="subject", x="time", y="conc")
        >>> [(task.name, len(task)) for task in trial]
        [('a', 2), ('b', 2)]
    """
    whole = read_table(table)
    x_names, y_names, ids = names_of(x, "x"), names_of(y, "y"), [name for name in (task, role) if name is not None]
    check_kind("task", task, str, "the name of a column")
    check_choice("small", small, ("error", "drop"))
    check_flag("positive", positive)
    if len(whole) == 0:
        raise ValueError(f"{whole.where}table: got no rows, expected at least one data set; is the file empty?")
    rows = _complete(whole, ids, x_names, y_names, missing).marked([*x_names, *y_names])
    labels = rows.names(task)
    names, groups = _grouped(labels)
    encodings = _encodings(rows, labels, x_names, y_names, like)
    inputs, outputs = encodings.numbers(rows.column)[0], outputs_of(rows, y_names, encodings)
    if positive:
        rows.refuse_non_positive(y_names)
    roles = None if role is None else rows.names(role)
    kept = [
        (name, group) for name, group in zip(names, groups, strict=True) if small == "error" or len(group) >= min_points
    ]
    if not kept:
        raise ValueError(f"{whole.where}table: got no data set of {min_points} points or more, expected at least one")
    tasks = [Task.of(inputs[at], outputs[at], name) for name, at in kept]
    splits = [] if roles is None else [_split(one, roles[at]) for one, (_, at) in zip(tasks, kept, strict=True)]
    found = collect(
        tasks, x_names=encodings.names, y_names=y_names, standardise=standardise, min_points=min_points, splits=splits
    )
    return replace(found, task_name=task, encodings=encodings, positive=positive)


def outputs_of(table: Table, y_names: Sequence[str], encodings: Encodings | None) -> np.ndarray:
    """The outputs of a table (rows, outputs); labels as 0, 1, ...

    Raises:
        ValueError: If a cell is not a finite number, or a label is none of training.
    """
    if encodings is None or not encodings.classes:
        return table.numbers(y_names)
    return encodings.labels(table.column(y_names[0]))[:, None]


def _complete(table: Table, ids: Sequence[str], x_names: Sequence[str], y_names: Sequence[str], missing: str) -> Table:
    """The rows that are used, by what is to happen with empty cells."""
    check_choice("missing", missing, ("fill", "error", "drop"))
    table.check_columns([*ids, *x_names, *y_names])
    if missing == "drop":
        return table.complete(ids, [*x_names, *y_names], "drop")
    if missing == "error":
        for name in (*x_names, *y_names):
            table.refuse_missing(name)
        return table
    kept = table.complete([], y_names, "drop")
    if len(kept) < len(table):
        warnings.warn(
            f"{table.where}{len(table) - len(kept)} of {len(table)} rows have no {' or '.join(y_names)}; these rows "
            "are left out",
            stacklevel=3,
        )
    return kept


def _encodings(rows: Table, labels: np.ndarray, x_names: list[str], y_names: list[str], like: Any) -> Encodings:
    """The encodings of a trained model, or of a table's own columns."""
    if like is not None:
        return _encodings_of(like, x_names, y_names)
    classes = classes_of(rows.column(y_names[0])) if len(y_names) == 1 else ()
    found = Encodings(tuple(Encoding.of(rows.column(name), labels) for name in x_names), classes)
    twice = [name for name in found.names if [*found.names, *y_names].count(name) > 1]
    if twice:
        raise ValueError(f"{rows.where}columns: got two whose numbers are both named {twice[0]!r}; rename one of them")
    return found


def _encodings_of(model: Any, x_names: list[str], y_names: list[str]) -> Encodings:
    """The encodings of a trained model.

    Raises:
        ValueError: If it is no model, or one of other columns.
    """
    columns = getattr(model, "columns", None)
    if not isinstance(columns, Columns):
        raise ValueError(f"like: got {type(model).__name__}, expected a model that was trained on a table")
    for which, given, trained in (("x", x_names, columns.tables_names), ("y", y_names, columns.y_names)):
        if list(trained) != given:
            raise ValueError(
                f"like: got a model whose {which} is {', '.join(trained)}, expected {', '.join(given)} as asked for"
            )
    return columns.encodings or Encodings(tuple(Encoding(name, NUMBER, (0.0,)) for name in x_names))


def _grouped(labels: np.ndarray) -> tuple[list[str], list[np.ndarray]]:
    """The names that occur, sorted, and the rows of each in their order."""
    import pandas as pd

    codes, found = pd.factorize(labels)
    names = [str(name) for name in found]
    groups = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    order = sorted(range(len(names)), key=_sort_key(names))
    return [names[i] for i in order], [groups[i] for i in order]


def _sort_key(names: Sequence[str]) -> Callable[[int], tuple[float, str]]:
    """Names in the order of the numbers that they are, if all are numbers; else in alphabetical order."""
    values = as_numbers(np.array(names, dtype=object), ".")
    return lambda i: (values[i] if np.isfinite(values).all() else 0.0, names[i])


def _split(task: Task, roles: np.ndarray) -> Split:
    unknown = sorted(str(role) for role in set(roles) - {CONTEXT, TARGET})
    if unknown:
        raise ValueError(f"task {task.name!r}: got the role {unknown[0]!r}, expected 'context' or 'target'")
    is_context = torch.from_numpy(np.equal(roles, CONTEXT).astype(bool))
    if bool(is_context.all()):
        raise ValueError(f"task {task.name!r}: got no target, expected at least one point to predict")
    return Split(task.take(is_context), task.take(~is_context))
