"""Requests that do not fit into memory are refused at once, and the message says what to do."""

import numpy as np
import pytest

import bnnp
from bnnp._core import memory
from support.command_line import run

X = np.linspace(-1, 1, 5)[:, None]


@pytest.fixture(autouse=True)
def small_machine(monkeypatch):
    monkeypatch.setattr(memory, "memory", lambda: 16e6)


def test_too_many_samples_are_refused():
    model = bnnp.BNNP(1, 1, (20, 20))
    with pytest.raises(ValueError, match=r"num_samples=1000000: got a request for .* GB, .*; draw fewer samples"):
        model.condition(X, X, num_samples=1_000_000)
    with pytest.raises(ValueError, match="draw fewer samples"):
        model.prior.functions(1_000_000)


@pytest.mark.parametrize("likelihood", [bnnp.Gaussian(0.1), bnnp.Bernoulli()])
def test_too_many_targets_are_refused(likelihood):
    post = bnnp.BNNP(1, 1, (4,), likelihood=likelihood).condition(X, 1.0 * (X > 0), num_samples=50)
    with pytest.raises(ValueError, match=r"50 samples at 1000000 inputs: .*; predict at fewer inputs at a time"):
        post.predict(np.zeros(1_000_000))
    assert post.predict(np.zeros(10)).mean.shape == (10, 1)


def test_a_large_table_of_functions_is_refused_and_nothing_is_written(monkeypatch, capsys, tmp_path):
    words = ("sample", "zoo:sawtooth", "--num", 10_000, "--out", tmp_path / "prior.csv")
    code, _, err = run(monkeypatch, capsys, *words)
    assert code == 2
    assert "draw fewer functions with --num" in err
    assert list(tmp_path.iterdir()) == []
