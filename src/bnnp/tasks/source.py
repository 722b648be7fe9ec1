"""Where tasks come from: the contract of a source, and the finite collection of a user's own data sets."""

import abc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.arrays import column_names
from bnnp._core.checks import check_flag, is_whole
from bnnp._core.columns import Columns
from bnnp._core.encodings import Encodings
from bnnp._core.ranges import Ranges
from bnnp._core.shapes import Tensor
from bnnp._core.show import Shown, listed, span
from bnnp.tasks.named import NamedColumns
from bnnp.tasks.task import Split, Task, check_drawn, stacked

TASKS_FOR_RANGES = 32
"""Number of tasks from which the range of an endless source is taken."""
BEYOND_DRAWN = 0.01
"""Share of that range by which it is widened: a few drawn tasks do not reach its ends."""


@dataclass(frozen=True)
class TaskSource(abc.ABC):
    """The base class of everything that tasks can be drawn from.

    Example:
        >>> import torch
        >>> class Lines(bnnp.tasks.TaskSource):
        ...     in_size = out_size = 1
        ...
        ...     def draw(self, count, generator):
        ...         x = np.linspace(-1, 1, 10)
        ...         slopes = torch.randn(count, generator=generator).tolist()
        ...         return [bnnp.tasks.Task.of(x, slope * x) for slope in slopes]
        >>> Lines().draw(2, torch.Generator().manual_seed(0))[0]
        Task(name: '', points: 10, inputs: 1, outputs: 1)
    """

    @property
    @abc.abstractmethod
    def in_size(self) -> int:
        """Number of input columns."""

    @property
    @abc.abstractmethod
    def out_size(self) -> int:
        """Number of output columns."""

    @abc.abstractmethod
    def draw(self, count: int, generator: torch.Generator) -> list[Task]:
        """Draw tasks at random.

        Args:
            count: Number of tasks.
            generator: Source of randomness.

        Returns:
            `count` tasks.
        """

    def drawn(self, count: int, generator: torch.Generator) -> list[Task]:
        """What `draw` gives, once it is checked: sources may be of the user's own making."""
        name, sizes = type(self).__name__, (self.in_size, self.out_size)
        return check_drawn(self.draw(count, generator), f"tasks: {name}.draw({count}, generator)", count, sizes)

    def ranges(self) -> Ranges:
        """The smallest and the largest value of every column: of some drawn tasks, and a little beyond."""
        drawn = self.drawn(TASKS_FOR_RANGES, torch.Generator().manual_seed(0))
        return Ranges.of(*stacked(drawn)).widened(BEYOND_DRAWN)


@dataclass(frozen=True)
class Functions(TaskSource):
    """A source of random functions of one input, each drawn by itself."""

    @property
    def in_size(self) -> int:
        return 1

    @property
    def out_size(self) -> int:
        return 1

    def draw(self, count: int, generator: torch.Generator) -> list[Task]:
        return [self.draw_one(generator) for _ in range(count)]

    @abc.abstractmethod
    def draw_one(self, generator: torch.Generator) -> Task:
        """Draw the points of one function."""


