"""A table as people have them: an id, a date, a category with an unseen level, an empty covariate, a text label."""

import json

import numpy as np
import pandas as pd
import pytest

import bnnp
from support.command_line import run

INPUTS = ["visit", "site", "weight"]


def clinic(subjects: int = 6, points: int = 5) -> pd.DataFrame:
    random = np.random.default_rng(0)
    rows = []
    for subject in range(subjects):
        first, weight = pd.Timestamp("2024-03-01") + pd.Timedelta(days=3 * subject), 60 + 5.0 * subject
        for point in range(points):
            day, level = first + pd.Timedelta(days=point), subject + point + random.normal()
            site, own = ("north", "south")[subject % 2], np.nan if subject == 3 else weight
            rows.append((f"s{subject}", str(day.date()), site, own, level, "high" if level > 4 else "low"))
    return pd.DataFrame(rows, columns=["who", "visit", "site", "weight", "level", "label"])


@pytest.fixture(params=["level", "label"])
def trained(request, tmp_path, monkeypatch, capsys):
    table = clinic()
    table.loc[7, request.param] = np.nan
    table.to_csv(tmp_path / "clinic.csv", index=False)
    columns = [word for name in INPUTS for word in ("--x", name)]
    words = ["--task", "who", *columns, "--y", request.param, "--hidden", 4, "--steps", 2, "--quiet"]
    code, _, err = run(monkeypatch, capsys, "train", tmp_path / "clinic.csv", *words, "--out", tmp_path / "model")
    assert code == 0, err
    assert f"left out: 1 rows of {tmp_path / 'clinic.csv'} without {request.param} (row 9)" in err
    return request.param, tmp_path


def test_the_command_line_and_python_give_the_same_numbers(trained, monkeypatch, capsys):
    y, folder = trained
    known = clinic(1).assign(who="new")
    wanted = known.assign(site=["moon", *known["site"][1:]]).drop(columns=["level", "label"])
    wanted.loc[1, "weight"] = np.nan
    known.to_csv(folder / "known.csv", index=False)
    wanted.to_csv(folder / "wanted.csv", index=False)
    files = ["--context", folder / "known.csv", "--targets", folder / "wanted.csv", "--out", folder / "p.csv"]
    code, _, err = run(monkeypatch, capsys, "predict", folder / "model", *files, "--samples", 8)
    assert code == 0, err
    assert "1 of 5 targets have an empty cell or a category that training did not have" in err
    found = pd.read_csv(folder / "p.csv")
    assert found[["visit", "site"]].equals(wanted[["visit", "site"]])
    assert found["outside_training"].tolist() == [True, False, False, False, False]
    model = bnnp.load(folder / "model")
    posterior = model.condition(known[INPUTS], known[y], num_samples=8)
    with pytest.warns(bnnp.ExtrapolationWarning, match="1 of 5 rows have an empty cell or a category"):
        predictive = posterior.predict(wanted[INPUTS])
    assert model.columns.outside(wanted[INPUTS]).tolist() == found["outside_training"].tolist()
    names = ["level_mean"] if y == "level" else ["label_is_high", "label_is_low"]
    np.testing.assert_allclose(found[names], predictive.mean, rtol=1e-6)


def test_a_table_is_evaluated_with_the_columns_that_training_used(trained, monkeypatch, capsys):
    y, folder = trained
    clinic(3).assign(site="moon").to_csv(folder / "test.csv", index=False)
    words = ["--samples", 8, "--quiet", "--out", folder / "s.json"]
    code, _, err = run(monkeypatch, capsys, "evaluate", folder / "model", folder / "test.csv", *words)
    assert code == 0, err
    model = bnnp.load(folder / "model")
    tasks = bnnp.tasks.from_table(folder / "test.csv", task="who", x=INPUTS, y=y, like=model)
    score = "rmse" if y == "level" else "accuracy"
    expected = bnnp.evaluate(model, tasks, num_samples=8, seed=0, progress=False)[score]
    found = json.loads((folder / "s.json").read_text())["scores"]
    assert found[score]["mean"] == pytest.approx(expected)


def test_a_column_of_words_is_not_taken_for_numbers(trained, monkeypatch, capsys):
    y, folder = trained
    if y == "label":
        words = ["--task", "who", "--x", "visit", "--y", y, "--likelihood", "gaussian", "--quiet"]
        code, _, err = run(monkeypatch, capsys, "train", folder / "clinic.csv", *words, "--out", folder / "other")
        assert code == 2
        assert "'label' holds words" in err
