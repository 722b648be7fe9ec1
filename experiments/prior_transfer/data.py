"""The test sets of each process, and the tasks that priors are learned from."""

from dataclasses import dataclass, replace
from typing import Any

import torch

import bnnp
from bnnp._core.random import child
from bnnp.tasks.source import TaskSource
from bnnp.tasks.split import context_size, random_split
from bnnp.tasks.task import Split
from common import fixed_tests

from .climate import climate
from .models import SOURCES

NOISE, TEST_SEED = 0.05, 69


@dataclass(frozen=True)
class Tests:
    """Test sets with fixed contexts; `in_region` are the same with the targets of the left-out region alone."""

    splits: list[Split]
    in_region: list[Split]
    y_scale: float = 1.0


def tests_of(process: str, rain: str, count: int, points: int) -> Tests:
    """rain: what stands for the climate (`climate.py`)."""
    if process == "climate":
        found = climate(rain)
        splits = list(found.tests.splits)
        pairs = zip(splits, found.inside, strict=True)
        inside = [replace(s, target=s.target.take(torch.from_numpy(i))) for s, i in pairs]
        return Tests(splits, inside, found.y_scale)
    if process == "sawtooth":
        return Tests(list(bnnp.tasks.sawtooth_tests().splits)[:count], [])
    source = SOURCES[process](noise=NOISE, low=-4.0, high=4.0, points=(points, points))
    share = (0.05, 0.5) if points > 20 else (0.3, 0.5)
    return Tests(fixed_tests(source, count, share, TEST_SEED), [])


def training_of(process: str, rain: str) -> TaskSource:
    return climate(rain).training if process == "climate" else SOURCES[process]()


def divided_training(process: str, rain: str) -> list[Split]:
    """Training tasks, divided about as tests are, for what needs no learning."""
    size = context_size((0.025, 0.25) if process == "climate" else (0.05, 0.5))
    tasks: Any = training_of(process, rain).draw(32, child(TEST_SEED, 2))
    return [random_split(task, size, child(TEST_SEED, 3, index)) for index, task in enumerate(tasks)]
