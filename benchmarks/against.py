"""A training step or prediction of this version against another version of the library, in turns.

    git worktree add --detach ../before dbc29f1
    OMP_NUM_THREADS=1 python benchmarks/against.py ../before/src --settings a b d

Each version runs in a process of its own, and they take turns of a few calls, so that whatever else the machine does
meets both alike. The settings are those of `bnnp bench`, with the same number of samples in both versions. Times are
processor seconds of a call, or with `--threads 2` seconds of the clock: medians over turns, and the median of the
ratios within turns.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

CALLS = {"a": 4, "b": 40, "c": 1, "d": 1, "e": 4}


def work(setting: str, threads: int) -> None:
    """Run calls whenever a line comes in, and say how long one took."""
    from bnnp.bench import SETTINGS, library_work

    clock = time.process_time if threads == 1 else time.perf_counter
    call = library_work(SETTINGS[setting])
    for _ in range(3):
        call()
    for _ in sys.stdin:
        started = clock()
        for _ in range(CALLS[setting]):
            call()
        print((clock() - started) / CALLS[setting], flush=True)


def worker(source: Path, setting: str, threads: int) -> subprocess.Popen:
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--work", setting, "--threads", str(threads)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def turn(process: subprocess.Popen) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def compare(other: Path, setting: str, turns: int, threads: int) -> str:
    here = Path(__file__).parents[1] / "src"
    processes = [worker(source, setting, threads) for source in (here, other)]
    seconds = [[turn(process) for process in processes] for _ in range(turns)]
    for process in processes:
        process.communicate()
    this, that = (statistics.median(values) for values in zip(*seconds, strict=True))
    ratio = statistics.median(a / b for a, b in seconds)
    return f"({setting}) this {this:.4f} s, other {that:.4f} s, ratio {ratio:.2f} over {turns} turns"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="?", help="folder `src` of the other version")
    parser.add_argument("--settings", nargs="+", choices=CALLS, default=["a", "d"])
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", choices=CALLS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.threads)
        return
    for setting in options.settings:
        print(compare(options.other, setting, options.turns, options.threads), flush=True)


if __name__ == "__main__":
    main()
