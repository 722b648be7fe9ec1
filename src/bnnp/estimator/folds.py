"""Cross-validation over data sets that are left out but for some known points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from bnnp._core.cells import Column
from bnnp._core.checks import check_count, is_whole
from bnnp._core.frames import as_pandas, is_frame


class ContextSplit:
    """Folds of data sets, each left out but for a few known rows: what a new subject is like.

    `GroupKFold` gives a left-out data set no known rows, so it scores the prior alone; shuffled `KFold` gives it nearly
    all, so it scores interpolation. It is a splitter of scikit-learn's kind: give it as `cv`.

    Args:
        task: The column that names the data set of each row, or its place in an array.
        context: Known rows of each data set that is left out. One row at least is left to predict.
        folds: Number of folds.
        random_state: Seed of the folds and of the known rows.

    Raises:
        ValueError: If a number is not as described.

    Example:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"who": list("aaabbb"), "time": [0, 1, 2, 0, 1, 2]})
        >>> for train, test in bnnp.ContextSplit("who", context=1, folds=2).split(frame):
        ...     print(len(train), len(test), set(frame["who"][test]))
        4 2 {'a'}
        4 2 {'b'}
    """

    def __init__(self, task: str | int, context: int = 3, folds: int = 5, random_state: int = 0):
        if not is_whole(context) or context < 0:
            raise ValueError(f"context: got {context!r}, expected a whole number of rows, as in 3")
        check_count("folds", folds, "whole number of folds, as in 5")
        if folds < 2:
            raise ValueError(f"folds: got {folds!r}, expected 2 or more")
        if not is_whole(random_state) or random_state < 0:
            raise ValueError(f"random_state: got {random_state!r}, expected a whole number, at least 0")
        self.task, self.context, self.folds, self.random_state = task, context, folds, random_state

    def __repr__(self) -> str:
        return f"ContextSplit({self.task!r}, context={self.context}, folds={self.folds})"

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:  # noqa: N803
        """The number of folds."""
        return self.folds

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:  # noqa: N803
        """The rows to learn from and the rows to predict, fold by fold.

        Args:
            X: Inputs with the column of tasks.
            y: No effect.
            groups: No effect.

        Yields:
            The places of the rows: all of the other data sets with the known ones of those left out, and the rest.

        Raises:
            ValueError: If there are fewer data sets than folds, or no such column.
        """
        random = np.random.default_rng(self.random_state)
        names = self._names(X)
        found = list(dict.fromkeys(names))
        if len(found) < self.folds:
            raise ValueError(f"folds: got {self.folds} for {len(found)} data sets, expected at most as many folds")
        order = [found[place] for place in random.permutation(len(found))]
        chosen = [sorted(order[fold :: self.folds]) for fold in range(self.folds)]
        for left_out in sorted(chosen):
            hidden = np.concatenate([self._hidden(np.flatnonzero(names == name), random) for name in left_out])
            yield np.setdiff1d(np.arange(len(names)), hidden), np.sort(hidden)

    def _hidden(self, rows: np.ndarray, random: np.random.Generator) -> np.ndarray:
        return random.permutation(rows)[min(self.context, len(rows) - 1) :]

    def _names(self, X: Any) -> np.ndarray:  # noqa: N803
        frame = as_pandas(X) if is_frame(X) else _frame_of(X)
        if self.task not in frame:
            raise ValueError(f"task: got {self.task!r}, expected one of {', '.join(map(str, frame.columns))}")
        series = frame.iloc[:, list(frame.columns).index(self.task)]
        return Column.of(series, str(self.task), np.arange(len(frame))).names()


def _frame_of(array: Any) -> pd.DataFrame:
    values = np.asarray(array, dtype=object)
    if values.ndim != 2:
        raise ValueError(f"X: got shape {values.shape}, expected (rows, columns)")
    return pd.DataFrame(values)
