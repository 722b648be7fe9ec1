"""Subjects per second of `bnnp predict`, beside a loop of `condition` and `predict` over the same subjects.

    python benchmarks/many_subjects.py --subjects 2000 --loop 50 --workers 2

It makes two Parquet tables of subjects with 10 known and 10 wanted points and an untrained 48-48 model, runs the
command with 20 samples, and prints wall time, processor time and the largest memory of any of its processes.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import bnnp

POINTS, SAMPLES = 10, 20


def make(folder: Path, subjects: int) -> None:
    """Write the model and both tables."""
    random, rows = np.random.default_rng(0), subjects * POINTS
    bnnp.BNNP(1, 1, hidden=(48, 48), seed=0).save(folder / "model.bnnp")
    for name in ("known", "wanted"):
        table = pd.DataFrame({"who": np.repeat(np.arange(subjects), POINTS), "x0": random.normal(size=rows)})
        if name == "known":
            table["y0"] = random.normal(size=rows)
        table.to_parquet(folder / f"{name}.parquet")


def loop(folder: Path, subjects: int) -> tuple[float, float]:
    """Wall and processor seconds per subject of the loop."""
    model, (known, wanted) = (
        bnnp.load(folder / "model.bnnp"),
        (pd.read_parquet(folder / f"{name}.parquet") for name in ("known", "wanted")),
    )

    def one(who: int) -> None:
        mine, new = (pd.DataFrame(frame[frame.who == who]) for frame in (known, wanted))
        post = model.condition(mine[["x0"]].to_numpy(), mine[["y0"]].to_numpy(), num_samples=SAMPLES)
        prediction = post.predict(new[["x0"]].to_numpy())
        _ = prediction.mean, prediction.std, prediction.quantile([0.05, 0.5, 0.95])

    one(0)
    started, used = time.perf_counter(), time.process_time()
    for who in range(subjects):
        one(who)
    return (time.perf_counter() - started) / subjects, (time.process_time() - used) / subjects


def command(folder: Path, workers: int) -> tuple[float, float, float]:
    """Wall seconds, processor seconds and megabytes of the command."""
    files = [f"--{option}={folder / name}.parquet" for option, name in (("context", "known"), ("targets", "wanted"))]
    options = ["--task", "who", "--samples", str(SAMPLES), "--workers", str(workers), f"--out={folder / 'out.parquet'}"]
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "bnnp", "predict", folder / "model.bnnp", *files, *options], check=True)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - started, spent.ru_utime + spent.ru_stime, spent.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subjects", type=int, default=2000)
    parser.add_argument("--loop", type=int, default=50, help="subjects of the loop")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, given.subjects)
        wall, used = loop(folder, given.loop)
        print(f"loop: {1e3 * wall:.1f} ms and {1e3 * used:.1f} ms of the processor per subject")
        wall, used, memory = command(folder, given.workers)
        each = 1e3 / given.subjects
        print(f"command: {wall * each:.1f} ms and {used * each:.1f} ms of the processor per subject, {memory:.0f} MB")


if __name__ == "__main__":
    main()
