"""Training in several processes: each takes its share of a step's tasks, and one sum makes the gradient of all."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from bnnp._core.random import OfShare, child
from bnnp._core.ranks import Ranks
from bnnp._core.shapes import Float, Tensor
from bnnp.tasks.task import SplitBatch, TaskBatch
from bnnp.training.optimiser import set_gradients


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

    @staticmethod
    def in_group(ranks: Ranks, tasks: int) -> "Share":
        """The tasks of a batch that are this process's."""
        return Share(tasks, tasks * ranks.rank // ranks.size, tasks * (ranks.rank + 1) // ranks.size)

    def of(self, batch: SplitBatch) -> SplitBatch:
        """These tasks of a batch, padded as they are."""
        some = slice(self.start, self.stop)
        context, target = (TaskBatch(one.x[some], one.y[some], one.mask[some]) for one in (batch.context, batch.target))
        return SplitBatch(context, target)

    def generator(self, *seed: int) -> torch.Generator:
        """`child(*seed)`, which gives these tasks the draws that they have in the whole batch."""
        return OfShare.like(child(*seed), self.tasks, slice(self.start, self.stop))


def check_batch(ranks: Ranks, batch_size: int) -> None:
    """Refuse more processes than tasks per step."""
    if ranks.size > batch_size:
        raise ValueError(
            f"batch_size: got {batch_size} tasks per step for {ranks.size} processes, expected at least one task for "
            "each; give a larger batch_size or fewer processes"
        )


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
