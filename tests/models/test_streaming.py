"""A context in chunks gives the posterior of the whole, sample by sample; a growing context gives that of its sums."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import bnnp
from bnnp.inference_nets.pseudo import AmortisedLinear
from bnnp.models.draws import Draws
from support.models import MEMBERS, Member, with_random_prior

POINTS = 65
CHUNKS = [1, 7, 64, POINTS]
every_member = pytest.mark.parametrize("member", [m for m in MEMBERS if not m.sees_hidden], ids=str)
every_prior = pytest.mark.parametrize("prior", list(bnnp.priors.PRIORS))
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}


def data(points: int, member: Member = MEMBERS[0], seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    task = member.task(points, seed)
    return task.x.numpy(), task.y.numpy()


def difference(one, other) -> float:
    """The largest difference of a layer, relative to the layer's own size."""
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(one, other, strict=True))


def assert_same(one: bnnp.WeightPosterior, other: bnnp.WeightPosterior, tolerance: float):
    assert difference(one.weights, other.weights) < tolerance
    assert difference(one.layer_kl, other.layer_kl) < 10 * tolerance
    assert difference([one.log_prob()], [other.log_prob()]) < 10 * tolerance
    assert one.points == other.points


# --- chunks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("chunk_size", CHUNKS)
@every_prior
def test_chunks_give_the_posterior_of_the_whole(prior, chunk_size, dtype):
    member = Member(prior, "gaussian", "predicted", sees_hidden=False)
    model, (x, y) = member.build(dtype), data(POINTS)
    whole = model.condition(x, y, num_samples=20, seed=3)
    chunks = model.condition(x, y, num_samples=20, seed=3, chunk_size=chunk_size)
    assert_same(chunks, whole, TOLERANCE[dtype])
    new = np.random.default_rng(1).normal(size=(11, 3))
    a, b = chunks.predict(new).mean, whole.predict(new).mean
    assert np.abs(a - b).max() / np.abs(b).max() < TOLERANCE[dtype]


@every_member
def test_chunks_give_the_posterior_of_the_whole_for_every_model(member):
    model, (x, y) = member.build(), data(9, member)
    assert_same(
        model.condition(x, y, num_samples=3, chunk_size=4), model.condition(x, y, num_samples=3), TOLERANCE[model.dtype]
    )


def test_inference_networks_that_see_hidden_units_see_them_in_chunks():
    model = replace(MEMBERS[0], sees_hidden=True).build()
    x, y = data(9)
    assert_same(model.condition(x, y, num_samples=3, chunk_size=4), model.condition(x, y, num_samples=3), 1e-10)


def test_samples_in_parts_are_the_same_samples(monkeypatch):
    model, (x, y) = MEMBERS[0].build(), data(9)
    whole = model.condition(x, y, num_samples=37, chunk_size=4)
    monkeypatch.setattr("bnnp.models.draws.SAMPLES_AT_ONCE", 2**10)
    assert_same(model.condition(x, y, num_samples=37, chunk_size=4), whole, 1e-10)
    assert_same(model.condition(x, y, num_samples=37), whole, 1e-10)


def test_no_points_give_the_prior():
    model = MEMBERS[0].build()
    post = model.condition(np.zeros((0, 3)), np.zeros((0, 2)), num_samples=5, chunk_size=4)
    expected = model.condition(np.zeros((0, 3)), np.zeros((0, 2)), num_samples=5)
    assert difference(post.weights, expected.weights) < 1e-10
    assert difference([post.log_prob()], [expected.log_prob()]) < 1e-10
    assert post.kl == pytest.approx(0, abs=1e-12)


def test_contexts_are_read_from_a_file_larger_than_a_chunk(tmp_path: Path):
    model, (x, y) = MEMBERS[0].build(), data(30)
    expected = model.condition(lambda: iter([(x, y)]), num_samples=4, chunk_size=7)
    x_file, y_file = (
        np.lib.format.open_memmap(tmp_path / f"{n}.npy", "w+", shape=a.shape) for n, a in zip("xy", (x, y), strict=True)
    )
    x_file[:], y_file[:] = x, y
    assert_same(model.condition(x_file, y_file, num_samples=4, chunk_size=7), expected, 1e-12)
    frame = pd.DataFrame(np.hstack([x, y]), columns=["a", "b", "c", "u", "v"])
    frame.to_parquet(tmp_path / "big.parquet", row_group_size=11)
    parquet = bnnp.tasks.from_parquet(tmp_path / "big.parquet", x=["a", "b", "c"], y=["u", "v"])
    assert len(parquet) == 30
    assert_same(model.condition(parquet, num_samples=4, chunk_size=7), expected, 1e-12)
    pieces = [(x[:12], y[:12]), (x[12:12], y[12:12]), (x[12:], y[12:])]
    assert_same(model.condition(pieces, num_samples=4, chunk_size=7), expected, 1e-12)


