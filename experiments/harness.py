"""Experiments: many independent runs, each saved as soon as it is done, and a report of all of them.

An experiment is a folder with a `run.py` that has three functions:

    runs(settings) -> dict[str, Run]              what is to be run, by name
    report(settings, results, folder) -> [Path]   tables and figures from the results, by name
    claims(settings, results) -> [Claim]          what the results say of the paper's claims (`claims.py`)

and may have one more:

    search(settings) -> dict[str, dict[str, Run]]   for all that is to be chosen, a run for each choice, whose result
                                                    has a `score` (larger is better) on tasks that are no tests

Settings are those frozen in `settings/SCALE.json`; `records.py` says how their hash keeps records honest. A run is a
function of plain arguments that returns what JSON can hold. If it has a parameter `folder`, it gets the folder of
results there, for files that JSON cannot hold, as trained models. Runs go through joblib, so that they use all cores
here and a cluster elsewhere. One that has been done with the same arguments is not repeated; one that fails loses
only itself, and those that need it. Processes that joblib starts on this machine find this file as the one that
started them did; on a cluster, put its folder on `PYTHONPATH`.

`common.py` has what several experiments do alike, `baselines.py` what is trivial, `score_tables.py` their tables.
"""

import importlib.util
import inspect
import json
import os
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
from records import (
    REVISION,
    Kept,
    error_file,
    fingerprint,
    freeze_choice,
    kept_record,
    note_look,
    read_settings,
    record_file,
    settings_file,
    why_stale,
    without_choice,
)

SCALES = ("smoke", "small", "long", "paper")
shows_training = ContextVar("whether training within a run has a bar", default=False)
trainings: ContextVar[list[dict[str, Any]] | None] = ContextVar(
    "what a run's trainings say of how they ended", default=None
)


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


@dataclass(frozen=True)
class Plan:
    """What is to be run, and where its records go.

    searches: whether the runs are those of the search for settings, and not those under the settings that it froze.
    """

    experiment: Path
    scale: str
    place: Path
    searches: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        found = read_settings(self.experiment, self.scale)
        return without_choice(found) if self.searches else found

    def runs(self) -> dict[str, Run]:
        if not self.searches:
            settings = {name: value for name, value in self.settings.items() if name != REVISION}
            return load_experiment(self.experiment).runs(settings)
        return {f"{what}-{name}": run for what, choices in self.choices().items() for name, run in choices.items()}

    def choices(self) -> dict[str, dict[str, Run]]:
        """Of the search: by what is to be chosen, the run of every choice."""
        module = load_experiment(self.experiment)
        if not hasattr(module, "search"):
            raise ValueError(f"search: {self.experiment.name} has nothing to choose; give its command without --search")
        return module.search(self.settings)

    def identity(self, planned: Mapping[str, Run], key: str) -> dict[str, Any]:
        """What makes a run another one: its own arguments, those of the runs it needs, and what is frozen.

        Runs of a search come before anything is frozen; those of other choices do not touch them.
        """
        frozen = {} if self.searches else {"frozen": fingerprint(self.settings)}
        return frozen | _arguments(planned, key)

    def kept(self) -> Kept:
        """The records of all planned runs that are there, stale or not."""
        planned = self.runs()
        records = {key: found for key in planned if (found := kept_record(self.place, key)) is not None}
        stale = {key: why_stale(found, self.identity(planned, key)) for key, found in records.items()}
        return Kept(records, {key: why for key, why in stale.items() if why})

    def failed(self) -> dict[str, str]:
        files = {key: error_file(self.place, key) for key in self.runs()}
        return {key: file.read_text().strip().splitlines()[-1] for key, file in files.items() if file.exists()}


def experiment_names(folder: Path) -> list[str]:
    """The experiments in a folder."""
    return sorted(path.parent.name for path in folder.glob("*/run.py"))


def plan_of(folder: Path, name: str, scale: str, out: Path | None = None, *, searches: bool = False) -> Plan:
    """The plan of an experiment.

    Raises:
        ValueError: If there is no such experiment, or it has no such scale.
    """
    if name not in experiment_names(folder):
        raise ValueError(f"experiment: got {name!r}, expected one of {', '.join(experiment_names(folder))}")
    if scale not in SCALES:
        raise ValueError(f"scale: got {scale!r}, expected one of {', '.join(SCALES)}")
    if not settings_file(folder / name, scale).is_file():
        there = [one for one in SCALES if settings_file(folder / name, one).is_file()]
        raise ValueError(f"scale: got {scale!r}, expected one of {', '.join(there)}; {name} has settings of no other")
    where = "search" if searches else "results"
    return Plan(folder / name, scale, folder / name / where / scale if out is None else out, searches)


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
    """Do the runs of an experiment that are not done yet, and report. Stale records are made again.

    folder: where the experiments are.
    out: a folder for results; `NAME/results/SCALE` beside the experiment if not given.
    only: runs whose name contains this, and those they need.
    """
    plan = plan_of(folder, name, scale, out)
    done = plan.kept().results()
    chosen = [key for key in _chosen(plan, only) if key not in done]
    if chosen:
        note_look(plan.place, fingerprint(plan.settings), made_by()["commit"])
    _do(plan, chosen, workers, backend, progress)
    return report_of(plan)