@dataclass(frozen=True, eq=False, repr=False)
class Collection(Shown, NamedColumns, TaskSource):
    """A finite number of data sets. Made by `from_arrays`, `from_table` and the functions for the paper's data.

    Attributes:
        tasks: The data sets.
        x_names: Names of the input columns.
        y_names: Names of the output columns.
        standardise: Whether training shifts and scales every column to mean 0 and variance 1. Predictions are in the
            original units.
        splits: Fixed contexts and targets for tests, one split per task. Empty if tasks are split at random.
        columns: The shifts and scales that training takes. If None, it computes them from the tasks.
        points_share: The share of its points that a drawn task has, chosen anew in every draw; for large tasks.
        task_name: Name of the column that told the tasks apart, if they are from a table.
        positive: Whether outputs are positive numbers, whose logarithms a model works with.
        encodings: How the columns of the table became numbers, if they are from a table.

    Example:
        >>> len(tasks), tasks.in_size, tasks.out_size
        (6, 1, 1)
        >>> tasks[0]
        Task(name: '0', points: 8, inputs: 1, outputs: 1)
        >>> tasks.standardised().standardise
        False
    """

    tasks: tuple[Task, ...]
    x_names: tuple[str, ...]
    y_names: tuple[str, ...]
    standardise: bool = True
    splits: tuple[Split, ...] = ()
    columns: Columns | None = None
    points_share: float = 1.0
    task_name: str | None = None
    positive: bool = False
    encodings: Encodings | None = None

    def __post_init__(self):
        if not 0 < self.points_share <= 1:
            raise ValueError(f"points_share: got {self.points_share}, expected a share above 0, at most 1")

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]

    @property
    def has_labels(self) -> bool:
        """Whether the outputs are words, which became class labels."""
        return self.encodings is not None and bool(self.encodings.classes)

    def draw(self, count: int, generator: torch.Generator) -> list[Task]:
        """Draw tasks at random, as `TaskSource.draw`. None is drawn twice before all are drawn once."""
        rounds = [torch.randperm(len(self.tasks), generator=generator) for _ in range(-(-count // len(self.tasks)))]
        drawn = [self.tasks[int(i)] for i in torch.cat(rounds)[:count]]
        return drawn if self.points_share == 1 else [self._some_points(task, generator) for task in drawn]

    def ranges(self) -> Ranges:
        """The smallest and the largest value of every column."""
        return Ranges.of(*stacked(self.tasks))

    def standardised(self) -> "Collection":
        """The same tasks as the model sees them, with mean about 0 and variance about 1.

        This is for methods that are not trained by `bnnp.fit`, and for log-densities in standardised units. The result
        has the shifts and scales in `columns`: to give errors in the original units, multiply them by
        `columns.y_scale`.
        """
        if not self.standardise:
            return self
        columns = self.columns or Columns.of(*stacked(self.tasks), self.x_names, self.y_names, positive=self.positive)
        tasks = tuple(task.standardised(columns) for task in self.tasks)
        splits = tuple(split.standardised(columns) for split in self.splits)
        return replace(self, tasks=tasks, splits=splits, columns=columns, standardise=False, positive=False)

    def _some_points(self, task: Task, generator: torch.Generator) -> Task:
        wanted = min(len(task), max(2, round(self.points_share * len(task))))
        return task.take(torch.randperm(len(task), generator=generator)[:wanted])

    def _described(self) -> dict[str, object]:
        columns = {"inputs": listed(self.x_names), "outputs": listed(self.y_names)}
        rest = {"standardised in training": self.standardise, "splits": "fixed" if self.splits else "random"}
        return {"tasks": len(self), "points": span(len(task) for task in self.tasks), **columns, **rest}


def from_arrays(
    data_sets: Sequence[tuple[ArrayLike | Tensor, ArrayLike | Tensor]],
    *,
    names: Sequence[str] | None = None,
    standardise: bool = True,
    min_points: int = 2,
) -> Collection:
    """Make tasks from pairs `(x, y)` of arrays or tensors.

    Args:
        data_sets: One pair `(x, y)` per data set, with one row per point. Data sets may differ in size. Columns of data
            frames are put into the order of the first data set.
        names: One name per data set; "0", "1", ... if None.
        standardise: Whether training shifts and scales all columns. Predictions are in the original units.
        min_points: The fewest points that a data set may have. Training needs 2: one to see and one to predict.

    Returns:
        The tasks.

    Raises:
        ValueError: If there are no data sets, names or columns do not match, a data set is too small, or a value is not
            a finite number.

    Example:
        >>> pair = bnnp.tasks.from_arrays([(x, y), (x_new, [0.8, -0.8])], names=["first", "second"])
        >>> [(task.name, len(task)) for task in pair]
        [('first', 3), ('second', 2)]
    """
    pairs = as_pairs(data_sets)
    labels = [str(i) for i in range(len(pairs))] if names is None else _checked_names(names, len(pairs))
    x_names, y_names = column_names(pairs[0][0]), column_names(pairs[0][1])
    tasks = [
        Task.of(x, y, label, x_names=x_names, y_names=y_names) for label, (x, y) in zip(labels, pairs, strict=True)
    ]
    return collect(tasks, x_names=x_names, y_names=y_names, standardise=standardise, min_points=min_points)


def _checked_names(names: Any, count: int) -> list[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f"names: got {names!r}, expected one name per data set, as in ['a', 'b']")
    labels = [str(name) for name in names]
    if len(labels) != count:
        raise ValueError(f"names: got {len(labels)}, expected {count}, one per data set")
    wrong = [label for label in labels if not label.strip() or label != label.strip() or labels.count(label) > 1]
    if wrong:
        raise ValueError(f"names: got {wrong[0]!r}, expected names of their own, not empty, without blanks around them")
    return labels


def as_pairs(data_sets: Any, name: str = "data_sets") -> list[tuple[Any, Any]]:
    """What a user gave as data sets, as pairs `(x, y)`; `name` is the argument's, for errors.

    Raises:
        ValueError: If these are not tasks or pairs, or there are none.
    """
    if isinstance(data_sets, str | dict | Tensor | np.ndarray) or not isinstance(data_sets, Iterable):
        raise ValueError(f"{name}: got {type(data_sets).__name__}, expected a list of pairs (x, y)")
    pairs = [(one.x, one.y) if isinstance(one, Task) else one for one in data_sets]
    if not pairs:
        raise ValueError(f"{name}: got no data sets, expected at least one pair (x, y)")
    for index, pair in enumerate(pairs):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            count = len(pair) if isinstance(pair, tuple | list) else type(pair).__name__
            raise ValueError(f"task {str(index)!r}: got {count} arrays, expected a pair (x, y)")
    return pairs


def collect(
    tasks: Sequence[Task],
    *,
    x_names: Sequence[str] = (),
    y_names: Sequence[str] = (),
    standardise: bool = True,
    min_points: int = 2,
    splits: Sequence[Split] = (),
    columns: Columns | None = None,
    points_share: float = 1.0,
) -> Collection:
    """Make a collection of tasks, checked to have the same columns and enough points.

    Args:
        tasks: The data sets, at least one.
        x_names: Names of the input columns; `x0`, `x1`, ... if empty.
        y_names: Names of the output columns; `y0`, `y1`, ... if empty.
        standardise: Whether training shifts and scales all columns.
        min_points: The fewest points that a task may have.
        splits: Fixed contexts and targets, one split per task, or none.
        columns: The shifts and scales that training takes.
        points_share: The share of its points that a drawn task has.

    Raises:
        ValueError: If the columns of two tasks differ, or a task is too small.
    """
    check_flag("standardise", standardise)
    if not is_whole(min_points) or min_points < 0:
        raise ValueError(f"min_points: got {min_points!r}, expected a whole number of points, as in 2")
    first = tasks[0]
    for task in tasks:
        sizes, expected = (task.x.shape[1], task.y.shape[1]), (first.x.shape[1], first.y.shape[1])
        if sizes != expected:
            raise ValueError(
                f"task {task.name!r}: got {sizes} columns of (x, y), expected {expected} as in the first task"
            )
        if len(task) < min_points:
            raise ValueError(
                f"task {task.name!r}: got {len(task)} point{'s' * (len(task) != 1)}, expected at least {min_points} "
                "(training splits every task into context and target); leave this task out, as "
                "from_table(..., small='drop') does"
            )
    x_names = tuple(x_names) or tuple(f"x{i}" for i in range(first.x.shape[1]))
    y_names = tuple(y_names) or tuple(f"y{i}" for i in range(first.y.shape[1]))
    return Collection(tuple(tasks), x_names, y_names, standardise, tuple(splits), columns, points_share)
