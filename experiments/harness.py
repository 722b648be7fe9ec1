"""Experiments: many independent runs, each saved as soon as it is done, and a report of all of them.

An experiment is a folder with a `run.py` that has two functions:

    runs(scale) -> dict[str, Run]              what is to be run, by name
    report(scale, results, folder) -> [Path]   tables and figures from the results, by name

A run is a function of plain arguments that returns what JSON can hold. If it has a parameter `folder`, it gets the
folder of results there, for files that JSON cannot hold, as trained models. Runs go through joblib, so that they use
all cores here and a cluster elsewhere. One that has been done with the same arguments is not repeated; one that fails
loses only itself, and those that need it. Processes that joblib starts on this machine find this file as the one that
started them did; on a cluster, put its folder on `PYTHONPATH`.

At the end of this file are the few things that several experiments do alike: fixed random tests, training with a model
kept in the folder, scores of many posteriors. `score_tables.py` has their tables.
"""

import importlib.util
import inspect
import json
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import joblib
import pandas as pd
import torch

from bnnp._core.files import write_atomically
from bnnp._core.progress import ProgressBar
from bnnp._core.random import child
from bnnp.evaluation.score import score, with_noise
from bnnp.evaluation.scores import Posterior, Scores
from bnnp.objectives import PPAVI
from bnnp.tasks.source import TaskSource
from bnnp.tasks.split import context_size, random_split
from bnnp.tasks.task import Split
from bnnp.training import FitSettings, fit, start_prior

SCALES = ("smoke", "small", "paper")
_shows_training = ContextVar("whether training within a run has a bar", default=False)


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
    _shows_training.set(progress and workers == 1)  # bars of several processes would overwrite each other
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
    record = {**_identity(planned, key), "seconds": time.perf_counter() - start, "result": result}
    write_atomically(_file(place, key), json.dumps(record, indent=1))


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


# --- what several experiments do alike -------------------------------------------------------------------------------


def fixed_tests(source: TaskSource, count: int, context_share: tuple[float, float], seed: int) -> list[Split]:
    """Tasks and contexts that are the same whenever they are asked for."""
    size = context_size(context_share)
    drawn = source.draw(count, child(seed, 0))
    return [random_split(task, size, child(seed, 1, i)) for i, task in enumerate(drawn)]


def model_file(folder: Path, name: str) -> Path:
    return folder / "models" / f"{name}.bnnp"


RECIPES = {
    "default": FitSettings(),
    "standard start": FitSettings(prior_start="standard"),
    "switch": FitSettings(prior_start="switch"),
    "floor": FitSettings(prior_start="floor"),
    "place": FitSettings(prior_start="place"),
    "paper": FitSettings(prior_start="standard", clip_norm=None, optimiser=torch.optim.Adam),
}
"""How training differs between the library's defaults and the paper (`docs/training.md`)."""


def train(
    model: Any,
    tasks: TaskSource,
    folder: Path,
    name: str,
    *,
    recipe: str = "default",
    hold_prior: bool = False,
    seed: int = 0,
    **choices: Any,
) -> Any:
    """`bnnp.fit`, the model being kept in the folder; one that was stopped goes on from there.

    Args:
        model: The model to train.
        tasks: What it learns from.
        folder: Of the experiment's results.
        name: Of the model's file.
        recipe: Settings that others change (`RECIPES`).
        hold_prior: Whether the prior stays where the recipe starts it, or where it is already.
        seed: Of the start and of training.
        choices: Other arguments of `bnnp.fit`, and fields of `bnnp.FitSettings`.
    """
    state = folder / "models" / f"{name}-training"
    changed = {key: choices.pop(key) for key in vars(RECIPES[recipe]) if key in choices}
    settings = replace(RECIPES[recipe], **changed)
    if hold_prior:
        start_prior(model, tasks, settings.prior_start, seed)
        model.set_prior_learnability(0)
    fit(model, tasks, settings=settings, checkpoint=state, progress=_shows_training.get(), seed=seed, **choices)
    if hold_prior:
        model.set_prior_learnability(1)
    model.save(model_file(folder, name))
    shutil.rmtree(state, ignore_errors=True)
    return model


def train_prior_first(
    model: Any,
    tasks: TaskSource,
    folder: Path,
    name: str,
    *,
    samples: int,
    steps: tuple[int, int],
    learning_rate: tuple[float, float],
    recipe: str = "default",
    seed: int = 0,
    **choices: Any,
) -> Any:
    """Learn the prior, mostly by the bounds of the contexts; then the inference under it, by all of the objective.

    The predictive term is a noisy sum over samples of products over targets. While the prior learns, its noise drowns
    what the KL says about the prior's scales; so it has a tenth of its weight, and the whole where the prior is fixed.
    """
    first, second = PPAVI(samples, predictive_weight=0.1), PPAVI(samples)
    train(
        model,
        tasks,
        folder,
        name,
        recipe=recipe,
        objective=first,
        steps=steps[0],
        learning_rate=learning_rate,
        seed=seed,
        **choices,
    )
    rates = (learning_rate[0] / 2, learning_rate[1] / 2)
    choices |= {"learning_rate": rates, "hold_prior": True, "seed": seed + 1}
    return train(model, tasks, folder, name, objective=second, steps=steps[1], **choices)


def score_sets(
    posteriors: Sequence[Posterior], splits: Sequence[Split], y_scale: float = 1.0, noise: float | None = None
) -> dict[str, Any]:
    """Scores of posteriors at the targets of their data sets, as `Scores.to_dict` has them.

    y_scale: errors are multiplied by it, so that they are in original units while log-densities are per standard one.
    noise: of observations, where it is not the posteriors' own.
    """
    rows = []
    for index, (post, split) in enumerate(zip(posteriors, splits, strict=True)):
        predictive = post.predict(split.target.x)
        predictive = predictive if noise is None else with_noise(predictive, noise)
        rows.append(score(predictive, split.target.y, child(0, index)))
    frame = pd.DataFrame(rows, index=[split.target.name or str(i) for i, split in enumerate(splits)])
    for name in ("mae", "rmse", "crps"):
        frame[name] *= y_scale
    return Scores(frame).to_dict()
