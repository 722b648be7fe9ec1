"""`bnnp train --positive`, and the line that suggests it."""

import numpy as np
import pandas as pd
import pytest

import bnnp
from support.command_line import run

WORDS = ["--task", "subject", "--x", "hour", "--y", "conc"]
SMALL = ["--hidden", "4", "--steps", 2, "--samples", 2, "--quiet"]


@pytest.fixture
def bnnp_command(monkeypatch, capsys):
    return lambda *words: run(monkeypatch, capsys, *words)


@pytest.fixture
def trial(tmp_path):
    """Concentrations that are skewed."""
    rng = np.random.default_rng(0)
    hour = rng.uniform(0, 6, 60)
    conc = np.exp(2 - hour + 0.3 * rng.normal(size=60))
    path = tmp_path / "trial.csv"
    pd.DataFrame({"subject": np.repeat(np.arange(6), 10), "hour": hour, "conc": conc}).to_csv(path, index=False)
    return path


def test_for_skewed_outputs_positive_is_suggested_and_keeps_predictions_positive(bnnp_command, trial, tmp_path):
    code, _, err = bnnp_command("train", trial, *WORDS, *SMALL, "--out", tmp_path / "one")
    assert code == 0
    assert "conc: all values are positive, and skewed; --positive learns their logarithms" in err
    code, _, err = bnnp_command("train", trial, *WORDS, *SMALL, "--positive", "--out", tmp_path / "two")
    assert code == 0
    assert "--positive" not in err
    model = bnnp.load(tmp_path / "two")
    assert model.columns.positive
    assert model.condition([[0.0]], [[5.0]], num_samples=5).predict([[5.0]]).quantile(0.001).item() > 0


@pytest.mark.parametrize("change", [lambda conc: np.log(conc), lambda conc: np.log(conc) + 20])
def test_for_other_outputs_positive_is_not_suggested(bnnp_command, trial, tmp_path, change):
    table = pd.read_csv(trial)
    table.assign(conc=change(table["conc"])).to_csv(trial, index=False)
    code, _, err = bnnp_command("train", trial, *WORDS, *SMALL, "--out", tmp_path / "model")
    assert code == 0
    assert "--positive" not in err


def test_what_it_cannot_be_given_with(bnnp_command, trial, tmp_path):
    table = pd.read_csv(trial)
    table.loc[4, "conc"] = -1.0
    table.to_csv(trial, index=False)
    code, _, err = bnnp_command("train", trial, *WORDS, *SMALL, "--positive", "--out", tmp_path / "model")
    assert code != 0
    assert "got '-1.0' at row 6" in err
    assert "leave out --positive" in err
    code, _, err = bnnp_command("train", "--source", "sawtooth", "--positive", "--out", tmp_path / "model")
    assert code != 0
    assert "--positive" in err
    code, _, err = bnnp_command("train", trial, *WORDS, "--positive", "--likelihood", "bernoulli")
    assert code != 0
    assert "no logarithm" in err
