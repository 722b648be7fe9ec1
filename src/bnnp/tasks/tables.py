"""A user's long table: one row per point, one column that says which data set the point belongs to."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from bnnp.tasks.source import Collection, collect
from bnnp.tasks.task import Split, Task

if TYPE_CHECKING:
    import pandas as pd

CONTEXT, TARGET = "context", "target"


def from_table(
    table: "pd.DataFrame | str | Path",
    *,
    task: str,
    x: str | Sequence[str],
    y: str | Sequence[str],
    role: str | None = None,
    missing: str = "error",
    standardise: bool = True,
    min_points: int = 2,
) -> Collection:
    """Make tasks from a long table, or from a CSV or Parquet file of one.

    Args:
        table: A data frame, or the path of a file.
        task: The column that names the data set of each row.
        x: Input columns.
        y: Output columns.
        role: A column that says "context" or "target" for each row, for test sets with a fixed split.
        missing: "error" refuses empty cells and NaN, "drop" leaves out their rows.
        standardise: Whether training shifts and scales all columns. Predictions are in the table's units.
        min_points: The fewest points that a data set may have.

    Returns:
        One task per name in the column `task`, sorted by name.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If a column is missing, a cell is not a finite number, or a data set is too small.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"subject": ["a", "a", "b", "b"], "time": [0, 1, 0, 2], "conc": [0.5, 0.3, 0.7, 0.2]})
        >>> trial = bnnp.tasks.from_table(table, task="subject", x="time", y="conc")
        >>> [(task.name, len(task)) for task in trial]
        [('a', 2), ('b', 2)]
    """
    frame = read_table(table)
    x_names, y_names = _names(x), _names(y)
    kept = _kept_rows(frame, [task, *x_names, *y_names, *([role] if role else [])], missing)
    numbers = numeric_columns(frame.iloc[kept], [*x_names, *y_names], kept).to_numpy()
    names, groups = _grouped(np.asarray(_column(frame, task), dtype=object)[kept])
    tasks = [
        Task.of(numbers[rows, : len(x_names)], numbers[rows, len(x_names) :], name)
        for name, rows in zip(names, groups, strict=True)
    ]
    roles = np.asarray(_column(frame, role), dtype=object)[kept] if role else None
    splits = [] if roles is None else [_split(t, roles[rows]) for t, rows in zip(tasks, groups, strict=True)]
    return collect(
        tasks, x_names=x_names, y_names=y_names, standardise=standardise, min_points=min_points, splits=splits
    )


def _kept_rows(frame: "pd.DataFrame", used: list[str], missing: str) -> np.ndarray:
    """Indices of the rows to use.

    Args:
        frame: The table.
        used: The columns that it must have, the column of task names first.
        missing: "error" or "drop".
    """
    if missing not in ("error", "drop"):
        raise ValueError(f"missing: got {missing!r}, expected 'error' or 'drop'")
    check_columns(frame, used)
    if len(set(used)) != len(used):
        raise ValueError(f"columns: got {', '.join(used)}, expected each column once")
    if len(frame) == 0:
        raise ValueError("table: got no rows, expected at least one data set; is the file empty?")
    empty = np.stack([np.asarray(_column(frame, name).isna()) for name in used])
    kept = np.flatnonzero(~empty.any(0)) if missing == "drop" else np.arange(len(frame))
    if len(kept) == 0:
        raise ValueError("table: got an empty cell in every row, expected at least one complete row")
    if empty[0, kept].any():
        row = _row_number(kept, empty[0, kept])
        raise ValueError(
            f"column {used[0]!r}: got an empty cell at row {row}, expected a name of a task; "
            "give missing='drop' to leave such rows out"
        )
    return kept


def read_table(table: "pd.DataFrame | str | Path") -> "pd.DataFrame":
    """A data frame as it is, or the one in a CSV or Parquet file."""
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return table
    if not isinstance(table, str | os.PathLike):
        raise ValueError(f"table: got {type(table).__name__}, expected a pandas data frame or the path of a file")
    path = Path(table)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        return pd.read_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else pd.read_csv(path)
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path}: got an empty file, expected a table with a header") from None
    except (pd.errors.ParserError, UnicodeDecodeError, OSError, ValueError) as error:
        raise ValueError(f"{path}: expected a CSV or Parquet table ({error})") from None


def check_columns(frame: "pd.DataFrame", names: Sequence[str]) -> None:
    """Raise `ValueError` unless every name is the name of exactly one column."""
    there = list(frame.columns)
    for name in names:
        if name not in there:
            raise ValueError(
                f"column {name!r}: there is no such column; the table has {', '.join(str(other) for other in there)}"
            )
        if there.count(name) > 1:
            raise ValueError(
                f"column {name!r}: got {there.count(name)} columns of this name, expected one; rename them"
            )


def numeric_columns(frame: "pd.DataFrame", names: Sequence[str], rows: np.ndarray | None = None) -> "pd.DataFrame":
    """These columns as finite numbers.

    Args:
        frame: The table.
        names: Columns to take.
        rows: Places of the frame's rows in the user's table, where some have been left out.

    Raises:
        ValueError: If a cell is not a finite number; the message names the first such cell.
    """
    import pandas as pd

    places = np.arange(len(frame)) if rows is None else rows
    columns = {}
    for name in names:
        column = _column(frame, name)
        if column.dtype.kind in "mMc":
            raise ValueError(
                f"column {name!r}: got {column.dtype}, expected real numbers; turn times into numbers first, "
                "as in hours since the first one"
            )
        values = pd.Series(pd.to_numeric(column, errors="coerce")).to_numpy(dtype=np.float64, na_value=np.nan)
        bad = ~np.isfinite(values)
        if bad.any():
            cell = column.iloc[int(bad.argmax())]
            cure = "give missing='drop' to leave such rows out" if pd.isna(cell) else "correct or remove this row"
            raise ValueError(
                f"column {name!r}: got {cell!r} at row {_row_number(places, bad)} ({int(bad.sum())} such cells), "
                f"expected finite numbers; {cure}"
            )
        columns[name] = values
    return pd.DataFrame(columns, index=frame.index)


def _column(frame: "pd.DataFrame", name: str) -> "pd.Series":
    import pandas as pd

    return pd.Series(frame[name])


def _row_number(places: np.ndarray, flags: np.ndarray) -> int:
    """Number of the first flagged row as an editor shows it, the header being row 1."""
    return int(places[flags.argmax()]) + 2


def _names(columns: str | Sequence[str]) -> list[str]:
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        raise ValueError("x and y: got no columns, expected at least one of each")
    return names


def _grouped(labels: np.ndarray) -> tuple[list[str], list[np.ndarray]]:
    """The names that occur, sorted, and the rows of each in their order."""
    import pandas as pd

    codes, names = pd.factorize(labels, sort=True)
    groups = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
    return [str(name) for name in names], groups


def _split(task: Task, roles: np.ndarray) -> Split:
    unknown = sorted(str(role) for role in set(roles) - {CONTEXT, TARGET})
    if unknown:
        raise ValueError(f"task {task.name!r}: got the role {unknown[0]!r}, expected 'context' or 'target'")
    is_context = torch.from_numpy(np.equal(roles, CONTEXT).astype(bool))
    if bool(is_context.all()):
        raise ValueError(f"task {task.name!r}: got no target, expected at least one point to predict")
    return Split(task.take(is_context), task.take(~is_context))
