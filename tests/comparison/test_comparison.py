"""Left-out data sets predicted by several methods, with the same folds and contexts, and scores that are known."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import bnnp
from bnnp.comparison.methods import METHODS, Normal
from bnnp.comparison.plan import Plan
from bnnp.comparison.run import compared
from support.command_line import run

SIMPLE = {name: METHODS[name] for name in ("mixed model", "hierarchical GP", "population curve")}


def lines(subjects: int = 9, points: int = 6) -> pd.DataFrame:
    """Lines that differ by height and slope: what a linear mixed model is made for."""
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"who": np.repeat(np.arange(subjects), points), "time": np.tile(np.arange(points), subjects)})
    height, slope = (np.repeat(random.normal(size=subjects), points) for _ in range(2))
    return frame.assign(conc=5 + height + slope * frame["time"] + 0.1 * random.normal(size=len(frame)))


@pytest.fixture(scope="module")
def found():
    tasks = bnnp.tasks.from_table(lines(), task="who", x="time", y="conc")
    return compared(tasks, Plan.drawn(tasks, 3, 2, 0), SIMPLE, minutes=1, progress=False, seed=0)


def test_the_method_that_is_right_is_best(found):
    table = found.table()
    assert table["lppd"].idxmax() == "mixed model"
    assert table["lppd"].idxmin() == "population curve"
    assert (table[["crps", "rmse"]].min() > 0).all()
    assert table["coverage"].between(0.5, 1).all()
    assert (table["seconds"] > 0).all()
    assert len(found.per_task) == 9 * len(SIMPLE)


def test_differences_are_paired_over_data_sets_and_real_beyond_two_standard_errors(found):
    gains = found.differences().set_index(["than", "in"])
    wide = found.per_task.pivot_table(index="task", columns="method", values="crps")
    gain = wide["population curve"] - wide["mixed model"]
    row = gains.loc[("population curve", "crps")]
    assert row["gain"] == pytest.approx(gain.mean())
    assert row["error"] == pytest.approx(gain.std() / 3)
    assert row["real"] == (abs(gain.mean()) > 2 * gain.std() / 3)
    assert bool(row["real"])
    assert len(found.figure().axes) == 4


def test_a_plan_leaves_every_data_set_out_once_and_knows_a_third_of_it():
    tasks = bnnp.tasks.from_table(lines(), task="who", x="time", y="conc")
    plan = Plan.drawn(tasks, 3, 2, 0)
    assert sorted(name for fold in plan.folds for name in fold) == sorted(task.name for task in tasks.tasks)
    known, splits = plan.parts(tasks, 0)
    assert {task.name for task in known}.isdisjoint({split.target.name for split in splits})
    assert [(len(split.context), len(split.target)) for split in splits] == [(2, 4)] * 6
    np.testing.assert_allclose(torch.cat([task.y for task in known]).std(), 1)


def test_the_mixed_model_predicts_as_the_normal_distribution_says():
    """Given its variances: the mean and variance of new points by conditioning all points at once."""
    tasks = bnnp.tasks.from_table(lines(), task="who", x="time", y="conc").standardised().tasks
    known, new = tasks[0].take(torch.arange(3)), tasks[0].x[3:]
    short, long = METHODS["mixed model"](tasks[1:], 1, 0)(known, new), METHODS["mixed model"](tasks[1:], 1, 0)
    nothing = long(tasks[0].take(torch.arange(0)), new)
    assert isinstance(short, Normal)
    assert isinstance(nothing, Normal)
    assert (short.std < nothing.std).all()
    assert np.abs(short.mean - tasks[0].y[3:, 0].numpy()).max() < 3 * short.std.max()


def test_the_mixed_model_has_a_spread_where_few_data_sets_leave_no_variance_between_them():
    """Statsmodels' own covariance of the shared effects is then not one: variances below zero were NaN scores."""
    random = np.random.default_rng(39)
    who, time = np.repeat([0, 1, 2], 11), np.tile(np.linspace(0.25, 24, 11), 3)
    dose = np.array([0.6, 1.0, 1.4])[who]
    height, pace = (np.exp(0.3 * random.normal(size=3))[who] for _ in range(2))
    conc = dose * height * time * np.exp(-time / (4 * pace)) + 0.3 * random.normal(size=33)
    frame = pd.DataFrame({"who": who, "time": time, "dose": dose, "conc": conc})
    tasks = bnnp.tasks.from_table(frame, task="who", x=["time", "dose"], y="conc").standardised().tasks
    predict = METHODS["mixed model"](tasks, 1, 0)
    for task in tasks:
        predicted = predict(task.take(torch.arange(4)), task.x[4:])
        assert isinstance(predicted, Normal)
        assert (predicted.std > 0).all()


def test_the_command_writes_scores_gains_and_a_figure(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bnnp.comparison.run.METHODS", SIMPLE)
    lines().to_csv(tmp_path / "t.csv", index=False)
    words = ["--task", "who", "--x", "time", "--y", "conc", "--folds", 2, "--quiet", "--out", tmp_path / "out"]
    code, out, err = run(monkeypatch, capsys, "compare", tmp_path / "t.csv", *words)
    assert code == 0, err
    assert "mixed model" in out
    assert "gain on population curve in lppd" in err
    assert len(pd.read_csv(tmp_path / "out" / "scores.csv")) == 27
    assert (tmp_path / "out" / "comparison.png").stat().st_size > 0
    assert run(monkeypatch, capsys, "compare", tmp_path / "t.csv", *words[:-5], "--folds", 20)[0] == 2


def test_rows_with_empty_cells_and_small_data_sets_can_be_left_out(tmp_path, monkeypatch, capsys):
    seen = []

    def population(known, minutes, seed):
        seen.extend(task for task in known)
        return SIMPLE["population curve"](known, minutes, seed)

    monkeypatch.setattr("bnnp.comparison.run.METHODS", {"population curve": population})
    frame = lines().astype({"time": float})
    frame.loc[3, "time"] = np.nan
    frame.loc[len(frame)] = [99, 0.0, 5.0]
    frame.to_csv(tmp_path / "t.csv", index=False)
    words = ["--task", "who", "--x", "time", "--y", "conc", "--folds", 2, "--quiet", "--out", tmp_path / "out"]
    code, _, err = run(monkeypatch, capsys, "compare", tmp_path / "t.csv", *words, "--drop-missing", "--skip-small")
    assert code == 0, err
    assert "with empty cells" in err
    assert "data sets with too few points" in err
    assert {task.x.shape[1] for task in seen} == {1}  # no input that says what is unknown
    assert sorted({(task.name, len(task)) for task in seen})[:2] == [("0", 5), ("1", 6)]


@pytest.mark.parametrize("name", ["sleepstudy", "Loblolly"])
def test_the_simple_methods_agree_with_scores_that_others_computed(name):
    """The population curve and the GP closely; the mixed model has other splines, with which it may be better."""
    root = Path(__file__).parents[2]
    folder = root.parent / "shared" / "tables"
    if not (folder / "baselines.csv").is_file():
        pytest.skip("the tables with their scores are not there")
    sys.path.insert(0, str(root / "benchmarks"))
    from compare_tables import beside  # pyright: ignore[reportMissingImports]

    both = beside(folder, name)
    gap = (both["lppd"] - both["lppd_given"]).abs()
    assert gap["population"] < 0.005
    assert gap["hgp"] < 0.03
    assert gap["lmm"] < 0.2
    assert (both["rmse"] / both["rmse_given"]).between(0.8, 1.1).all()
