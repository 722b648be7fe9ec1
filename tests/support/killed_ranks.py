"""Trains in two processes, one of which is killed at a random moment, again and again, and compares with whole runs.

Run as `python -m support.killed_ranks KILLS`; prints the counts as JSON, after every run.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from support import ranks

STEPS = 200
SECONDS = 1800
"""After so long a process hangs, however busy the machine."""


def attempt(folder: Path, size: int, wait: float | None, killed: int) -> list[tuple[int, str]]:
    """Train in some processes, of which one is killed after a time; how each has ended, and its last words."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as place:
        options = [size, Path(place) / "meeting", STEPS, folder, 0]
        processes = [
            subprocess.Popen(
                [sys.executable, "-W", "ignore", ranks.__file__, *map(str, (rank, *options))],
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            for rank in range(size)
        ]
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # it begins to train
        if wait is not None:
            time.sleep(wait)
            processes[killed].send_signal(signal.SIGKILL)
        words = [process.communicate(timeout=SECONDS)[1] for process in processes]
    return [(process.returncode, last) for process, last in zip(processes, words, strict=True)]


def main(kills: int) -> dict[str, int]:
    """Kill so many processes.

    Returns:
        How many were killed, in how many of these cases the other process ended with the message, and how many runs
        were brought to their end, and came to the numbers of one process.
    """
    ranks.train(1, None)  # compiled code is loaded
    clock, ways, whole = time.perf_counter(), random.Random(2), ranks.train(STEPS, None)
    longest = 3 * (time.perf_counter() - clock)  # about as long as two processes take
    found = {"killed": 0, "said": 0, "runs": 0, "same": 0}
    while found["killed"] < kills:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "run"
            for _ in range(ways.randint(2, 5)):
                killed = ways.randrange(2)
                ends = attempt(folder, 2, ways.uniform(0, longest), killed)
                if ends[killed][0] == -signal.SIGKILL and ends[1 - killed][0] != 0:  # else it was over
                    found["killed"] += 1
                    found["said"] += "start the run again, with any number of processes" in ends[1 - killed][1]
            last = attempt(folder, ways.randint(1, 3), None, 0)
            assert [code for code, _ in last] == [0] * len(last), last
            end = ranks.train(STEPS, str(folder))  # nothing is left to do: it reads the end
            pairs = zip(end.model.parameters(), whole.model.parameters(), strict=True)
            found["runs"] += 1
            found["same"] += all(torch.allclose(one, other, rtol=1e-6, atol=1e-9) for one, other in pairs)
        print(json.dumps(found), flush=True)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
