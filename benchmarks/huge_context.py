"""A context of a million points, in chunks: time and memory against the number of points.

    python benchmarks/huge_context.py run --points 1000000
    python benchmarks/huge_context.py growth docs/figures/huge_context.png

Three features, a network [3, 64, 64, 1], 16 weight samples, chunks of 4,096 points from a file on disk.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import bnnp

CHUNK = 4096


def run(points: int, progress: bool) -> dict[str, float]:
    """Condition on so many points; seconds, and the peak memory of the process in megabytes."""
    model = bnnp.BNNP(3, 1, (64, 64), likelihood=bnnp.Gaussian(0.1))
    with tempfile.TemporaryDirectory() as folder:
        x = np.lib.format.open_memmap(Path(folder) / "x.npy", "w+", shape=(points, 3))
        y = np.lib.format.open_memmap(Path(folder) / "y.npy", "w+", shape=(points, 1))
        rng = np.random.default_rng(0)
        for start in range(0, points, 100_000):
            here = slice(start, min(start + 100_000, points))
            x[here] = rng.uniform(-2, 2, (here.stop - start, 3))
            y[here] = np.sin(3 * x[here].sum(1, keepdims=True)) + 0.1 * rng.normal(size=(here.stop - start, 1))
        model.condition(x[:64], y[:64], num_samples=16, chunk_size=CHUNK)  # compiled code is loaded
        started = time.perf_counter()
        post = model.condition(x, y, num_samples=16, chunk_size=CHUNK, progress=progress)
        seconds = time.perf_counter() - started
        post.predict(x[:10])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"points": points, "seconds": seconds, "megabytes": peak}


def growth(figure: str, largest: int) -> None:
    sizes = [size for size in (1_000, 10_000, 30_000, 100_000, 300_000, 1_000_000) if size <= largest]
    rows = []
    for size in sizes:
        answer = subprocess.run(
            [sys.executable, __file__, "run", "--points", str(size)], check=True, capture_output=True, text=True
        )
        rows.append(json.loads(answer.stdout.splitlines()[-1]))
        print(json.dumps(rows[-1]), flush=True)
    drawing, panels = plt.subplots(1, 2, figsize=(8, 3.2), layout="constrained")
    for panel, name, label in zip(panels, ("seconds", "megabytes"), ("seconds", "peak memory, MB"), strict=True):
        panel.plot([row["points"] for row in rows], [row[name] for row in rows], "o-")
        panel.set(xscale="log", xlabel="context points", ylabel=label)
        panel.grid(alpha=0.3)
    panels[0].set_yscale("log")
    panels[1].set_ylim(0)
    drawing.savefig(figure, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("run")
    one.add_argument("--points", type=int, default=1_000_000)
    one.add_argument("--progress", action="store_true")
    one.set_defaults(call=lambda o: print(json.dumps(run(o.points, o.progress))))
    many = verbs.add_parser("growth")
    many.add_argument("figure")
    many.add_argument("--largest", type=int, default=1_000_000)
    many.set_defaults(call=lambda o: growth(o.figure, o.largest))
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
