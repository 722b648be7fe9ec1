"""Times of the library, the limit and the plain transcription in turns, each setting in a process of its own."""

import importlib.util
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from bnnp.bench.settings import SETTINGS, Setting
from bnnp.bench.work import Work, library_work, limit_work

if TYPE_CHECKING:
    import pandas as pd

LEAST_SECONDS = 0.2
"""Least duration of a repeat. Short work is called often in one repeat, so that it finds its data in the caches, as in
training."""
LONG_SECONDS = 5.0
"""Work whose call takes longer than this is called once per repeat, without a second call to time it."""


@dataclass(frozen=True)
class Measurement:
    """Median seconds per call of one kind of work ("library", "limit" or "plain"), and its peak memory."""

    setting: str
    kind: str
    seconds: float
    repeats: int
    peak_megabytes: float


def measure(setting: Setting, kinds: list[str], plain: Path | None, repeats: int) -> dict[str, list[float]]:
    """Seconds per call of each kind of work, one number per repeat. Kinds take turns, after calls that do not count."""
    makers: dict[str, Callable[[Setting], Work]] = {"library": library_work, "limit": limit_work}
    if plain is not None:
        makers["plain"] = _module(plain).work
    work = {kind: makers[kind](setting) for kind in kinds}
    calls = {kind: _calls_per_repeat(run) for kind, run in work.items()}
    seconds: dict[str, list[float]] = {kind: [] for kind in work}
    for _ in range(repeats):
        for kind, run in work.items():
            started = time.perf_counter()
            for _ in range(calls[kind]):
                run()
            seconds[kind].append((time.perf_counter() - started) / calls[kind])
    return seconds


def _calls_per_repeat(run: Work) -> int:
    """Number of calls that make a repeat long enough, by the time of a second call: the first one fills the caches."""
    for _ in range(2):
        started = time.perf_counter()
        run()
        took = time.perf_counter() - started
        if took > LONG_SECONDS:
            return 1
    return math.ceil(LEAST_SECONDS / took)


def run(names: list[str], plain: Path | None = None, repeats: int = 9, progress: bool = True) -> list[Measurement]:
    """Measure settings, each in processes of its own: the library and the limit in turns, then the plain transcription.

    Peak memory is that of the whole process, Python and torch included.
    """
    from rich.progress import Progress

    unknown = [name for name in names if name not in SETTINGS]
    if unknown:
        raise ValueError(f"setting: got {', '.join(unknown)}, expected some of {', '.join(SETTINGS)}")
    if plain is not None and not (plain.is_file() and plain.suffix == ".py"):
        raise FileNotFoundError(
            f"plain: {plain} is not a file of Python; expected the benchmarks/plain.py of the repository"
        )
    jobs = [(name, ["library", "limit"], repeats) for name in names]
    jobs += [(name, ["library"], 2) for name in names]  # for the peak memory of the library alone
    if plain is not None:
        jobs += [(name, ["plain"], 1) for name in names]
    results = []
    with Progress(disable=not progress, transient=True) as bar:
        task = bar.add_task("measuring", total=len(jobs))
        for name, kinds, times in jobs:
            bar.update(task, description=f"({name}) {' and '.join(kinds)}")
            results.append((name, kinds, measure_in_process(SETTINGS[name], kinds, times, plain)))
            bar.advance(task)
    peaks = {(name, kinds[0]): answer["peak_megabytes"] for name, kinds, answer in results if len(kinds) == 1}
    return [
        Measurement(
            name, kind, statistics.median(seconds), len(seconds), peaks.get((name, kind), answer["peak_megabytes"])
        )
        for name, kinds, answer in results
        if kinds != ["library"]
        for kind, seconds in answer["seconds"].items()
    ]


def table(measurements: list[Measurement]) -> "pd.DataFrame":
    """One row per setting: seconds and memory of the library, beside the limit and the transcription."""
    import pandas as pd

    rows = {}
    for name in dict.fromkeys(m.setting for m in measurements):
        found = {m.kind: m for m in measurements if m.setting == name}
        mine = found["library"]
        row = {
            "seconds": mine.seconds,
            "megabytes": mine.peak_megabytes,
            "limit seconds": found["limit"].seconds,
            "share of the limit's speed": found["limit"].seconds / mine.seconds,
        }
        if "plain" in found:
            row["plain seconds"] = found["plain"].seconds
            row["plain megabytes"] = found["plain"].peak_megabytes
            row["times faster than plain"] = found["plain"].seconds / mine.seconds
        rows[name] = row
    return pd.DataFrame.from_dict(rows, orient="index")


def to_json(measurements: list[Measurement]) -> str:
    """The measurements with what they were measured on, as JSON."""
    machine = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    settings = {m.setting: SETTINGS[m.setting].describe() for m in measurements}
    return json.dumps(
        {"machine": machine, "settings": settings, "measurements": [asdict(m) for m in measurements]}, indent=1
    )


def measure_in_process(setting: Setting, kinds: list[str], repeats: int, plain: Path | None = None) -> dict[str, Any]:
    """`measure` in a process of its own, with that process's peak memory."""
    arguments = [json.dumps(asdict(setting)), ",".join(kinds), str(repeats), str(plain or "")]
    finished = subprocess.run(
        [sys.executable, "-m", "bnnp.bench", *arguments], capture_output=True, text=True, check=False
    )
    if finished.returncode != 0:
        reason = (finished.stderr.strip().splitlines() or ["killed, perhaps for lack of memory"])[-1]
        raise OSError(f"{setting.describe()}, {' and '.join(kinds)}: {reason}")
    return json.loads(finished.stdout)


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
