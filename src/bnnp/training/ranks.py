"""Training in several processes: each takes its share of a step's tasks, and one sum makes the gradient of all."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed, nn

from bnnp._core.random import OfShare, child
from bnnp._core.shapes import Float, Tensor
from bnnp.models.base import MetaLearner
from bnnp.tasks.task import SplitBatch, TaskBatch
from bnnp.training.optimiser import set_gradients


@dataclass(frozen=True)
class Ranks:
    """The processes of a run, of which this is one.

    Attributes:
        rank: The number of this process, from 0.
        size: How many there are.
    """

    rank: int = 0
    size: int = 1

    @staticmethod
    def present() -> "Ranks":
        """Those of torch's process group, if there is one; else this process alone."""
        if not (distributed.is_available() and distributed.is_initialized()):
            return Ranks()
        return Ranks(distributed.get_rank(), distributed.get_world_size())

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def check(self, batch_size: int) -> None:
        """Refuse more processes than tasks per step."""
        if self.size > batch_size:
            raise ValueError(
                f"batch_size: got {batch_size} tasks per step for {self.size} processes, expected at least one task "
                "for each; give a larger batch_size or fewer processes"
            )

    def share(self, tasks: int) -> "Share":
        """The tasks of a batch that are this process's."""
        return Share(tasks, tasks * self.rank // self.size, tasks * (self.rank + 1) // self.size)

    def sum(self, values: Float[Tensor, "numbers"]) -> Float[Tensor, "numbers"]:
        """The sum over all processes, the same bits in each."""
        if self.size > 1:
            with self._company():
                distributed.all_reduce(values)
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

    def agree(self, model: MetaLearner) -> None:
        """Give the model of every process the numbers of the first one's."""
        if self.size > 1:
            with self._company():
                for values in model.state_dict().values():
                    distributed.broadcast(values, 0)

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


@dataclass(frozen=True)
class Share:
    """Some of the tasks of a batch.

    Attributes:
        tasks: Tasks of the whole batch.
        start: The first task of the share.
        stop: The task after its last.
    """

    tasks: int
    start: int
    stop: int

    def of(self, batch: SplitBatch) -> SplitBatch:
        """These tasks of a batch, padded as they are."""
        some = slice(self.start, self.stop)
        context, target = (TaskBatch(one.x[some], one.y[some], one.mask[some]) for one in (batch.context, batch.target))
        return SplitBatch(context, target)

    def generator(self, *seed: int) -> torch.Generator:
        """`child(*seed)`, which gives these tasks the draws that they have in the whole batch."""
        return OfShare.like(child(*seed), self.tasks, slice(self.start, self.stop))


def summed(
    parameters: Sequence[nn.Parameter], terms: dict[str, Tensor], counts: Sequence[int], ranks: Ranks, share: Share
) -> tuple[dict[str, Float[Tensor, "tasks"]], list[int]]:
    """Set the gradient of the parameters to that of the whole batch, by one sum over a flat vector.

    Args:
        parameters: The parameters, with the gradients of the mean over this process's tasks.
        terms: The terms of the objective for these tasks.
        counts: Numbers that are added up.
        ranks: The processes.
        share: The tasks of this process.

    Returns:
        The terms for all tasks, and the sums of the numbers.
    """
    weight = (share.stop - share.start) / share.tasks
    own = [torch.zeros_like(p) if p.grad is None else p.grad * weight for p in parameters]
    like = own[0].reshape(-1)
    of_all = like.new_zeros(len(terms), share.tasks)
    of_all[:, share.start : share.stop] = torch.stack(list(terms.values())).to(like)
    numbers = like.new_tensor([*(float(p.grad is not None) for p in parameters), *map(float, counts)])
    parts = [*own, of_all, numbers]
    total = ranks.sum(torch.cat([part.reshape(-1) for part in parts])).split([part.numel() for part in parts])
    used, sums = total[-1][: len(parameters)].tolist(), total[-1][len(parameters) :].tolist()
    gradients = [one.view(p.shape) if n else None for one, p, n in zip(total, parameters, used, strict=False)]
    set_gradients(parameters, gradients)
    rows = total[len(parameters)].view(of_all.shape)
    return dict(zip(terms, rows, strict=True)), [round(number) for number in sums]