def report_of(plan: Plan) -> Outcome:
    """Tables and figures of the records that are there and not stale, without doing any run."""
    results = plan.kept().results()
    files = list(load_experiment(plan.experiment).report(plan.settings, results, plan.place)) if results else []
    return Outcome(results, plan.failed(), files)


def perform_search(
    folder: Path,
    name: str,
    scale: str,
    out: Path | None = None,
    *,
    workers: int = 1,
    backend: str = "loky",
    only: str = "",
    progress: bool = False,
) -> dict[str, str]:
    """Score all choices on tasks that are no tests, and freeze the best of them in the settings.

    With `out` the records go there, and the settings stay as they are. `only`: of what is to be chosen, what contains
    this.

    Returns:
        By what was to be chosen, the name of the best choice.
    """
    plan = plan_of(folder, name, scale, out, searches=True)
    choices, done = plan.choices(), plan.kept().results()
    several = [what for what in choices if only in what and len(choices[what]) > 1]
    wanted = [f"{what}-{name}" for what in several for name in choices[what]]
    _do(plan, [key for key in wanted if key not in done], workers, backend, progress)
    failed = {key: why for key, why in plan.failed().items() if key in wanted}
    if failed:
        raise RuntimeError(f"search: {', '.join(failed)} failed ({next(iter(failed.values()))}); nothing was chosen")
    best = best_choices(plan)
    if out is None:
        freeze_choice(plan.experiment, scale, best)
    return best


def best_choices(plan: Plan) -> dict[str, str]:
    """By what is to be chosen, the choice with the best score, where the search has scored all; or the only one."""
    results, best = plan.kept().results(), {}
    for what, choices in plan.choices().items():
        if len(choices) == 1:
            best[what] = next(iter(choices))
            continue
        keys = {name: f"{what}-{name}" for name in choices}
        if all(key in results for key in keys.values()):
            scores = {name: results[key]["score"] for name, key in keys.items()}
            best[what] = max(scores, key=scores.__getitem__)
    return best


def _chosen(plan: Plan, only: str) -> list[str]:
    planned = plan.runs()
    return _with_needs(planned, [key for key in planned if only in key])


def _do(plan: Plan, wanted: list[str], workers: int, backend: str, progress: bool) -> None:
    """Do runs, each when those that it needs have been done."""
    planned = plan.runs()
    shows_training.set(progress and workers == 1)  # bars of several processes would overwrite each other
    with (
        ProgressBar(len(planned), len(planned) - len(wanted), enabled=progress, label=plan.experiment.name) as bar,
        joblib.parallel_config(backend=backend, n_jobs=workers),
    ):
        for wave in _waves(planned, wanted):
            at_once = len(wave) if workers < 0 else min(workers, len(wave))
            calls = [joblib.delayed(_perform_one)(plan, key, at_once) for key in wave]
            for _ in joblib.Parallel(return_as="generator_unordered")(calls):
                bar.advance()


def _perform_one(plan: Plan, key: str, at_once: int) -> None:
    """In a process of its own; the experiment is loaded there anew, since functions of a folder cannot be sent.

    at_once: runs side by side; each has one thread then, and one by itself has all.
    """
    planned = plan.runs()
    run, error = planned[key], error_file(plan.place, key)
    if at_once > 1:
        torch.set_num_threads(1)
    start, worked, maker = time.perf_counter(), processor_seconds(), made_by()  # of the code as it is at the start
    error.unlink(missing_ok=True)
    ends: list[dict[str, Any]] = []
    trainings.set(ends)
    try:
        done = plan.kept().results()
        missing = [need for need in run.needs if need not in done]
        if missing:
            raise FileNotFoundError(f"needs {', '.join(missing)}, which has not been done")
        wants_folder = "folder" in inspect.signature(run.function).parameters
        result = run.function(**run.arguments, **({"folder": plan.place} if wants_folder else {}))
    except Exception:  # one run's error must not end the others; it is kept, and told at the end
        write_atomically(error, traceback.format_exc())
        return
    took = {"seconds": time.perf_counter() - start, "processor_seconds": processor_seconds() - worked}
    record = {**plan.identity(planned, key), "made_by": maker, **took} | ({"trainings": ends} if ends else {})
    write_atomically(record_file(plan.place, key), json.dumps(record | {"result": result}, separators=(",", ":")))


def processor_seconds() -> float:
    """Of this process and those that it started and that have ended."""
    return sum(os.times()[:4])


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


def _arguments(planned: Mapping[str, Run], key: str) -> dict[str, Any]:
    run = planned[key]
    needs = {need: _arguments(planned, need) for need in run.needs}
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


def load_experiment(folder: Path) -> ModuleType:
    """The experiment's `run.py`, as a package of the files beside it: `from .climate import climate` works there."""
    name = f"bnnp_experiment_{folder.name}"
    spec = importlib.util.spec_from_file_location(name, folder / "run.py", submodule_search_locations=[str(folder)])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
