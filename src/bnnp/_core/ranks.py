"""Processes that work together, by torch's process groups: what they add up, and what becomes of all if one dies."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed

from bnnp._core.shapes import Tensor


@dataclass(frozen=True)
class Ranks:
    """Processes that work together, of which this is one.

    Attributes:
        rank: The number of this process, from 0.
        size: How many there are.
        group: Torch's group of these processes; None for all.
    """

    rank: int = 0
    size: int = 1
    group: Any = None

    @staticmethod
    def present() -> "Ranks":
        """All processes of torch's default group, if there is one; else this process alone."""
        there = distributed.is_available() and distributed.is_initialized()
        return Ranks.of(distributed.group.WORLD) if there else Ranks()

    @staticmethod
    def of(group: Any) -> "Ranks":
        """The processes of a group.

        Raises:
            ValueError: If this process is not in it.
        """
        rank = distributed.get_rank(group) if isinstance(group, distributed.ProcessGroup) else -1
        if rank < 0:
            raise ValueError(
                f"group: got {group!r}, expected a process group of torch with this process in it, as "
                "torch.distributed.group.WORLD after torch.distributed.init_process_group('gloo')"
            )
        return Ranks(rank, distributed.get_world_size(group), group)

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes, the same bits in each."""
        if self.size > 1:
            with self._company():
                distributed.all_reduce(values, group=self.group)
        return values

    def first_failure(self, failed: int | None) -> int | None:
        """The smallest number that a process gives; None if all give None."""
        if self.size == 1:
            return failed
        found = self.sum(torch.tensor([int(failed is not None and rank == self.rank) for rank in range(self.size)]))
        if not bool(found.any()):
            return None
        tasks = torch.zeros(self.size, dtype=torch.int64)
        tasks[self.rank] = 0 if failed is None else failed
        tasks = self.sum(tasks)
        return min(int(task) for task, bad in zip(tasks, found, strict=True) if bad)

    def agree(self, tensors: Iterable[Tensor]) -> None:
        """Give tensors of every process, in place, the numbers of the first one's."""
        if self.size > 1:
            with self._company():
                for values in tensors:
                    distributed.broadcast(values, group_src=0, group=self.group)

    @contextmanager
    def _company(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1][:200]
            raise OSError(
                f"rank {self.rank} of {self.size}: another process of this run has ended or cannot be reached, so this "
                f"one ends too ({reason}); start the run again, with any number of processes: it goes on from its "
                "checkpoint, if it has one"
            ) from error


ALONE = Ranks()
"""This process by itself."""