def test_a_bar_shows_how_far_a_large_context_is(capsys):
    model, (x, y) = MEMBERS[0].build(), data(30)
    model.condition(x, y, num_samples=4, chunk_size=7)
    assert capsys.readouterr().err == ""
    model.condition(x, y, num_samples=4, chunk_size=7, progress=True)
    shown = capsys.readouterr().err
    layers = model.network.num_layers
    assert f"{30 * layers}/{30 * layers}" in shown.replace(",", "").replace(" ", ""), shown


def test_bad_contexts_are_refused(tmp_path: Path):
    model, (x, y) = MEMBERS[0].build(), data(6)
    with pytest.raises(ValueError, match="chunk_size: got 0, expected a positive number"):
        model.condition(x, y, chunk_size=0)
    with pytest.raises(ValueError, match="can be read once"):
        model.condition(iter([(x, y)]), chunk_size=2)
    with pytest.raises(ValueError, match="y: got nothing"):
        model.condition(x)
    with pytest.raises(ValueError, match="x and y: got 6 and 5 points"):
        model.condition(x, y[:5], chunk_size=2)
    with pytest.raises(ValueError, match="x: got nan at row 0"):
        model.condition([(x, y), (x * math.nan, y)], chunk_size=2)
    with pytest.raises(ValueError, match="got 2 columns, expected 3"):
        model.condition([(x[:, :2], y)], chunk_size=2)
    sizes = iter([6, 5, 6])
    with pytest.raises(ValueError, match="got 5 points in one reading of the context and 6 in another"):
        model.condition(lambda: iter([(x[: (n := next(sizes))], y[:n])]), chunk_size=2)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        bnnp.tasks.from_parquet(tmp_path / "none.parquet", x=["a"], y=["b"])
    (tmp_path / "text.parquet").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="not a Parquet file"):
        bnnp.tasks.from_parquet(tmp_path / "text.parquet", x=["a"], y=["b"])
    pd.DataFrame({"a": [1.0]}).to_parquet(tmp_path / "one.parquet")
    with pytest.raises(ValueError, match="got columns a, expected b too"):
        bnnp.tasks.from_parquet(tmp_path / "one.parquet", x=["a"], y=["b"])


def test_draws_belong_to_the_number_of_a_sample_and_of_a_point():
    def draws(samples: range) -> Draws:
        return Draws(5, samples, torch.float64, torch.device("cpu"))

    whole = draws(range(40)).points(1, 3, 0, 200)
    torch.testing.assert_close(draws(range(13, 35)).points(1, 3, 60, 131), whole[:, 13:35, :, 60:131])
    torch.testing.assert_close(draws(range(13, 35)).weights(1, 2, 4), draws(range(40)).weights(1, 2, 4)[:, 13:35])
    # 24,000 numbers: mean and variance have standard errors of 0.0065 and 0.0091; false alarms are 1 in 10,000
    assert abs(float(whole.mean())) < 0.026
    assert abs(float(whole.var()) - 1) < 0.037
    rows = whole[0].flatten(0, 1)  # 120 rows of 200: 7,140 correlations of standard error 0.071
    assert float((torch.corrcoef(rows) - torch.eye(120)).abs().max()) < 0.4


# --- online ----------------------------------------------------------------------------------------------------------


@every_member
def test_updates_one_by_one_are_one_joint_update_of_the_last_layer_alone(member):
    model = member.build()
    (x, y), (x_more, y_more) = data(5, member), data(4, member, seed=1)
    post = model.condition(lambda: iter([(x, y)]), num_samples=3, chunk_size=100)
    one_by_one = post
    for i in range(4):
        one_by_one = one_by_one.update(x_more[i : i + 1], y_more[i : i + 1])
    together = post.update(x_more, y_more)
    assert_same(one_by_one, together, 1e-10)
    everything = np.vstack([x, x_more]), np.vstack([y, y_more])
    whole = model.condition(lambda: iter([everything]), num_samples=3, chunk_size=100)
    for before, after in zip(post.weights[:-1], together.weights[:-1], strict=True):
        assert torch.equal(before, after)
    assert difference(together.weights[-1:], post.weights[-1:]) > 1e-3
    assert together.points == whole.points == 9


