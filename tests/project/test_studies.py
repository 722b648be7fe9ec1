"""Studies that take minutes; `make slow` runs them."""

import sys
from pathlib import Path

import pytest

import bnnp
from bnnp import demo

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demo_learns_the_teeth(tmp_path):
    scores = demo.run(tmp_path).scores
    assert scores["learned prior"]["pooled_lppd"] >= 0.7
    assert scores["learned prior"]["mae"] <= 0.12
    assert scores["standard prior"]["mae"] > 0.25


@pytest.mark.slow
def test_the_shipped_model_is_as_good_as_the_papers():
    model, tests = bnnp.load("zoo:sawtooth"), bnnp.tasks.sawtooth_tests()
    assert bnnp.evaluate(model, tests, noise=0.05)["pooled_lppd"] >= 1.28
    assert bnnp.evaluate(model, tests)["mae"] <= 0.096


@pytest.mark.slow
def test_a_small_trial_gives_sensible_predictions_for_a_new_subject(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import trial  # pyright: ignore[reportMissingImports]

    table = trial.main(tmp_path)
    del sys.modules["trial"]
    error = (table["conc_mean"] - table["conc"]).abs().mean()
    baseline = (table["conc"] - table["conc"].mean()).abs().mean()
    assert error < 0.5 * baseline
    assert table["conc"].between(table["conc_q05"], table["conc_q95"]).mean() >= 0.6
