"""One inverse of a small matrix with its log-determinant, its trace and two solutions, by each back end.

    OMP_NUM_THREADS=1 python benchmarks/inverses.py

Prints microseconds of the processor for one matrix, in one thread and float32. The back ends take turns; medians.
"""

import statistics
import time

import torch

from bnnp.numerics.backends import base, torch_linalg
from bnnp.numerics.backends.numba import binding

SIZES, UNITS, TURNS = (5, 10, 21, 40, 65, 100, 128, 200), 64, 9
NUMBERS = 2**20
"""In all matrices of one call."""


def microseconds(n: int) -> list[float]:
    """Of both back ends, for one matrix of n rows."""
    rows = max(1, NUMBERS // (UNITS * n * n))
    root = torch.randn(rows, n, n)
    gram = (root @ root.mT / n).unsqueeze(-1).repeat(1, 1, 1, UNITS)
    data = base.ScaledData(torch.rand(rows, n, UNITS), torch.randn(rows, n, 2, UNITS))
    solution = base.ScaledSolution(torch.empty(rows, n * (n + 1) // 2, UNITS), torch.empty_like(data.right))
    values = base.ScaledValues(*torch.empty(3, rows, UNITS))
    found: list[list[float]] = [[], []]
    for _ in range(TURNS + 1):
        for times, back_end in zip(found, (torch_linalg, binding), strict=True):
            started = time.process_time()
            back_end.invert_scaled(gram, data, solution, values)
            times.append(1e6 * (time.process_time() - started) / (rows * UNITS))
    return [statistics.median(times[1:]) for times in found]


def main() -> None:
    torch.set_num_threads(1)
    print("| size | `torch.linalg` | compiled loops | ratio |\n|---|---|---|---|")
    for n in SIZES:
        by_torch, by_loops = microseconds(n)
        print(f"| {n} | {by_torch:.4g} µs | {by_loops:.4g} µs | {by_torch / by_loops:.1f} |", flush=True)


if __name__ == "__main__":
    main()
