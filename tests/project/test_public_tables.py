"""Public tables of the experiment on tables: which are held out, and their plans."""

import importlib.util
from pathlib import Path

import pandas as pd

FILE = Path(__file__).parents[2] / "experiments" / "tables" / "public.py"
spec = importlib.util.spec_from_file_location("public_tables", FILE)
assert spec is not None
assert spec.loader is not None
public = importlib.util.module_from_spec(spec)
spec.loader.exec_module(public)


def test_half_of_the_tables_is_held_out_and_small_scores_just_these():
    assert 2 * len(public.HELD_OUT) == len(public.TABLES)
    settings = pd.read_json(FILE.parent / "settings" / "small.json", typ="series")
    assert set(settings["tables"]) == set(public.HELD_OUT)


def test_a_plan_leaves_every_task_out_once_and_knows_a_third_of_it():
    sizes = {"a": 4, "b": 9, "c": 6, "d": 5, "e": 30}
    rows = [(task, float(i), float(i)) for task, size in sizes.items() for i in range(size)]
    plan = public.plan("Orthodont", pd.DataFrame(rows, columns=["task", "age", "distance"]))
    assert (plan["x"], plan["y"]) == (["age"], "distance")
    assert sorted(task for fold in plan["folds"] for task in fold) == sorted(sizes)
    assert len(plan["cases"]) == public.DRAWS * len(sizes)
    for case in plan["cases"]:
        size, known = sizes[case["task"]], case["context"]
        assert case["task"] in plan["folds"][case["fold"]]
        assert len(set(known)) == len(known) == max(1, round(size / 3))
        assert 0 <= min(known) <= max(known) < size
