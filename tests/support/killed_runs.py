"""Trains again and again in children that are killed, half of them inside a write, and compares with whole runs.

Run as `python -m support.killed_runs KILLS`; prints the counts as JSON. Children are forks, which start at once.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bnnp.training.checkpoint import FILE_NAME
from support.training import Stop, fit, records, same, state

STEPS: dict[str, Any] = {"steps": 30, "record_every": 4, "evaluate_every": 3, "checkpoint_every": 2}
real = {"fsync": os.fsync, "replace": os.replace}


def train(folder: Path | None):
    options = STEPS if folder is None else {**STEPS, "checkpoint": folder}
    return fit(evaluation=Stop(), **options)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_inside_a_write(ways: random.Random) -> None:
    """Of one of the next writes: with a part of the content written, all of it, or just after it was put in place."""
    left, share, place = ways.randrange(3), ways.random(), ways.choice(["fsync", "before", "after"])

    def fsync(descriptor: int) -> None:
        nonlocal left
        if place == "fsync" and left == 0:
            os.ftruncate(descriptor, int(share * os.fstat(descriptor).st_size))
            die()
        real["fsync"](descriptor)

    def replace(old, new) -> None:
        nonlocal left
        if place == "before" and left == 0:
            die()
        real["replace"](old, new)
        if place == "after" and left == 0:
            die()
        left -= 1

    os.fsync, os.replace = fsync, replace


def child(folder: Path, ways: random.Random, *, inside: bool) -> bool:
    """Train in a child until it is killed or done; whether it was killed."""
    pid = os.fork()
    if pid == 0:
        if inside:
            die_inside_a_write(ways)
        train(folder)
        os._exit(0)
    if not inside:
        time.sleep(ways.uniform(0, 0.5))
        os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def main(kills: int) -> None:
    ways, whole = random.Random(1), train(None)
    found = {"killed": 0, "inside": 0, "runs": 0, "same": 0, "left": 0}
    while found["killed"] < kills:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "run"
            for turn in range(ways.randint(2, 8)):
                inside = turn % 2 == 0
                if child(folder, ways, inside=inside):
                    found["killed"] += 1
                    found["inside"] += inside
            end = train(folder)
            found["runs"] += 1
            found["same"] += same(state(end.model), state(whole.model)) and records(end.history) == records(
                whole.history
            )
            found["left"] += [file.name for file in folder.iterdir()] != [FILE_NAME]
    print(json.dumps(found))


if __name__ == "__main__":
    main(int(sys.argv[1]))
