"""A user's long table: one row a point, one column that says which data set the point belongs to."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from bnnp.tasks.source import Collection, collect
from bnnp.tasks.task import Split, Task

CONTEXT, TARGET = "context", "target"


def from_table(
    table: pd.DataFrame | str | Path,
    *,
    task: str,
    x: str | Sequence[str],
    y: str | Sequence[str],
    role: str | None = None,
    missing: str = "error",
    standardise: bool = True,
    min_points: int = 2,
) -> Collection:
    """Tasks from a long table, or a CSV or Parquet file of one.

    task: the column that names the data set of each row;  x, y: input and output columns.
    role: a column that says "context" or "target" for each row, for test sets with a fixed split.
    missing: "error" refuses empty cells and NaN, "drop" leaves out their rows.
    standardise: whether training shifts and scales all columns; predictions come back in the table's units.

    Example:
        tasks = bnnp.tasks.from_table("trial.csv", task="subject", x=["time"], y=["conc"])
    """
    frame = read_table(table)
    x_names, y_names = _names(x), _names(y)
    if missing not in ("error", "drop"):
        raise ValueError(f"missing: got {missing!r}, expected 'error' or 'drop'")
    used = [task, *x_names, *y_names, *([role] if role else [])]
    check_columns(frame, used)
    if len(set(used)) != len(used):
        raise ValueError(f"columns: got {', '.join(used)}, expected each column once")
    frame = frame[used]
    frame = frame.dropna() if missing == "drop" else frame
    if len(frame) == 0:
        raise ValueError("table: got no rows, expected at least one data set; is the file empty?")
    if frame[task].isna().any():
        raise ValueError(
            f"column {task!r}: got an empty cell at row {_first(frame[task].isna())}, expected a name of a task"
        )
    numbers = numeric_columns(frame, [*x_names, *y_names])
    groups = list(numbers.groupby(frame[task], sort=True).indices.items())
    tasks = [_task(str(name), numbers.iloc[rows], x_names, y_names) for name, rows in groups]
    splits = [_split(t, frame[role].iloc[rows]) for t, (_, rows) in zip(tasks, groups, strict=True)] if role else []
    return collect(
        tasks, x_names=x_names, y_names=y_names, standardise=standardise, min_points=min_points, splits=splits
    )


def read_table(table: pd.DataFrame | str | Path) -> pd.DataFrame:
    """A data frame as it is, or the one in a CSV or Parquet file."""
    if isinstance(table, pd.DataFrame):
        return table
    path = Path(table)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        return pd.read_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else pd.read_csv(path)
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path}: got an empty file, expected a table with a header") from None
    except (pd.errors.ParserError, UnicodeDecodeError, OSError, ValueError) as error:
        raise ValueError(f"{path}: expected a CSV or Parquet table ({error})") from None


def check_columns(frame: pd.DataFrame, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in frame.columns]
    if unknown:
        there = ", ".join(str(name) for name in frame.columns)
        raise ValueError(f"column {unknown[0]!r}: there is no such column; the table has {there}")


def numeric_columns(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """These columns as finite numbers, or an error that names the first cell that is not one."""
    columns = {}
    for name in names:
        values = pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        bad = ~np.isfinite(values)
        if bad.any():
            cell = frame[name].iloc[int(bad.argmax())]
            cure = "give missing='drop' to leave such rows out" if pd.isna(cell) else "correct or remove this row"
            raise ValueError(
                f"column {name!r}: got {cell!r} at row {_first(pd.Series(bad))} ({int(bad.sum())} such cells), "
                f"expected finite numbers; {cure}"
            )
        columns[name] = values
    return pd.DataFrame(columns, index=frame.index)


def _first(flags: pd.Series) -> int:
    """Row number as an editor shows it, the header being row 1."""
    return int(np.asarray(flags).argmax()) + 2


def _names(columns: str | Sequence[str]) -> list[str]:
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        raise ValueError("x and y: got no columns, expected at least one of each")
    return names


def _task(name: str, rows: pd.DataFrame, x_names: list[str], y_names: list[str]) -> Task:
    return Task.of(rows[x_names].to_numpy(), rows[y_names].to_numpy(), name)


def _split(task: Task, roles: pd.Series) -> Split:
    unknown = set(roles) - {CONTEXT, TARGET}
    if unknown:
        raise ValueError(
            f"task {task.name!r}: got the role {sorted(map(str, unknown))[0]!r}, expected 'context' or 'target'"
        )
    is_context = (roles == CONTEXT).to_numpy()
    if is_context.all():
        raise ValueError(f"task {task.name!r}: got no target, expected at least one point to predict")
    return Split(task.take(np.flatnonzero(is_context)), task.take(np.flatnonzero(~is_context)))  # pyright: ignore
