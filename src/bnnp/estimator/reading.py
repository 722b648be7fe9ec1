"""What estimators are given, frames and arrays of every kind, as one table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length, validate_data

from bnnp._core.frames import as_pandas, is_frame
from bnnp.tasks.tables import Table, read_table

OUTPUT = "y"
"""What an output without a name is called."""
TASK = "task"
"""What the one data set is named in a table without a column of tasks."""


def as_table(estimator: BaseEstimator, X: Any, y: Any = None, *, task: Any, reset: bool, classes: bool) -> Table:  # noqa: N803
    """Inputs, tasks and outputs as one table, with the column of tasks first and that of outputs last.

    Args:
        estimator: The estimator, which keeps names and number of the inputs at its first sight of them.
        X: Inputs with the column of tasks, if there is one.
        y: Outputs; None if there are none.
        task: Name of the column of tasks, or its place in an array; None if all rows are one data set.
        reset: Whether this is the estimator's first sight.
        classes: Whether outputs are class labels.

    Raises:
        ValueError: If these are not data that the estimator can take.
    """
    _check_task(task, is_frame(X))
    if is_frame(X):
        validate_data(estimator, X, skip_check_array=True, reset=reset)
        frame = as_pandas(X).reset_index(drop=True)
        frame.columns = [str(name) for name in frame.columns]
        if y is not None:
            check_consistent_length(frame, y)
            y = np.asarray(y, dtype=object if classes else None)
            y = y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y
    else:
        frame, y = _of_arrays(estimator, X, y, task, reset, classes)
    columns = {_task_name(task): np.zeros(len(frame), dtype=int)} if task is None else {}
    table = pd.concat([pd.DataFrame(columns, index=frame.index), frame], axis=1)
    return read_table(table if y is None else table.assign(**{output_name(frame): _outputs(y, classes)}))


def _of_arrays(estimator: Any, X: Any, y: Any, task: Any, reset: bool, classes: bool) -> tuple[pd.DataFrame, Any]:  # noqa: N803
    checks = {"dtype": "numeric" if task is None else None, "ensure_all_finite": "allow-nan" if task is None else False}
    if y is None:
        X = validate_data(estimator, X, reset=reset, **checks)  # noqa: N806
    else:
        X, y = validate_data(estimator, X, y, reset=reset, y_numeric=not classes, **checks)  # noqa: N806
    names = [f"x{i}" for i in range(X.shape[1])] if reset else getattr(estimator, "feature_names_in_", None)
    names = [f"x{i}" for i in range(X.shape[1])] if names is None else [str(name) for name in names]
    return pd.DataFrame(X, columns=names), y


def _check_task(task: Any, frame: bool) -> None:
    """Refuse a column of tasks that cannot be one."""
    kind, example = (str, "'subject'") if frame else ((str, int, np.integer), "0")
    if task is not None and (isinstance(task, bool) or not isinstance(task, kind)):
        raise ValueError(f"task: got {task!r}, expected the column that names the data set of each row, as {example}")


def _outputs(y: Any, classes: bool) -> Any:
    return pd.Categorical([str(label) for label in y]) if classes else np.asarray(y)


def _task_name(task: Any) -> str:
    return TASK if task is None else f"x{task}" if isinstance(task, int | np.integer) else str(task)


def output_name(frame: pd.DataFrame) -> str:
    """A name for the output that no input has."""
    name = OUTPUT
    while name in frame:
        name += "_"
    return name
