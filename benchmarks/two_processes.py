"""Two processes against one: training to the same numbers, and a context that each holds half of.

    OMP_NUM_THREADS=1 python benchmarks/two_processes.py train --steps 200
    OMP_NUM_THREADS=1 python benchmarks/two_processes.py context --points 10000000

`train`: 48-48 networks on sawtooth functions in float64, 32 per step or as many as --tasks says. `context`: a network
[1, 16, 16, 1], 4 weight samples, points made from their numbers as they are read, in chunks of 4,096. Both print, for
one process and for two, seconds by the clock and of the processor, the largest memory of a process, and how far the
numbers are apart.
"""

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import distributed

import bnnp

CHUNK = 4096


@dataclass(frozen=True)
class Found:
    """What a process has measured, and its numbers."""

    seconds: float
    processor: float
    megabytes: float
    numbers: np.ndarray

    @staticmethod
    def since(clock: float, processor: float, numbers: list[np.ndarray]) -> "Found":
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        flat = np.concatenate([one.ravel() for one in numbers])
        return Found(time.perf_counter() - clock, time.process_time() - processor, peak, flat)


def train(amount: tuple[int, int], _: int, __: int) -> Found:
    """So many steps from the standard start, which takes no time, once compiled code is loaded."""
    steps, together = amount
    tasks, settings = bnnp.tasks.sawtooth(), bnnp.FitSettings(prior_start="standard")

    def fit(count: int) -> bnnp.FitResult:
        model = bnnp.BNNP(1, 1, hidden=(48, 48), dtype=torch.float64, seed=0)
        return bnnp.fit(model, tasks, steps=count, batch_size=together, settings=settings, progress=False)

    fit(1)
    clock, processor = time.perf_counter(), time.process_time()
    result = fit(steps)
    return Found.since(clock, processor, [one.detach().numpy() for one in result.model.parameters()])


def points(first: int, last: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Points by their numbers, the same however they are divided."""
    for start in range(first, last, CHUNK):
        number = np.arange(start, min(start + CHUNK, last))
        x = np.modf(number * 0.6180339887498949)[0] * 4 - 2
        yield x[:, None], (np.sin(3 * x) + 0.1 * np.sin(number * 12.9898))[:, None]


def condition(amount: tuple[int, int], rank: int, size: int) -> Found:
    """A share of so many points."""
    count, _ = amount
    model = bnnp.BNNP(1, 1, (16, 16), likelihood=bnnp.Gaussian(0.1), dtype=torch.float64, seed=0)
    group = distributed.group.WORLD if size > 1 else None
    model.condition(lambda: points(0, CHUNK), num_samples=4, chunk_size=CHUNK)  # compiled code is loaded
    first, last = count * rank // size, count * (rank + 1) // size
    clock, processor = time.perf_counter(), time.process_time()
    post = model.condition(lambda: points(first, last), num_samples=4, chunk_size=CHUNK, group=group)
    prediction = post.predict(np.linspace(-2, 2, 9))
    return Found.since(clock, processor, [prediction.mean, prediction.std])


WORK = {"train": train, "context": condition}


def process(what: str, amount: tuple[int, int], rank: int, size: int, meeting: str, answers) -> None:
    torch.set_num_threads(1)
    if size > 1:
        distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    answers.put(WORK[what](amount, rank, size))


def run(what: str, amount: tuple[int, int], size: int) -> list[Found]:
    """What each of so many processes has found."""
    here = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        answers, meeting = here.Queue(), str(Path(folder) / "meeting")
        started = [here.Process(target=process, args=(what, amount, r, size, meeting, answers)) for r in range(size)]
        for one in started:
            one.start()
        found = [answers.get() for _ in started]
        for one in started:
            one.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="what", required=True)
    training = verbs.add_parser("train")
    training.add_argument("--steps", dest="amount", type=int, default=200)
    training.add_argument("--tasks", type=int, default=32)
    verbs.add_parser("context").add_argument("--points", dest="amount", type=int, default=10_000_000)
    given = parser.parse_args()
    amount = (given.amount, getattr(given, "tasks", 0))
    alone, both = run(given.what, amount, 1), run(given.what, amount, 2)
    for name, found in (("one process", alone), ("two processes", both)):
        spent, processor = max(one.seconds for one in found), max(one.processor for one in found)
        memory = max(one.megabytes for one in found)
        print(
            f"{name}: {spent:.1f} s, {processor:.1f} s of the processor in the busiest, {memory:.0f} MB in the largest"
        )
    apart = max(float(np.abs(one.numbers - alone[0].numbers).max()) for one in both)
    print(f"largest difference of a number: {apart:.1e}, of numbers up to {np.abs(alone[0].numbers).max():.2g}")


if __name__ == "__main__":
    main()
