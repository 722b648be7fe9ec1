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
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

import bnnp
from support import ranks

STEPS, TOGETHER = 200, 3
"""Steps of a run, and runs at a time."""
PAUSE = 0.05
"""Up to so many seconds after a random step a process is killed, so that it may be anywhere within a step."""
SECONDS = 1800
"""After so long a process hangs, however busy the machine."""


def attempt(folder: Path, size: int, killed: int = 0, step: int = 0, pause: float = 0) -> list[tuple[int, str]]:
    """Train in some processes, of which one is killed some time after a step; how each has ended, and its last words.

    Args:
        folder: Where the run is kept.
        size: Number of processes.
        killed: Which one is killed.
        step: After which step it is killed, or at the first one if this run goes on after it; 0 for none.
        pause: Seconds after that step.
    """
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
        if step:
            said = processes[killed].stdout
            assert said is not None
            while (line := said.readline()) and int(line) < step:
                pass
            time.sleep(pause)
            processes[killed].send_signal(signal.SIGKILL)
        words = [process.communicate(timeout=SECONDS)[1] for process in processes]
    return [(process.returncode, last) for process, last in zip(processes, words, strict=True)]


def run(seed: int, kills: int, whole: bnnp.FitResult) -> Counter[str]:
    """One run that is killed so many times and then brought to its end, perhaps in another number of processes."""
    ways, found = random.Random(seed), Counter(runs=1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        for _ in range(kills):
            killed = ways.randrange(2)
            ends = attempt(folder, 2, killed, ways.randint(1, STEPS), ways.uniform(0, PAUSE))
            if ends[killed][0] == -signal.SIGKILL and ends[1 - killed][0] != 0:  # else it was over
                found["killed"] += 1
                found["said"] += "start the run again, with any number of processes" in ends[1 - killed][1]
        last = attempt(folder, ways.randint(1, 3))
        assert [code for code, _ in last] == [0] * len(last), last
        end = ranks.train(STEPS, str(folder))  # nothing is left to do: it reads the end
    pairs = zip(end.model.parameters(), whole.model.parameters(), strict=True)
    found["same"] += all(torch.allclose(one, other, rtol=1e-6, atol=1e-9) for one, other in pairs)
    return found


def main(kills: int) -> Counter[str]:
    """Kill at least so many processes.

    Returns:
        How many were killed, in how many of these cases the other process ended with the message, and how many runs
        were brought to their end, and came to the numbers of one process.
    """
    whole, found, seed = ranks.train(STEPS, None), Counter[str](), 0
    with ThreadPoolExecutor(TOGETHER) as pool:
        while found["killed"] < kills:
            begun = [pool.submit(run, seed + i, 2 + (seed + i) % 3, whole) for i in range(TOGETHER)]
            seed += TOGETHER
            for one in begun:
                found += one.result()
                print(json.dumps(found), flush=True)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
