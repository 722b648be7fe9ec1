"""Real tables: what `bnnp train` gives with no option, beside classical methods (not in the paper).

The tables are not in the repository. `BNNP_TABLES` names a folder whose `data` has a table (CSV, with a column
`task`) and a plan (JSON: columns `x` and `y`, folds of tasks, contexts of every left-out task) of each name;
`baselines.csv` beside it, where it exists, has scores that others computed by the same plans.
"""

import hashlib
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from baselines import trivial_models
from bnnp._core.files import write_atomically
from bnnp._core.random import child
from bnnp.comparison.methods import METHODS, Predict
from bnnp.comparison.plan import KNOWN, Plan
from bnnp.comparison.run import SCORES, compared
from bnnp.plots import save_figure
from bnnp.tasks import from_table
from bnnp.tasks.source import Collection
from bnnp.tasks.split import context_size, random_split
from bnnp.tasks.task import Task
from claims import Claim, paired
from harness import Run
from score_tables import Estimate, markdown_table, over, text_of

VARIABLE = "BNNP_TABLES"
TRIVIAL = ("population mean", "nearest neighbour")
GIVEN = {"population": "population curve", "hgp": "hierarchical GP", "lmm": "mixed model"}


def _trivial(name: str) -> Any:
    def method(tasks: Sequence[Task], minutes: float, seed: int) -> Predict:
        size = context_size(KNOWN)
        model = trivial_models([random_split(task, size, child(seed, i)) for i, task in enumerate(tasks)])[name]
        return lambda known, x: model.condition(known.x, known.y).predict(x)

    return method


ALL = METHODS | {name: _trivial(name) for name in TRIVIAL}


def runs(settings: Mapping[str, Any]) -> dict[str, Run]:
    """Every method on every fold of every table; the BNNP for every seed."""
    planned = {}
    for table in settings["tables"]:
        for fold in settings["folds"]:
            for method in ALL:
                for seed in settings["seeds"] if method == "bnnp" else settings["seeds"][:1]:
                    own = {"table": table, "fold": fold, "method": method, "minutes": settings["minutes"], "seed": seed}
                    planned[f"{table}-{fold}-{method}-{seed}"] = Run(score, own)
        planned[f"{table}-given"] = Run(given, {"table": table, "folds": settings["folds"]})
    return planned


def score(table: str, fold: int, method: str, minutes: float, seed: int) -> dict[str, Any]:
    """Scores of the tasks that a fold leaves out, over their contexts, in units of the training outputs' spread."""
    tasks, plan, digest = load(table)
    one = Plan([plan.folds[fold]], plan.contexts)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of optimisers of other libraries
        found = compared(tasks, one, {method: ALL[method]}, minutes=minutes, progress=False, seed=seed)
    means = {name: float(found.per_task[name].to_numpy().mean()) for name in SCORES}
    return {"table": digest, "tasks": len(found.per_task), "scores": means}


