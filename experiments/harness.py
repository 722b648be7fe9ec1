"""Experiments: many independent runs, each saved as soon as it is done, and a report of all of them.

An experiment is a folder with a `run.py` that has two functions:

    runs(scale) -> dict[str, Run]              what is to be run, by name
    report(scale, results, folder) -> [Path]   tables and figures from the results, by name

A run is a function of plain arguments that returns what JSON can hold. If it has a parameter `folder`, it gets the
folder of results there, for files that JSON cannot hold, as trained models. Runs go through joblib, so that they use
all cores here and a cluster elsewhere. One that has been done with the same arguments is not repeated; one that fails
loses only itself, and those that need it. Processes that joblib starts on this machine find this file as the one that
started them did; on a cluster, put its folder on `PYTHONPATH`.

`common.py` has what several experiments do alike, `score_tables.py` their tables.
"""

import importlib.util
import inspect
import json
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import joblib
import torch

import bnnp
from bnnp._core.files import write_atomically
from bnnp._core.progress import ProgressBar

SCALES = ("smoke", "small", "paper")
shows_training = ContextVar("whether training within a run has a bar", default=False)


@dataclass(frozen=True)
class Run:
    """A call of `function` with `arguments`, which JSON can hold.

    needs: names of the runs that must have been done before, since this one uses the files they leave.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """results: by name of the run.  failed: names of the runs that raised an error, with its last line."""

    results: dict[str, Any]
    failed: dict[str, str]
    files: list[Path]


def experiment_names(folder: Path) -> list[str]:
    """The experiments in a folder."""
    return sorted(path.parent.name for path in folder.glob("*/run.py"))


def perform(
    folder: Path,
    name: str,
    scale: str,
    out: Path | None = None,
    *,
    workers: int = 1,
    backend: str = "loky",
    only: str = "",
    progress: bool = False,
) -> Outcome:
    """Do the runs of an experiment that are not done yet, and report.

    folder: where the experiments are.
    out: a folder for results; `NAME/results/SCALE` beside the experiment if not given.
    only: runs whose name contains this, and those they need.
    """
    if name not in experiment_names(folder):
        raise ValueError(f"experiment: got {name!r}, expected one of {', '.join(experiment_names(folder))}")
    if scale not in SCALES:
        raise ValueError(f"scale: got {scale!r}, expected one of {', '.join(SCALES)}")
    place = folder / name / "results" / scale if out is None else out
    planned = _module(folder / name).runs(scale)
    chosen = _with_needs(planned, [key for key in planned if only in key])
    wanted = [key for key in chosen if _done(place, key, planned) is None]
    shows_training.set(progress and workers == 1)  # bars of several processes would overwrite each other
    with (
        ProgressBar(len(planned), len(planned) - len(wanted), enabled=progress, label=name) as bar,
        joblib.parallel_config(backend=backend, n_jobs=workers),
    ):
        for wave in _waves(planned, wanted):
            at_once = len(wave) if workers < 0 else min(workers, len(wave))
            calls = [joblib.delayed(_perform_one)(folder / name, scale, key, place, at_once) for key in wave]
            for _ in joblib.Parallel(return_as="generator_unordered")(calls):
                bar.advance()
    results = {key: _done(place, key, planned) for key in planned}
    failed = {key: _last_line(_error_file(place, key)) for key in planned if _error_file(place, key).exists()}
    found = {key: record["result"] for key, record in results.items() if record is not None}
    files = list(_module(folder / name).report(scale, found, place)) if found else []
    return Outcome(found, failed, files)


def _perform_one(folder: Path, scale: str, key: str, place: Path, at_once: int) -> None:
    """In a process of its own; the experiment is loaded there anew, since functions of a folder cannot be sent.

    at_once: runs side by side; each has one thread then, and one by itself has all.
    """
    planned = _module(folder).runs(scale)
    run = planned[key]
    if at_once > 1:
        torch.set_num_threads(1)
    start = time.perf_counter()
    _error_file(place, key).unlink(missing_ok=True)
    try:
        missing = [need for need in run.needs if _done(place, need, planned) is None]
        if missing:
            raise FileNotFoundError(f"needs {', '.join(missing)}, which has not been done")
        wants_folder = "folder" in inspect.signature(run.function).parameters
        result = run.function(**run.arguments, **({"folder": place} if wants_folder else {}))
    except Exception:  # one run's error must not end the others; it is kept, and told at the end
        write_atomically(_error_file(place, key), traceback.format_exc())
        return
    record = {**_identity(planned, key), "made_by": made_by(), "seconds": time.perf_counter() - start}
    write_atomically(_file(place, key), json.dumps(record | {"result": result}, separators=(",", ":")))


def made_by() -> dict[str, str]:
    """The commit and the versions that a result comes from."""
    changed = " and changes" if _git("diff", "--name-only", "HEAD", "--", ":/*.py") else ""
    commit = (_git("rev-parse", "--short", "HEAD") or "unknown") + changed
    versions = {name: version(name) for name in ("torch", "numpy", "numba")}
    return {"commit": commit, "bnnp": bnnp.__version__, "python": platform.python_version(), **versions}


def _git(*words: str) -> str:
    """What git says about the repository of this file; nothing where there is no git or no repository."""
    command = ["git", "-C", str(Path(__file__).resolve().parent), *words]
    with suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def _done(place: Path, key: str, planned: Mapping[str, Run]) -> dict | None:
    """What an earlier run with the same arguments has left."""
    path = _file(place, key)
    if not path.exists():
        return None
    record = json.loads(path.read_text())
    wanted = json.loads(json.dumps(_identity(planned, key)))
    return record if {name: record.get(name) for name in wanted} == wanted else None


def _identity(planned: Mapping[str, Run], key: str) -> dict[str, Any]:
    """What makes a run another one: its own arguments, and those of the runs it needs."""
    run = planned[key]
    needs = {need: _identity(planned, need) for need in run.needs}
    return {"arguments": dict(run.arguments)} | ({"needs": needs} if needs else {})


def _with_needs(planned: Mapping[str, Run], keys: list[str]) -> list[str]:
    """These runs and all that they need, in the order they are planned in."""
    found, open_ = set(keys), list(keys)
    while open_:
        new = [need for need in planned[open_.pop()].needs if need not in found]
        found.update(new)
        open_ += new
    return [key for key in planned if key in found]


def _waves(planned: Mapping[str, Run], wanted: list[str]) -> Iterator[list[str]]:
    """Runs that can go side by side, wave after wave: none needs another of its own or a later wave."""
    left = list(wanted)
    while left:
        wave = [key for key in left if not set(planned[key].needs) & set(left)]
        if not wave:
            raise ValueError(f"runs: {', '.join(left)} need each other in a circle")
        yield wave
        left = [key for key in left if key not in wave]


def _file(place: Path, key: str) -> Path:
    return place / "runs" / f"{key}.json"


def _error_file(place: Path, key: str) -> Path:
    return place / "runs" / f"{key}.error.txt"


def _last_line(path: Path) -> str:
    return path.read_text().strip().splitlines()[-1]


def _module(folder: Path) -> ModuleType:
    """The experiment's `run.py`, as a package of the files beside it: `from .climate import climate` works there."""
    name = f"bnnp_experiment_{folder.name}"
    spec = importlib.util.spec_from_file_location(name, folder / "run.py", submodule_search_locations=[str(folder)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
