"""The record of a training."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from bnnp.numerics import fallbacks
from bnnp.training import FallbackWarning
from support.training import Stop, fit


def test_the_history_holds_a_record_every_few_steps_and_at_the_end():
    history = fit(steps=7, record_every=3).history
    frame = history.to_frame()
    assert frame["step"].tolist() == [3, 6, 7]
    always, terms = {"step", "seconds", "learning_rate", "float64", "whitened"}, {"predictive", "likelihood", "kl"}
    assert set(frame.columns) == always | terms | {"objective"}
    np.testing.assert_allclose(frame["objective"], frame["predictive"] + frame["likelihood"] + frame["kl"], rtol=1e-5)
    assert frame["seconds"].is_monotonic_increasing


def test_records_are_means_since_the_one_before():
    coarse, fine = (fit(record_every=every).history.to_frame()["objective"].to_numpy() for every in (3, 1))
    np.testing.assert_allclose(coarse, [fine[:3].mean(), fine[3:6].mean(), fine[6]])


def test_evaluations_are_plain_numbers_every_few_steps_and_at_the_end(tmp_path):
    scores = [{"mae": np.float32(0.5)}, {"mae": torch.tensor(0.25)}, {"mae": 1}]
    history = fit(steps=5, evaluate_every=2, evaluation=lambda _: scores.pop(0), checkpoint=tmp_path).history
    assert [(record["step"], record["mae"]) for record in history.evaluations] == [(2, 0.5), (4, 0.25), (5, 1.0)]
    assert all(type(record["mae"]) is float for record in history.evaluations)


def test_a_history_is_written_as_json(tmp_path):
    history = fit(record_every=2).history
    assert json.loads(history.save(tmp_path / "h.json").read_text()) == history.to_dict()


# --- numerical fallbacks ---------------------------------------------------------------------------------------------


@pytest.fixture
def fallbacks_of_steps(monkeypatch):
    """Make steps report fallbacks: a list of pairs, one per step, of float64 and whitened ones."""
    reported: list[tuple[int, int]] = []

    @contextmanager
    def counted():
        yield SimpleNamespace(**dict(zip(("float64", "whitened"), reported.pop(0), strict=True)))

    monkeypatch.setattr(fallbacks, "counted", counted)
    return reported


def test_records_count_the_steps_with_a_fallback_and_the_user_is_told(fallbacks_of_steps):
    fallbacks_of_steps += [(0, 0), (3, 0), (1, 0), (0, 0), (0, 1), (0, 0), (2, 0)]
    with pytest.warns(FallbackWarning, match=r"43% of the steps .* float64.*dtype=torch.float64.*; 14% .* singular"):
        history = fit(record_every=3).history
    frame = history.to_frame()
    assert frame["float64"].tolist() == [2, 0, 1]
    assert frame["whitened"].tolist() == [0, 1, 0]
    assert history.fallback_shares() == {"float64": 3 / 7, "whitened": 1 / 7}


def test_rare_fallbacks_are_counted_only(fallbacks_of_steps, recwarn):
    fallbacks_of_steps += [(0, 0)] * 99 + [(1, 0)]
    history = fit(steps=100, record_every=50).history
    assert history.to_frame()["float64"].tolist() == [0, 1]
    assert not recwarn.list


def test_fallbacks_are_counted_on_from_a_checkpoint(fallbacks_of_steps, tmp_path):
    fallbacks_of_steps += [(1, 0), (1, 0), (0, 0), (1, 0), (0, 0), (0, 0), (0, 0)]
    options = {"record_every": 7, "evaluate_every": 3, "checkpoint": tmp_path}
    fit(evaluation=Stop(KeyboardInterrupt, 1), **options)
    with pytest.warns(FallbackWarning, match="43% of the steps"):
        resumed = fit(evaluation=Stop(), **options)
    assert resumed.history.steps[-1]["float64"] == 3
