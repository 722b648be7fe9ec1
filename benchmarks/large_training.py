"""Training from a Parquet data set larger than memory: time and the largest memory, against the size of the data set.

    python benchmarks/large_training.py write DIR --gigabytes 5
    python benchmarks/large_training.py train DIR --steps 100

`write` writes a folder of sorted files of about 240 MB: tasks of 100 points of a sine with noise, in row groups of
100,000 rows. `train` reads it once for the columns and their sums, and trains a 48-48 network with 16 tasks per step.
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

import bnnp

POINTS, ROWS = 100, 10_000_000
"""Points per task, and rows per file."""


def write(folder: Path, gigabytes: float) -> None:
    """Write files until they have this size together."""
    folder.mkdir(parents=True)
    number, written = 0, 0
    while written < gigabytes * 1e9:
        random, tasks = np.random.default_rng(number), ROWS // POINTS
        x = random.uniform(-2, 2, ROWS)
        phase, height = (np.repeat(random.normal(size=tasks), POINTS) for _ in range(2))
        y = height * np.sin(2 * x + phase) + 0.1 * random.normal(size=ROWS)
        who = np.repeat(np.arange(number * tasks, (number + 1) * tasks), POINTS)
        path = folder / f"part-{number:05d}.parquet"
        pq.write_table(pa.table({"who": who, "x": x, "y": y}), path, row_group_size=100_000)
        number, written = number + 1, written + path.stat().st_size
    print(f"{number} files, {written / 1e9:.2f} GB, {number * ROWS / 1e6:.0f} million rows")


def train(folder: Path, steps: int) -> None:
    clock, used = time.perf_counter(), time.process_time()
    tasks = bnnp.tasks.from_parquet(folder, task="who", x=["x"], y=["y"])
    read, for_reading = time.perf_counter() - clock, time.process_time() - used
    model = bnnp.BNNP(1, 1, hidden=(48, 48), dtype=torch.float64, seed=0)
    result = bnnp.fit(model, tasks, steps=steps, batch_size=16, progress=False)
    seconds, for_steps = time.perf_counter() - clock - read, time.process_time() - used - for_reading
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    last = result.history.steps[-1]["objective"]
    print(f"{len(tasks):,} tasks read in {read:.0f} s, {for_reading:.0f} s of the processor")
    print(f"start and {steps} steps in {seconds:.0f} s, {for_steps:.0f} s of the processor, objective {last:.1f}")
    print(f"largest memory {peak:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    making, training = verbs.add_parser("write"), verbs.add_parser("train")
    for one in (making, training):
        one.add_argument("folder", type=Path)
    making.add_argument("--gigabytes", type=float, default=5)
    training.add_argument("--steps", type=int, default=100)
    given = parser.parse_args()
    if given.verb == "write":
        write(given.folder, given.gigabytes)
    else:
        train(given.folder, given.steps)


if __name__ == "__main__":
    main()
