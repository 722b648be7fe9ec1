"""The simple methods of `bnnp.compare` beside scores that others computed, by the same folds and contexts.

    python benchmarks/compare_tables.py FOLDER --tables sleepstudy Loblolly
    python benchmarks/compare_tables.py FOLDER --tables Orange --bnnp 1

The second trains a BNNP in each fold too; no new round of its training begins after 1 minute.

FOLDER holds `baselines.csv` (columns table, fold, method, lppd, crps, rmse, coverage) and `data`, with a table (CSV,
with a column `task`) and a plan (JSON) of each name.
"""

import argparse
import json
from pathlib import Path

import pandas as pd

from bnnp.comparison.methods import METHODS
from bnnp.comparison.plan import Plan
from bnnp.comparison.run import SCORES, compared
from bnnp.tasks import from_table

THEIRS = {"population curve": "population", "hierarchical GP": "hgp", "mixed model": "lmm"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", nargs="+", required=True)
    parser.add_argument("--bnnp", type=float, metavar="MINUTES", help="train a BNNP too, so long in each fold")
    given = parser.parse_args()
    for name in given.tables:
        print(f"\n{name}\n{beside(given.folder, name, given.bnnp).round(3).to_string()}", flush=True)


def beside(folder: Path, name: str, minutes: float | None = None) -> pd.DataFrame:
    """Our scores and theirs, means over folds, by method."""
    plan = json.loads((folder / "data" / f"{name}.json").read_text())
    contexts: dict[str, list[list[int]]] = {}
    for case in plan["cases"]:
        contexts.setdefault(case["task"], []).append(case["context"])
    tasks = from_table(folder / "data" / f"{name}.csv", task="task", x=plan["x"], y=plan["y"])
    methods = {name: method for name, method in METHODS.items() if name in THEIRS or minutes is not None}
    ours = compared(tasks, Plan(plan["folds"], contexts), methods, minutes=minutes or 1, progress=False, seed=0)
    folds = pd.DataFrame(ours.per_task.groupby(["method", "fold"])[list(SCORES)].mean())
    means = pd.DataFrame(folds.groupby("method").mean()).rename(index=THEIRS)
    theirs = pd.read_csv(folder / "baselines.csv").query("table == @name")
    given = pd.DataFrame(theirs.groupby("method")[list(SCORES)].mean()).add_suffix("_given")
    return means.join(given)


if __name__ == "__main__":
    main()
