"""`bnnp predict` in windows: numbers do not depend on windows or workers, and finished windows are not done again."""

import numpy as np
import pandas as pd
import pytest

import bnnp
from bnnp.cli import windows
from bnnp.questions import Question, prediction_numbers
from support.command_line import run


@pytest.fixture(scope="module")
def model():
    return bnnp.BNNP(1, 1, hidden=(4,), seed=0)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """A model, and the tables of seven subjects, whose rows are mixed; one has no known points."""
    folder, random = tmp_path_factory.mktemp("tables"), np.random.default_rng(0)
    model.save(folder / "m.bnnp")
    known = pd.DataFrame({"who": random.integers(0, 6, 30), "x0": random.normal(size=30), "y0": random.normal(size=30)})
    wanted = pd.DataFrame({"who": random.integers(0, 7, 25), "x0": random.normal(size=25)})
    known.to_csv(folder / "known.csv", index=False)
    wanted.to_csv(folder / "wanted.csv", index=False)
    return folder


@pytest.fixture
def predict(folder, tmp_path, monkeypatch, capsys):
    def call(window: int, *more, out: str = "p.csv") -> tuple[int, str]:
        monkeypatch.setattr(windows, "WINDOW", window)
        tables = ["--context", folder / "known.csv", "--targets", folder / "wanted.csv", "--task", "who"]
        options = ["--samples", 4, "--out", tmp_path / out, *more]
        code, _, err = run(monkeypatch, capsys, "predict", folder / "m.bnnp", *tables, *options)
        return code, err

    return call


def test_no_number_depends_on_windows(predict, tmp_path):
    assert predict(100)[0] == 0
    whole = (tmp_path / "p.csv").read_bytes()
    assert predict(2)[0] == 0
    assert (tmp_path / "p.csv").read_bytes() == whole
    assert [file.name for file in tmp_path.iterdir()] == ["p.csv"]


def test_predictions_do_not_depend_on_the_number_of_workers(predict, tmp_path):
    assert predict(100)[0] == 0
    code, err = predict(3, "--workers", 2, "--quiet", out="q.csv")
    assert code == 0, err
    assert (tmp_path / "p.csv").read_bytes() == (tmp_path / "q.csv").read_bytes()


def test_rows_stay_in_their_order(predict, folder, tmp_path):
    predict(2)
    wanted = pd.read_csv(folder / "wanted.csv")
    written = pd.DataFrame(pd.read_csv(tmp_path / "p.csv"), columns=["who", "x0"])
    pd.testing.assert_frame_equal(written, wanted)


def test_a_run_that_ended_early_goes_on(predict, tmp_path, monkeypatch):
    assert predict(100)[0] == 0
    whole = (tmp_path / "p.csv").read_bytes()
    done, of = [], windows.Asked.of

    def until_the_third(asked, model, window):
        done.append(len(window))
        if len(done) == 3:
            raise OSError("the machine ends")
        return of(asked, model, window)

    monkeypatch.setattr(windows.Asked, "of", until_the_third)
    code, err = predict(2, out="q.csv")
    assert code != 0
    assert "the machine ends" in err
    assert predict(2, out="q.csv")[0] == 0
    assert done == [2, 2, 2, 2, 1]  # the first two windows were not done again
    assert (tmp_path / "q.csv").read_bytes() == whole


def test_another_seed_takes_nothing_from_an_earlier_run(model, tmp_path):
    question = Question("a", np.zeros((1, 1)), np.zeros((1, 1)), np.ones((2, 1)), np.arange(2), np.zeros(2, dtype=bool))
    files = {windows.Kept(tmp_path / "p.csv", model, windows.Asked(4, seed)).file([question]) for seed in (0, 1)}
    assert len(files) == 2


def test_the_columns_of_a_prediction_are_mean_std_and_quantiles(model):
    prediction = model.condition([0.0], [1.0], num_samples=3).predict([0.5, 0.7])
    found = prediction_numbers(prediction)
    expected = np.concatenate([prediction.mean, prediction.std, *prediction.quantile([0.05, 0.5, 0.95])], axis=1)
    assert np.array_equal(found, expected)
