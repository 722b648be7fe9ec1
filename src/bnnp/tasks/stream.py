"""Endless batches of split tasks for training, with little padding. The same seed and step give the same batch."""

from dataclasses import dataclass, field

import torch

from bnnp._core.random import child
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.split import ContextSize, random_split
from bnnp.tasks.task import Split, SplitBatch

POOL_BATCHES = 8
"""Batches that are drawn together and sorted by context size, so that contexts in a batch need little padding."""

_TASKS, _ORDER = 0, 1


@dataclass
class TaskStream:
    """Batches of split tasks by their number, so that training can resume anywhere without the batches before.

    The tasks of a batch are different ones: a collection of fewer than `batch_size` tasks gives all of them each time.

    Args:
        source: Where tasks are drawn from.
        batch_size: Tasks per batch.
        size: How large contexts are.
        seed: With the same seed, the batches are the same.
        device: Where the batches lie.
    """

    source: TaskSource
    batch_size: int
    size: ContextSize
    seed: int
    device: torch.device | str = "cpu"
    _pool_index: int = field(default=-1, init=False)
    _pool: list[SplitBatch] = field(default_factory=list, init=False)

    def batch(self, step: int) -> SplitBatch:
        """The batch of a training step."""
        pool_index, position = divmod(step, POOL_BATCHES)
        if pool_index != self._pool_index:
            self._pool = self._draw_pool(pool_index)
            self._pool_index = pool_index
        return self._pool[position]

    def _draw_pool(self, index: int) -> list[SplitBatch]:
        generator = child(self.seed, _TASKS, index)
        order = torch.randperm(POOL_BATCHES, generator=child(self.seed, _ORDER, index)).tolist()
        batches = self._split_batches(generator)
        return [SplitBatch.of(batches[i], device=self.device) for i in order]

    def _split_batches(self, generator: torch.Generator) -> list[list[Split]]:
        """As many batches as a pool has, sorted by context size unless there are too few tasks to fill it once."""
        together = POOL_BATCHES * self.batch_size
        if isinstance(self.source, Collection) and len(self.source) < together:
            count = min(self.batch_size, len(self.source))
            return [self._splits(count, generator) for _ in range(POOL_BATCHES)]
        splits = sorted(self._splits(together, generator), key=lambda split: len(split.context))
        return [splits[i : i + self.batch_size] for i in range(0, together, self.batch_size)]

    def _splits(self, count: int, generator: torch.Generator) -> list[Split]:
        return [random_split(task, self.size, generator) for task in self.source.drawn(count, generator)]