def given(table: str, folds: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """What others computed by the same plan; nothing if there is no such file."""
    file = folder() / "baselines.csv" if table != "invented" else Path()
    if not file.is_file():
        return {}
    rows = pd.read_csv(file).query("table == @table and fold in @folds")
    parts: Any = rows.groupby("method")
    return {str(name): {score: float(part[score].to_numpy().mean()) for score in SCORES} for name, part in parts}


def folder() -> Path:
    """The folder of the tables.

    Raises:
        FileNotFoundError: If it is not named, or not there.
    """
    named = os.environ.get(VARIABLE, "")
    if not named or not (Path(named) / "data").is_dir():
        raise FileNotFoundError(
            f"{VARIABLE}: got {named!r}, expected a folder with tables and plans in its folder `data`; the head of "
            "experiments/tables/run.py says what is in them"
        )
    return Path(named)


def load(table: str) -> tuple[Collection, Plan, str]:
    """A table as tasks, its plan, and the hash of its file."""
    if table == "invented":
        random = np.random.default_rng(0)
        rows = [(f"t{i}", x, i + x + 0.1 * random.normal()) for i in range(6) for x in np.linspace(0, 1, 8)]
        tasks = from_table(pd.DataFrame(rows, columns=["task", "x", "y"]), task="task", x=["x"], y="y")
        return tasks, Plan.drawn(tasks, 2, 2, 0), "invented"
    file = folder() / "data" / f"{table}.csv"
    plan, contexts = json.loads(file.with_suffix(".json").read_text()), {}
    for case in plan["cases"]:
        contexts.setdefault(case["task"], []).append(case["context"])
    tasks = from_table(file, task="task", x=plan["x"], y=plan["y"])
    return tasks, Plan(plan["folds"], contexts), hashlib.sha256(file.read_bytes()).hexdigest()[:12]


# --- the report ------------------------------------------------------------------------------------------------------


def report(settings: Mapping[str, Any], results: Mapping[str, Any], folder: Path) -> list[Path]:
    sections = []
    for name in SCORES:
        rows = []
        for table in settings["tables"]:
            means = {method: values_of(table, method, name, settings, results) for method in ALL}
            if any(means.values()):
                theirs = results.get(f"{table}-given", {})
                others = [f"{theirs[g][name]:.2f}" if g in theirs else "" for g in GIVEN]
                rows.append([table, *(text_of(over(values)) for values in means.values()), *others])
        header = ["table", *ALL, *(f"{label}, given" for label in GIVEN.values())]
        sections.append(f"## {name}\n\n{markdown_table(header, rows)}")
    text = "Means over folds; of the BNNP, means over seeds of these with their standard errors.\n\n"
    table = write_atomically(folder / "table.md", text + "\n".join(sections))
    return [table, save_figure(_figure(settings, results), folder / "figure.png")]


def values_of(
    table: str, method: str, name: str, settings: Mapping[str, Any], results: Mapping[str, Any]
) -> list[float]:
    """For every seed that has all folds, the mean over these."""
    values = []
    for seed in settings["seeds"]:
        keys = [f"{table}-{fold}-{method}-{seed}" for fold in settings["folds"]]
        if all(key in results for key in keys):
            values.append(float(np.mean([results[key]["scores"][name] for key in keys])))
    return values


def gains_of(
    other: str, name: str, settings: Mapping[str, Any], results: Mapping[str, Any]
) -> tuple[Estimate, int, int]:
    """What the BNNP gains on another method: the mean over tables, the tables, and how many of them it is better on."""
    ours, theirs, sign = [], [], 1 if name == "lppd" else -1
    for table in settings["tables"]:
        pair = [values_of(table, method, name, settings, results) for method in ("bnnp", other)]
        if all(pair):
            ours.append(sign * over(pair[0])[0])
            theirs.append(sign * over(pair[1])[0])
    return paired(ours, theirs), len(ours), sum(a > b for a, b in zip(ours, theirs, strict=True))


def claims(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[Claim]:
    """The standard error is that over tables, which are what such a claim generalises over."""
    claims = []
    for other in ALL:
        for name in ("lppd", "rmse") if other != "bnnp" else ():
            gain, tables, better = gains_of(other, name, settings, results)
            text = f"real tables: the BNNP with no option has the better {name} than {other}"
            ours = f"better on {better} of {tables} tables; mean gain {text_of(gain, 3)}" if tables else ""
            claims.append(Claim("beyond", text, ours=ours, gain=gain, seeds=tables))
    return claims


def _figure(settings: Mapping[str, Any], results: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes, tables = figure.subplots(), settings["tables"]
    for number, method in enumerate(ALL):
        values = [over(values_of(table, method, "lppd", settings, results)) for table in tables]
        places = [place + 0.1 * (number - len(ALL) / 2) for place in range(len(tables))]
        axes.errorbar(places, *zip(*values, strict=True), fmt="o", markersize=4, label=method)
    axes.set_xticks(range(len(tables)), tables, rotation=30, fontsize=8)
    axes.set_ylabel("LPPD")
    axes.legend(fontsize=7, ncols=2)
    return figure
