import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from bnnp import bench
from bnnp.bench import SETTINGS, Measurement, Setting, measuring

PLAIN = Path(__file__).parents[2] / "benchmarks" / "plain.py"
SMALL = Setting("small", (2, 4, 3, 2), "unitwise", False, 3, 2, 9, 5)


@pytest.mark.parametrize("setting", [SMALL, replace(SMALL, training=False, tasks=1, prior="factorised", fixed=True)])
def test_every_kind_of_work_is_measured_as_often_as_asked(setting):
    seconds = bench.measure(setting, ["library", "limit", "plain"], PLAIN, repeats=2)
    assert {kind: len(times) for kind, times in seconds.items()} == {"library": 2, "limit": 2, "plain": 2}
    assert all(time > 0 for times in seconds.values() for time in times)


def test_a_process_of_its_own_reports_time_and_memory():
    answer = bench.measure_in_process(SMALL, ["library"], 1)
    assert len(answer["seconds"]["library"]) == 1
    assert 50 < answer["peak_megabytes"] < 5000


def test_a_process_that_fails_says_why():
    with pytest.raises(OSError, match=r"small.*expected one of"):
        bench.measure_in_process(replace(SMALL, prior="nonsense"), ["library"], 1)


def test_the_settings_are_those_that_the_authors_code_was_measured_in():
    a, b, c, d = (SETTINGS[name] for name in "abcd")
    assert (a.sizes, a.samples, a.tasks, a.points, a.context) == ((1, 64, 64, 1), 32, 5, 70, 21)
    assert (b.sizes, b.prior, b.fixed, b.samples, b.tasks, b.points, b.context) == (
        ((1, 20, 20, 1), "factorised", True, 8, 5, 30, 24)
    )
    assert (c.training, c.samples, c.context, c.points - c.context) == (False, 1000, 40, 100)
    assert (d.sizes, d.samples, d.tasks, d.points, d.context) == ((3, 64, 64, 64, 1), 24, 5, 875, 219)
    batch = d.batch()
    assert batch.context.x.shape == (5, 219, 3)
    assert batch.target.x.shape == (5, 656, 3)
    assert not b.model().prior.gaussians[0].mean.value.requires_grad  # pyright: ignore


def test_the_limit_counts_the_products_of_a_hidden_layer():
    """(a): 160 updates of 64 units with 65 features and 21 points, forward and backward."""
    flops = [batch * rows * inner * columns for batch, rows, inner, columns in bench.products(SETTINGS["a"])]
    features_times_covariances = 160 * 21 * 65 * 64 * 65
    gram = 160 * 21 * 65 * 21 * 64
    assert sorted(flops)[-5:] == sorted([features_times_covariances] * 3 + [gram] * 2)
    prediction = list(bench.products(replace(SETTINGS["a"], training=False)))
    assert len(prediction) < len(flops) / 2


def test_the_table_relates_the_library_to_both_marks():
    found = [
        Measurement("a", "library", 0.2, 9, 600.0),
        Measurement("a", "limit", 0.05, 9, 900.0),
        Measurement("a", "plain", 10.0, 1, 3000.0),
    ]
    row = bench.table(found).loc["a"]
    assert row["share of the limit's speed"] == pytest.approx(0.25)
    assert row["times faster than plain"] == pytest.approx(50)
    assert row["megabytes"] == 600
    written = json.loads(bench.to_json(found))
    assert [m["kind"] for m in written["measurements"]] == ["library", "limit", "plain"]


@pytest.mark.parametrize("prior", ["unitwise", "factorised"])
def test_the_plain_transcription_has_the_librarys_posterior(prior):
    plain = measuring._module(PLAIN)
    setting = replace(SMALL, prior=prior, tasks=1, samples=4000)
    model, context = setting.model(torch.float64), setting.batch(torch.float64).context
    with torch.no_grad():
        torch.manual_seed(0)
        weights, kl = plain.infer(model, context.x[0], context.y[0], setting.samples)
        mine = model.infer(context, setting.samples, torch.Generator().manual_seed(0))
    assert float(kl) == pytest.approx(float(mine.total_kl()), rel=0.02)
    for theirs, ours in zip(weights, mine.weights, strict=True):
        spread = ours[0].std(0)
        assert bool(((theirs.mean(0) - ours[0].mean(0)).abs() < 5 * spread * (2 / setting.samples) ** 0.5).all())
        torch.testing.assert_close(theirs.std(0), spread, rtol=0.1, atol=0.0)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="setting: got z, expected some of a, b, c, d"):
        bench.run(["a", "z"])
    with pytest.raises(FileNotFoundError, match=r"plain: nowhere\.py is not a file"):
        bench.run(["a"], plain=Path("nowhere.py"))


@pytest.mark.parametrize(
    ("first", "second", "calls"), [(1 / 64, 1 / 64, 13), (2.0, 1 / 64, 13), (2.0, 2.0, 1), (8.0, None, 1)]
)
def test_short_work_is_called_until_a_repeat_is_long_enough(monkeypatch, first, second, calls):
    times = iter([0.0, first, 10.0, None if second is None else 10.0 + second])
    monkeypatch.setattr("time.perf_counter", lambda: next(times))
    assert measuring._calls_per_repeat(lambda: None) == calls
