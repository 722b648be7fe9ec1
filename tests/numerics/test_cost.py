"""What a training step costs, without a stopwatch: operations and bytes, which are the same in every run.

`COSTS` holds what was measured with torch 2.13 on one thread, for a step after the first:

    operations   calls of torch's operations (`aten::`) that no other operation made, views among them
    allocated    bytes of all tensors made on the way, those of NumPy and of the compiled loops not among them
    peak         the most of them that were held at once

A step may cost 15 % more (`ROOM`). If a test fails, its message shows the measured numbers and the operations that were
called most. A change that makes steps dearer on purpose puts the new numbers here and its reason into the commit; one
that makes them cheaper puts them here too, so that the guard stays close.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import bnnp
from bnnp.objectives import PPAVI
from bnnp.tasks.task import SplitBatch, TaskBatch
from bnnp.training.step import differentiate

ROOM = 1.15


@dataclass(frozen=True)
class Setting:
    hidden: tuple[int, ...]
    prior: str
    learnable: bool
    samples: int
    points: int
    context: int


@dataclass(frozen=True)
class Cost:
    operations: int
    allocated: int
    peak: int


UNITWISE = Setting((64, 64), "unitwise", learnable=True, samples=32, points=70, context=21)
FACTORISED = Setting((20, 20), "factorised", learnable=False, samples=8, points=30, context=24)
COSTS = {
    UNITWISE: Cost(operations=1_945, allocated=276_910_620, peak=68_425_080),
    FACTORISED: Cost(operations=678, allocated=6_620_170, peak=2_477_782),
}
every_setting = pytest.mark.parametrize("setting", COSTS, ids=lambda setting: setting.prior)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def batch(points: int, context: int, tasks: int = 5) -> SplitBatch:
    x = 4 * torch.rand(tasks, points, 1, generator=torch.Generator().manual_seed(0)) - 2
    mask = torch.ones(tasks, points, dtype=torch.bool)
    parts = (slice(0, context), slice(context, points))
    return SplitBatch(*(TaskBatch(x[:, part], torch.sin(3 * x[:, part]), mask[:, part]) for part in parts))


def training_step(setting: Setting) -> Callable[[], None]:
    model = bnnp.BNNP(1, 1, setting.hidden, prior=setting.prior, likelihood=bnnp.Gaussian(0.05))
    if not setting.learnable:
        model.set_prior_learnability(0)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=1e-4, fused=True)
    data = batch(setting.points, setting.context)

    def step() -> None:
        differentiate(model, PPAVI(setting.samples), data, parameters, 0)
        optimiser.step()
        optimiser.zero_grad()

    return step


def measure(work: Callable[[], None]) -> tuple[Cost, Counter[str]]:
    """The cost of some work, and how often it called each operation."""
    record: Any
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        work()
    called = Counter(event.name for event in record.events() if is_operation(event) and not is_part_of_another(event))
    changes = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    live, peak, allocated = 0, 0, 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        live += change.nbytes()
        allocated += max(change.nbytes(), 0)
        peak = max(peak, live)
    return Cost(called.total(), allocated, peak), called


def is_operation(event) -> bool:
    return event.name.startswith("aten::")


def is_part_of_another(event) -> bool:
    parent = event.cpu_parent
    return parent is not None and (is_operation(parent) or is_part_of_another(parent))


def test_calls_and_bytes_are_counted_right():
    def work() -> None:
        kept = torch.ones(1000)  # 4 kB
        for _ in range(3):
            torch.mm(kept.view(10, 100), kept.view(100, 10))  # 400 bytes, given back at once

    cost, called = measure(work)
    assert called == {"aten::ones": 1, "aten::view": 6, "aten::mm": 3}
    assert cost == Cost(operations=10, allocated=4000 + 3 * 400, peak=4400)


@every_setting
def test_a_training_step_costs_no_more_than_it_did(setting):
    step = training_step(setting)
    step()
    cost, called = measure(step)
    told = f"{cost}, was {COSTS[setting]}; most often called: {called.most_common(12)}"
    assert cost.operations <= ROOM * COSTS[setting].operations, told
    assert cost.allocated <= ROOM * COSTS[setting].allocated, told
    assert cost.peak <= ROOM * COSTS[setting].peak, told


@every_setting
def test_every_step_costs_the_same(setting):
    step = training_step(setting)
    step()
    assert measure(step) == measure(step)