@pytest.mark.slow
def test_ten_thousand_updates_keep_the_size_and_equal_one_joint_update(tmp_path: Path):
    model = bnnp.BNNP(2, 2, (16, 16), likelihood=bnnp.Gaussian(0.1))
    x = np.random.default_rng(0).uniform(-2, 2, (10_020, 2))
    y = np.stack([np.sin(3 * x[:, 0]), x.prod(1)], axis=1)
    first = model.condition(x[:20], y[:20], num_samples=8)
    post = first.update(x[20:21], y[20:21])
    size = len(post.save(tmp_path / "post.bnnp").read_bytes())
    for i in range(21, 10_020):
        post = post.update(x[i : i + 1], y[i : i + 1])
    assert abs(len(post.save(tmp_path / "post.bnnp").read_bytes()) - size) < 64  # the number of points has more digits
    assert_same(post, first.update(x[20:], y[20:]), 1e-5)


@every_prior
def test_update_is_exact_for_a_network_of_one_layer(prior):
    model = with_random_prior(bnnp.BNNP(3, 2, (), prior=prior, likelihood=bnnp.Gaussian(0.3), dtype=torch.float64))
    (x, y), (x_more, y_more) = data(5), data(4, seed=1)
    post = model.condition(lambda: iter([(x, y)]), num_samples=6, chunk_size=3).update(x_more, y_more)
    everything = np.vstack([x, x_more]), np.vstack([y, y_more])
    assert_same(post, model.condition(lambda: iter([everything]), num_samples=6, chunk_size=4), 1e-10)


def test_update_of_a_posterior_that_holds_its_points_is_that_of_one_that_does_not():
    model, (x, y), (x_more, y_more) = MEMBERS[0].build(), data(5), data(4, seed=1)
    held = model.condition(x, y, num_samples=3)
    assert held.context is not None
    streamed = model.condition(x, y, num_samples=3, chunk_size=2)
    assert streamed.context is None
    updated = held.update(x_more, y_more)
    assert_same(updated, streamed.update(x_more, y_more), 1e-10)
    assert updated.context is None
    assert held.context is not None
    assert held.points == 5


def test_log_prob_of_an_updated_posterior_is_that_of_its_layers():
    """Of a network of one layer, where the posterior is the model's own."""
    model = with_random_prior(bnnp.BNNP(3, 2, (), likelihood=bnnp.Gaussian(0.3), dtype=torch.float64))
    (x, y), (x_more, y_more) = data(5), data(4, seed=1)
    post = model.condition(x, y, num_samples=6).update(x_more, y_more)
    everything = model.condition(np.vstack([x, x_more]), np.vstack([y, y_more]), num_samples=1)
    assert everything.context is not None
    expected = model.log_density([w.unsqueeze(0) for w in post.weights], everything.context)[0]
    torch.testing.assert_close(post.log_prob(), expected, rtol=1e-9, atol=1e-9)


def test_an_updated_posterior_keeps_its_size_and_comes_back_from_disk(tmp_path: Path):
    model, (x, y), (x_more, y_more) = MEMBERS[0].build(), data(5), data(40, seed=1)
    post = model.condition(x, y, num_samples=3)
    sizes = set()
    for i in range(40):
        post = post.update(x_more[i : i + 1], y_more[i : i + 1])
        if i in (0, 20, 39):
            sizes.add(len(post.save(tmp_path / "post.bnnp").read_bytes()) // 64)
    assert len(sizes) == 1
    again = bnnp.load_posterior(tmp_path / "post.bnnp")
    assert_same(again, post, 1e-15)
    assert_same(again.update(x, y), post.update(x, y), 1e-15)
    np.testing.assert_array_equal(again.predict(x).mean, post.predict(x).mean)
    with pytest.raises(ValueError, match="got a posterior file, expected a model file"):
        bnnp.load(tmp_path / "post.bnnp")
    model.save(tmp_path / "model.bnnp")
    with pytest.raises(ValueError, match="got a model file, expected a posterior file"):
        bnnp.load_posterior(tmp_path / "model.bnnp")
    with pytest.raises(ValueError, match="x: got nan"):
        post.update(x * math.nan, y)


@pytest.mark.parametrize("chunk_size", [None, 5])
def test_accurate_observations_of_collinear_features_can_be_updated_in_float32(chunk_size):
    """Sums of them in float32 would not be those of a positive definite matrix."""
    model = bnnp.BNNP(1, 1, (24, 24), "silu", likelihood=bnnp.Gaussian(0.05))
    last = model.layers[-1]
    assert isinstance(last, AmortisedLinear)
    last.encoder.set_output_bias(slice(0, 1), -20.0)  # the last layer's noise is at its bound
    with torch.no_grad():
        model.get_parameter("prior.gaussians.1.mean.value").fill_(3.0)  # all units alike, and large
    x = np.linspace(-2, 2, 40)[:, None]
    post = model.condition(x[::2], np.sin(x[::2]), num_samples=8, chunk_size=chunk_size)
    updated = post.update(x[1::2], np.sin(x[1::2]))
    assert np.isfinite(updated.predict(x).mean).all()
