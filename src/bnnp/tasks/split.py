"""Parts of a task: what the model sees (context) and what it must predict (target)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from bnnp._core.checks import check_kind, is_number
from bnnp._core.shapes import Bool, Tensor
from bnnp.tasks.task import Split, Task


@dataclass(frozen=True)
class ContextShare:
    """Contexts of a share of the points. The share is drawn uniformly from `[low, high]` for every split.

    Args:
        low: The smallest share.
        high: The largest share.

    Raises:
        ValueError: Unless `0 <= low <= high <= 1`.
    """

    low: float
    high: float

    def __post_init__(self):
        if not 0 <= self.low <= self.high <= 1:
            raise ValueError(f"context_share: got ({self.low}, {self.high}), expected 0 <= low <= high <= 1")

    def size(self, points: int, generator: torch.Generator) -> int:
        """Draw the number of context points of a task with so many points."""
        share = self.low + (self.high - self.low) * float(torch.rand((), generator=generator, dtype=torch.float64))
        return round(share * points)


@dataclass(frozen=True)
class ContextCount:
    """Contexts of a number of points, which is drawn uniformly from `low, ..., high` for every split.

    Args:
        low: The smallest number of points.
        high: The largest number of points.

    Raises:
        ValueError: If these are not whole numbers with `0 <= low <= high`.

    Example:
        >>> import torch
        >>> size = bnnp.tasks.ContextCount(3, 3)
        >>> bnnp.tasks.random_split(tasks[0], size, torch.Generator().manual_seed(0))
        Split(name: '0', context: 3 points, target: 5 points)
    """

    low: int
    high: int

    def __post_init__(self):
        whole = all(isinstance(end, int | np.integer) for end in (self.low, self.high))
        if not (whole and 0 <= self.low <= self.high):
            raise ValueError(
                f"context_count: got ({self.low}, {self.high}), expected whole numbers of points, 0 <= low <= high"
            )

    def size(self, points: int, generator: torch.Generator) -> int:
        """Draw the number of context points; `points`, the size of the task, has no influence."""
        return int(torch.randint(self.low, self.high + 1, (), generator=generator))


ContextSize = ContextShare | ContextCount


def context_size(
    share: float | tuple[float, float] | ContextSize | None, count: int | tuple[int, int] | ContextCount | None = None
) -> ContextSize:
    """How large contexts are, from the user's choice. If there is a count, the share is ignored.

    Args:
        share: A share of the points, a range of shares, or an object.
        count: A number of points, a range of numbers, or an object.

    Raises:
        ValueError: If there is neither a count nor a share, or one of them is not a number or a range.
    """
    if isinstance(count, ContextCount):
        return count
    if count is not None:
        low, high = _range(count, "context_count", "as in 10 or (5, 20)")
        return ContextCount(*(int(end) if end.is_integer() else end for end in (low, high)))  # pyright: ignore
    if isinstance(share, ContextShare | ContextCount):
        return share
    if share is None:
        raise ValueError("context_share: got None, expected a share or a range of shares, as in (0.1, 0.5)")
    return ContextShare(*_range(share, "context_share", "as in 0.3 or (0.1, 0.5)"))


def _range(value: float | Sequence[float], name: str, example: str) -> tuple[float, float]:
    ends = list(value) if isinstance(value, Sequence) else [value, value]
    if len(ends) != 2 or not all(is_number(end) for end in ends):
        raise ValueError(f"{name}: got {value!r}, expected a number or a range, {example}")
    return float(ends[0]), float(ends[1])


def random_split(task: Task, size: ContextSize, generator: torch.Generator) -> Split:
    """Split a task at random into context and target. At least one point is left as target.

    Args:
        task: The task to split.
        size: How large the context is, as in `ContextCount(2, 5)`.
        generator: Source of randomness.

    Returns:
        The two parts.

    Raises:
        ValueError: If the task has no points.

    Example:
        >>> import torch
        >>> bnnp.tasks.random_split(tasks[0], bnnp.tasks.ContextCount(2, 2), torch.Generator().manual_seed(0))
        Split(name: '0', context: 2 points, target: 6 points)
    """
    if len(task) == 0:
        raise ValueError(f"task {task.name!r}: got no points, expected at least one to predict; leave this task out")
    check_kind("size", size, ContextSize, "the size of contexts, as bnnp.tasks.ContextCount(2, 5)")
    order = torch.randperm(len(task), generator=generator)
    context = min(size.size(len(task), generator), len(task) - 1)
    return Split(task.take(order[:context]), task.take(order[context:]))


def split_outside(
    task: Task, inside: Bool[Tensor, " points"], size: int, generator: torch.Generator, region: str
) -> Split:
    """A random context of points outside a region. All other points are targets.

    Args:
        task: The task to split.
        inside: Whether each point lies inside the region.
        size: Number of context points.
        generator: Source of randomness.
        region: Name of the argument that chose the region, for errors.

    Raises:
        ValueError: If there are too few points outside the region.
    """
    outside = (~inside).nonzero()[:, 0]
    if not 0 < size <= len(outside) or size == len(task):
        raise ValueError(
            f"{region}: got {len(outside)} of {len(task)} points outside it, expected at least {max(size, 1)} for the "
            "context and one more to predict; choose a smaller one"
        )
    is_context = torch.zeros(len(task), dtype=torch.bool)
    is_context[outside[torch.randperm(len(outside), generator=generator)[:size]]] = True
    return Split(task.take(is_context), task.take(~is_context))


def check_split(split: str) -> None:
    """Raise `ValueError` unless `split` is "train" or "test"."""
    if split not in ("train", "test"):
        raise ValueError(f"split: got {split!r}, expected 'train' or 'test'")
