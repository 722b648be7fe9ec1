"""Where tasks come from: the contract of a source, and the finite collection of a user's own data sets."""

import abc
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from numpy.typing import ArrayLike

from bnnp._core.columns import Columns
from bnnp._core.shapes import Tensor
from bnnp._core.show import Shown, listed, span
from bnnp.tasks.task import Split, Task, stacked


@dataclass(frozen=True)
class TaskSource(abc.ABC):
    """Something that tasks can be drawn from."""

    @property
    @abc.abstractmethod
    def in_size(self) -> int: ...

    @property
    @abc.abstractmethod
    def out_size(self) -> int: ...

    @abc.abstractmethod
    def draw(self, count: int, generator: torch.Generator) -> list[Task]:
        """`count` tasks at random."""


@dataclass(frozen=True, eq=False, repr=False)
class Collection(Shown, TaskSource):
    """A finite number of data sets.

    standardise: whether training shifts and scales every column to mean 0 and variance 1 (undone at prediction).
    splits: fixed parts into context and target, one a task, for tests; empty if tasks are split at random.
    columns: the shifts and scales that training takes; where there are none it takes those of the tasks themselves.
    points_share: the share of a task's points that a draw has, chosen anew in every draw; for large tasks.
    """

    tasks: tuple[Task, ...]
    x_names: tuple[str, ...]
    y_names: tuple[str, ...]
    standardise: bool = True
    splits: tuple[Split, ...] = ()
    columns: Columns | None = None
    points_share: float = 1.0

    def __post_init__(self):
        if not 0 < self.points_share <= 1:
            raise ValueError(f"points_share: got {self.points_share}, expected a share above 0, at most 1")

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> Task:
        return self.tasks[index]

    @property
    def in_size(self) -> int:
        return len(self.x_names)

    @property
    def out_size(self) -> int:
        return len(self.y_names)

    def draw(self, count: int, generator: torch.Generator) -> list[Task]:
        """Tasks without repetition as far as there are enough of them."""
        rounds = [torch.randperm(len(self.tasks), generator=generator) for _ in range(-(-count // len(self.tasks)))]
        drawn = [self.tasks[int(i)] for i in torch.cat(rounds)[:count]]
        return drawn if self.points_share == 1 else [self._some_points(task, generator) for task in drawn]

    def standardised(self) -> "Collection":
        """The same tasks as the model sees them, with mean about 0 and variance about 1.

        For methods that are not trained by `bnnp.fit`, and for log-densities in standardised units. `columns`
        stays, so that errors can be given in the original units: multiply them by `columns.y_scale`.
        """
        if not self.standardise:
            return self
        columns = self.columns or Columns.of(*stacked(self.tasks), self.x_names, self.y_names)
        tasks = tuple(task.standardised(columns) for task in self.tasks)
        splits = tuple(split.standardised(columns) for split in self.splits)
        return replace(self, tasks=tasks, splits=splits, columns=columns, standardise=False)

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
    """Tasks from pairs `(x, y)` of arrays or tensors; sizes may differ.

    min_points: the fewest points a task may have; training needs 2, one to see and one to predict.

    Example:
        tasks = bnnp.tasks.from_arrays([(x1, y1), (x2, y2)])
    """
    if len(data_sets) == 0:
        raise ValueError("data_sets: got no data sets, expected at least one pair (x, y)")
    if names is not None and len(names) != len(data_sets):
        raise ValueError(f"names: got {len(names)}, expected {len(data_sets)}, one a data set")
    labels = [str(name) for name in names] if names is not None else [str(i) for i in range(len(data_sets))]
    tasks = []
    for label, pair in zip(labels, data_sets, strict=True):
        if len(pair) != 2:
            raise ValueError(f"task {label!r}: got {len(pair)} arrays, expected a pair (x, y)")
        tasks.append(Task.of(pair[0], pair[1], label))
    return collect(tasks, standardise=standardise, min_points=min_points)


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
    """A collection of tasks that agree in their columns and are large enough."""
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
                "(training splits every task into context and target); leave this task out"
            )
    x_names = tuple(x_names) or tuple(f"x{i}" for i in range(first.x.shape[1]))
    y_names = tuple(y_names) or tuple(f"y{i}" for i in range(first.y.shape[1]))
    return Collection(tuple(tasks), x_names, y_names, standardise, tuple(splits), columns, points_share)
