"""Threads in place of the processes of a group, for tests."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch

from bnnp._core.ranks import Ranks

Result = TypeVar("Result")


@dataclass(frozen=True)
class InThreads(Ranks):
    """Threads in place of processes, which add up in a list that they share."""

    @property
    def board(self) -> tuple[threading.Barrier, dict]:
        return self.group

    def sum(self, values):
        barrier, written = self.board
        written[self.rank] = values.clone()
        barrier.wait()
        total = torch.stack([written[rank] for rank in range(self.size)]).sum(0)
        barrier.wait()
        return total


def in_threads(work: Callable[[Ranks], Result], size: int) -> list[Result]:
    """What each of several ranks gives."""
    board = (threading.Barrier(size, timeout=60), {})
    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(lambda rank: work(InThreads(rank, size, board)), range(size)))
