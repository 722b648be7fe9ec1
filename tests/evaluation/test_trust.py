"""`post.check()`: whether its verdict follows from the posterior, the known points and the inputs."""

import numpy as np
import pytest
import torch

import bnnp
from bnnp.evaluation import trust
from bnnp.evaluation.evidence import by_monte_carlo, log_weights
from bnnp.inference.target import Target

X = np.linspace(-1, 1, 6)[:, None]


@pytest.fixture(autouse=True)
def _few_draws(monkeypatch):
    for name, value in {"DRAWS": 200, "SIMULATIONS": 5, "SIMULATED_DRAWS": 8, "PROBES": 3}.items():
        monkeypatch.setattr(trust, name, value)


@pytest.fixture(scope="module")
def model():
    """A model whose posterior is exact: it has no hidden layers, and its last layer sees the true noise."""
    found = bnnp.BNNP(1, 1, (), likelihood=bnnp.Gaussian(0.2), last_layer="likelihood", dtype=torch.float64, seed=0)
    found.columns.ranges = bnnp._core.ranges.Ranges(((-1.0, 1.0),), ((-3.0, 3.0),))
    return found


def drawn(model, seed: int) -> np.ndarray:
    f = model.prior.functions(1, seed)[0](X)
    return f + 0.2 * np.random.default_rng(seed).normal(size=f.shape)


def test_an_exact_posterior_of_typical_points_is_to_be_trusted(model):
    found = model.condition(X, drawn(model, 1), num_samples=5).check()
    assert found.effective == pytest.approx(found.draws)
    assert found.trustworthy, str(found)
    assert str(found).startswith("to be trusted | importance weights: 200 of 200 effective")


def test_points_that_the_prior_does_not_give_are_doubted(model, monkeypatch):
    monkeypatch.setattr(trust, "SIMULATIONS", 50)
    found = model.condition(X, 3 * np.cos(9 * X), num_samples=5).check()
    assert found.as_unlikely == pytest.approx(1 / (1 + trust.SIMULATIONS))
    assert found.doubts == ["the known points are unlike the training tasks"]


def test_points_of_another_kind_are_found_where_inference_was_not_trained(monkeypatch):
    """Of a model that ships: only its features were trained, so that draws of its posterior carry no weight."""
    monkeypatch.setattr(trust, "SIMULATIONS", 50)
    x, shipped = np.linspace(-2, 2, 12)[:, None], bnnp.load("zoo:sawtooth")
    usual, other = (shipped.condition(x, y, num_samples=5).check() for y in (shipped.prior.functions(1)[0](x), 0 * x))
    assert not usual.weights_say_something
    assert usual.as_unlikely > 0.02
    assert other.as_unlikely == pytest.approx(1 / (1 + trust.SIMULATIONS))


def test_inputs_out_of_range_are_doubted(model):
    post = model.condition(X, drawn(model, 1), num_samples=5)
    assert post.check([0.0, 2.0, 5.0]).outside == 2
    assert "outside the range" in str(post.check([2.0]))


def with_hidden_layer(noise: float, log_pseudo_noise: float) -> bnnp.BNNP:
    """A model whose inference network says the same of all points, with this logarithm of their pseudo-noise."""
    found = bnnp.BNNP(1, 1, (4,), likelihood=bnnp.Gaussian(noise), last_layer="likelihood", dtype=torch.float64, seed=0)
    with torch.no_grad():
        list(found.layers[0].parameters())[-1].zero_()[-1] = log_pseudo_noise
    return found


@pytest.fixture(scope="module")
def hidden():
    """A model with a hidden layer, whose inference network knows nothing and says so."""
    return with_hidden_layer(1.0, 5.0)


def test_an_inference_network_that_is_wrong_and_sure_is_found(monkeypatch):
    monkeypatch.setattr(trust, "SIMULATIONS", 20)
    modest, wrong = with_hidden_layer(0.1, 5.0), with_hidden_layer(0.1, -5.0)
    y = modest.prior.functions(1, 2)[0](X) + 0.1 * np.random.default_rng(2).normal(size=X.shape)
    before, after = (model.condition(X, y, num_samples=5).check() for model in (modest, wrong))
    assert before.trustworthy, str(before)
    assert after.effective < 0.5 * before.effective
    assert not after.weights_say_something
    assert after.doubts == ["its intervals are too narrow under its own prior: try post.refine()"]


def test_weights_of_hidden_layers_correct_an_average_towards_the_exact_one(hidden):
    """The evidence by weights and by plain Monte Carlo agree."""
    y = drawn(hidden, 2)
    target = Target.of(hidden.prior, hidden.network, [(X, y)], hidden.likelihood)
    weights = log_weights(target, hidden.condition(X, y, num_samples=4000))
    exact = by_monte_carlo(target, 20_000)
    assert exact.trustworthy
    assert float(torch.logsumexp(weights, 0) - np.log(4000)) == pytest.approx(exact.value, abs=0.1)


def test_without_the_known_points_there_is_no_check(model):
    updated = model.condition(X, drawn(model, 1), num_samples=5).update([0.5], [0.1])
    with pytest.raises(ValueError, match="check: got a posterior without its known points"):
        updated.check()
    with pytest.raises(ValueError, match="refine: got a posterior without its known points"):
        updated.refine()


def test_refine_infers_from_the_same_points(model):
    y = drawn(model, 1)
    post = model.condition(X, y, num_samples=7)
    found = post.refine("laplace", steps=10)
    assert found.num_samples == 7
    more = post.refine("laplace", num_samples=4000, steps=1000).predict([0.5])
    assert more.mean[0, 0] == pytest.approx(post.predict([0.5]).mean[0, 0], abs=0.02)
