"""A task (one data set), its split into context and target, and padded batches of both."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from numpy.typing import ArrayLike

from bnnp._core.arrays import as_columns
from bnnp._core.columns import Columns
from bnnp._core.random import uniform
from bnnp._core.shapes import Bool, Float, Tensor
from bnnp._core.show import Shown, span


@dataclass(frozen=True, eq=False, repr=False)
class Task(Shown):
    """One data set. Use `Task.of` to make one from arrays; it checks them.

    Attributes:
        x: Inputs (points, inputs), all finite.
        y: Outputs (points, outputs), all finite.
        name: Name of the data set, for messages.

    Example:
        >>> bnnp.tasks.Task.of([0.0, 0.5, 1.0], [1.0, 2.0, 3.0], name="patient 1")
        Task(name: 'patient 1', points: 3, inputs: 1, outputs: 1)
    """

    x: Float[Tensor, "points x"]
    y: Float[Tensor, "points y"]
    name: str = ""

    @staticmethod
    def of(
        x: ArrayLike | Tensor,
        y: ArrayLike | Tensor,
        name: str = "",
        *,
        x_names: Sequence[str] = (),
        y_names: Sequence[str] = (),
    ) -> "Task":
        """Make a task from arrays or tensors.

        Args:
            x: Inputs, one row per point. A vector becomes one column.
            y: Outputs, one row per point. A vector becomes one column.
            name: Name of the data set, for messages.
            x_names: The order of the input columns, if `x` is a data frame.
            y_names: The order of the output columns, if `y` is a data frame.

        Returns:
            The task, in float64.

        Raises:
            ValueError: If `x` and `y` differ in their number of points, or hold anything but finite numbers.
        """
        where = f" of task {name!r}" if name else ""
        inputs = as_columns(x, f"x{where}", names=x_names)
        outputs = as_columns(y, f"y{where}", names=y_names)
        if len(inputs) != len(outputs):
            raise ValueError(f"x and y{where}: got {len(inputs)} and {len(outputs)} points, expected as many of each")
        return Task(inputs, outputs, name)

    def __len__(self) -> int:
        return self.x.shape[0]

    def take(self, rows: Tensor | slice) -> "Task":
        """The points that `rows` selects, by index, by a mask or by a slice."""
        return Task(self.x[rows], self.y[rows], self.name)

    def standardised(self, columns: Columns) -> "Task":
        """The same points as a model sees them."""
        return Task(columns.standardise_x(self.x), columns.standardise_y(self.y), self.name)

    def _described(self) -> dict[str, object]:
        return {"name": repr(self.name), "points": len(self), "inputs": self.x.shape[1], "outputs": self.y.shape[1]}


def check_drawn(drawn: Any, where: str, count: int, sizes: tuple[int, int]) -> list[Task]:
    """Tasks that a source has drawn, if they are what it must give.

    Args:
        drawn: What the source gave.
        where: The source, for the error.
        count: How many tasks it was asked for.
        sizes: Its number of input and output columns.

    Raises:
        ValueError: If these are not as many tasks of finite numbers, in as many columns.
    """
    if not isinstance(drawn, Sequence) or len(drawn) != count or not all(isinstance(task, Task) for task in drawn):
        got = f"{len(drawn)} objects" if isinstance(drawn, Sequence) else type(drawn).__name__
        raise ValueError(f"{where}: got {got}, expected a list of {count} tasks, as bnnp.tasks.Task.of(x, y)")
    for task in drawn:
        found = tuple(part.shape[1] if part.ndim == 2 else -1 for part in (task.x, task.y))
        finite = bool(torch.isfinite(task.x).all()) and bool(torch.isfinite(task.y).all())
        if found != sizes or len(task.x) != len(task.y) or len(task) == 0 or not finite:
            raise ValueError(
                f"{where}: got {task!r}, expected {sizes[0]} inputs and {sizes[1]} outputs of one point or more, all "
                "finite"
            )
    return list(drawn)


def stacked(tasks: Sequence[Task]) -> tuple[Float[Tensor, "points x"], Float[Tensor, "points y"]]:
    """Inputs and outputs of all points of all tasks."""
    return torch.cat([task.x for task in tasks]), torch.cat([task.y for task in tasks])


@dataclass(frozen=True, eq=False, repr=False)
class Split(Shown):
    """A task in two parts.

    Attributes:
        context: The points that the model sees.
        target: The points that it must predict.

    Example:
        >>> context, target = bnnp.tasks.Task.of(x, y), bnnp.tasks.Task.of(x_new, [0.8, -0.8])
        >>> bnnp.tasks.Split(context, target)
        Split(name: '', context: 3 points, target: 2 points)
    """

    context: Task
    target: Task

    def standardised(self, columns: Columns) -> "Split":
        """The same points as a model sees them."""
        return Split(self.context.standardised(columns), self.target.standardised(columns))

    def _described(self) -> dict[str, object]:
        parts = {"context": f"{len(self.context)} points", "target": f"{len(self.target)} points"}
        return {"name": repr(self.target.name), **parts}


@dataclass(frozen=True, eq=False, repr=False)
class TaskBatch(Shown):
    """Tasks of unequal size as padded tensors. Where `mask` is false there is no point and values have no effect.

    Attributes:
        x: Inputs (tasks, points, inputs).
        y: Outputs (tasks, points, outputs).
        mask: Whether there is a point (tasks, points).

    Example:
        >>> batch = bnnp.tasks.TaskBatch.of([bnnp.tasks.Task.of(x, y), bnnp.tasks.Task.of(x_new, [0.8, -0.8])])
        >>> batch
        TaskBatch(tasks: 2, points: 2 to 3, inputs: 1, outputs: 1)
        >>> batch.mask.tolist()
        [[True, True, True], [True, True, False]]
    """

    x: Float[Tensor, "tasks points x"]
    y: Float[Tensor, "tasks points y"]
    mask: Bool[Tensor, "tasks points"]

    @staticmethod
    def of(
        tasks: Sequence[Task], dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
    ) -> "TaskBatch":
        """Pad tasks to the size of the longest one.

        Where there is no point, the values are those of a point of the data, so that they are as near to the data as
        these themselves: zeros may be so far from them, as from times in seconds, that a network overflows there.

        Args:
            tasks: At least one task; all have the same columns.
            dtype: Type of the numbers.
            device: Where the tensors lie.

        Returns:
            The batch, with the tasks in their order.
        """
        longest = max(tasks, key=len)
        x = torch.zeros(len(tasks), len(longest), longest.x.shape[1], dtype=dtype)
        y = torch.zeros(len(tasks), len(longest), longest.y.shape[1], dtype=dtype)
        mask = torch.zeros(len(tasks), len(longest), dtype=torch.bool)
        for i, task in enumerate(tasks):
            like = task if len(task) else longest
            x[i], y[i] = like.x[:1], like.y[:1]
            x[i, : len(task)] = task.x
            y[i, : len(task)] = task.y
            mask[i, : len(task)] = True
        return TaskBatch(x.to(device), y.to(device), mask.to(device))

    @cached_property
    def is_full(self) -> bool:
        """Whether there is a point everywhere, so that the mask can be ignored."""
        return bool(self.mask.all())

    def shuffled(self, generator: torch.Generator) -> "TaskBatch":
        """The points of every task in a random order; each task has its own order. Absent points stay last."""
        keys = uniform(self.mask.shape, generator).to(self.mask.device)
        order = (keys + (~self.mask).to(keys)).argsort(1)
        x, y = (values.gather(1, order.unsqueeze(-1).expand(values.shape)) for values in (self.x, self.y))
        return TaskBatch(x, y, self.mask.gather(1, order))

    def __len__(self) -> int:
        return self.x.shape[0]

    def _described(self) -> dict[str, object]:
        sizes = {"inputs": self.x.shape[2], "outputs": self.y.shape[2]}
        return {"tasks": len(self), "points": span(self.mask.sum(1).tolist()), **sizes}


@dataclass(frozen=True, eq=False, repr=False)
class SplitBatch(Shown):
    """Contexts and targets of the same tasks. Contexts and targets are padded separately.

    Attributes:
        context: The points that the model sees.
        target: The points that it must predict.

    Example:
        >>> split = bnnp.tasks.Split(bnnp.tasks.Task.of(x, y), bnnp.tasks.Task.of(x_new, [0.8, -0.8]))
        >>> batch = bnnp.tasks.SplitBatch.of([split, split])
        >>> batch
        SplitBatch(tasks: 2, context: 3 points, target: 2 points)
        >>> batch.joined().x.shape
        torch.Size([2, 5, 1])
    """

    context: TaskBatch
    target: TaskBatch

    @staticmethod
    def of(
        splits: Sequence[Split], dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
    ) -> "SplitBatch":
        """Pad the contexts and the targets of split tasks.

        Args:
            splits: At least one split task; all have the same columns.
            dtype: Type of the numbers.
            device: Where the tensors lie.

        Returns:
            The batch, with the tasks in their order.
        """
        return SplitBatch(
            TaskBatch.of([split.context for split in splits], dtype, device),
            TaskBatch.of([split.target for split in splits], dtype, device),
        )

    def without_targets(self) -> "SplitBatch":
        """The same contexts, with no target points."""
        target = self.target
        return SplitBatch(self.context, TaskBatch(target.x[:, :0], target.y[:, :0], target.mask[:, :0]))

    def joined(self) -> TaskBatch:
        """All points of every task, those of the context first."""
        context, target = self.context, self.target
        return TaskBatch(
            torch.cat([context.x, target.x], 1),
            torch.cat([context.y, target.y], 1),
            torch.cat([context.mask, target.mask], 1),
        )

    def __len__(self) -> int:
        return len(self.context)

    def _described(self) -> dict[str, object]:
        context, target = (span(part.mask.sum(1).tolist()) for part in (self.context, self.target))
        return {"tasks": len(self), "context": f"{context} points", "target": f"{target} points"}
