"""Heartbeats: the paper's recipe, step by step on the simulated signal, and its randomness."""

import sys

import numpy as np
import pytest
import torch

import bnnp
from bnnp.tasks import ecg

neurokit2 = pytest.importorskip("neurokit2")


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def one(seed: int = 0, **choices) -> bnnp.tasks.Task:
    return ecg(**choices).draw(1, generator(seed))[0]


def reference(rate: int) -> tuple[np.ndarray, np.ndarray]:
    """The beat and the rest of the paper's recipe without noise, cut by whole numbers of points."""
    signal = neurokit2.ecg_simulate(duration=8.0, sampling_rate=rate, heart_rate=20, noise=0, method="simple")
    signal = signal - np.mean(signal)
    signal = signal / (2 * np.max(signal))
    return signal[7 * rate // 2 : 13 * rate // 2], signal[7 * rate :]


@pytest.mark.parametrize("rate", [100, 50])
def test_a_task_is_one_beat_in_six_seconds_of_rest(rate):
    beat, rest = reference(rate)
    for seed in range(5):
        task = one(seed, rate=rate, noise=0)
        assert task.x.shape == task.y.shape == (6 * rate, 1)
        np.testing.assert_allclose(task.x[:, 0], np.arange(6 * rate) / rate - 3, atol=1e-12)
        around = np.concatenate([rest, rest, rest])
        fits = [np.concatenate([around[:start], beat, around[start:]]) for start in range(3 * rate)]
        differences = np.abs(np.stack(fits) - task.y[:, 0].numpy()).max(1)
        assert differences.min() < 1e-12


def test_beats_start_anywhere_in_the_first_three_seconds():
    beat, _ = reference(100)
    tasks = ecg(noise=0).draw(300, generator())
    starts = np.array([int(task.y.argmax()) - int(beat.argmax()) for task in tasks])
    assert 0 <= starts.min() < 15
    assert 285 < starts.max() < 300
    # Standard error of the mean of 300 uniform numbers on [0, 300): 5; a false alarm in 16,000 seeds.
    assert abs(starts.mean() - 149.5) < 20


def test_the_largest_value_is_one_half_and_noise_is_small():
    noisy, clean = one(3), one(3, noise=0)
    difference = (noisy.y - clean.y).abs()
    assert float(clean.y.max()) == pytest.approx(0.5)
    assert 0 < float(difference.max()) < 0.02
    assert float((one(3, noise=0.1).y - clean.y).abs().mean()) > 10 * float(difference.mean())


def test_draws_follow_the_generator_and_no_global_state():
    def state() -> tuple[list[int], list[int]]:
        return np.random.get_state(legacy=False)["state"]["key"].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002

    before = state()
    first, again, other = (ecg().draw(3, generator(seed)) for seed in (5, 5, 6))
    assert state() == before
    assert all(torch.equal(a.y, b.y) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a.y, b.y) for a, b in zip(first, other, strict=True))
    assert not torch.equal(first[0].y, first[1].y)


def test_points_choose_some_of_the_whole():
    sizes = {len(task) for task in ecg(points=(3, 6)).draw(40, generator())}
    assert sizes == {3, 4, 5, 6}
    some = one(7, points=(50, 50))
    assert len(some) == len(set(some.x[:, 0].tolist())) == 50
    whole = dict(zip(one(7).x[:, 0].tolist(), one(7).y[:, 0].tolist(), strict=True))
    assert some.y[:, 0].tolist() == [whole[x] for x in some.x[:, 0].tolist()]


def test_training_runs_on_heartbeats():
    model = bnnp.BNNP(1, 1, hidden=(4,), activation="tanh")
    size = bnnp.tasks.ContextCount(2, 64)
    bnnp.fit(model, ecg(), objective=bnnp.objectives.PPAVI(2), steps=2, context_share=size, progress=False)
    assert model.columns.is_identity()


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"rate": 0}, "rate: got 0"),
        ({"rate": 99.5}, "rate: got 99.5"),
        ({"noise": -1.0}, "noise: got -1.0"),
        ({"noise": float("nan")}, "noise: got nan"),
        ({"points": (1, 5)}, r"points: got \(1, 5\), expected a range within 2 and 600"),
        ({"points": (5, 601)}, "within 2 and 600"),
        ({"points": (9, 5)}, "within 2 and 600"),
    ],
)
def test_bad_choices_are_refused(choices, message):
    with pytest.raises(ValueError, match=message):
        ecg(**choices)


def test_without_the_package_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "neurokit2", None)
    with pytest.raises(ImportError, match=r"simulating heartbeats needs neurokit2 .*: pip install 'bnnp\[data\]'"):
        ecg()
