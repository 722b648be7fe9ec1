import math

import numpy as np
import pytest
import torch
from scipy import special, stats

import bnnp
from bnnp import BNNP, Bernoulli, Categorical, Gaussian, Network, SampledPredictive
from bnnp._core.columns import Columns
from bnnp.likelihoods.base import Likelihood
from bnnp.prediction.weights import network_outputs
from support import reference

SHIFT, SCALE = np.array([3.0, -1.0]), np.array([2.0, 0.7])
NOISE = np.array([0.3, 0.7])


def outputs(samples: int = 6, points: int = 4) -> torch.Tensor:
    return torch.randn(samples, points, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def columns(*, scaled: bool) -> Columns:
    own = Columns(1, 2).double()
    if scaled:
        own.y_shift.copy_(torch.from_numpy(SHIFT))
        own.y_scale.copy_(torch.from_numpy(SCALE))
    return own


def gaussian(samples: int = 6, points: int = 4) -> SampledPredictive:
    likelihood = Gaussian(NOISE.tolist()).for_outputs(2).double()
    with torch.no_grad():
        likelihood.raw.copy_(torch.from_numpy(np.log(NOISE)))
    return SampledPredictive(outputs(samples, points), likelihood, columns(scaled=True))


def discrete(likelihood: Likelihood) -> SampledPredictive:
    return SampledPredictive(outputs(), likelihood, columns(scaled=False))


F = outputs().numpy() * SCALE + SHIFT
"""The functions of `gaussian()` in the user's units, where the noise is NOISE * SCALE."""
Y = F[0] + 0.3


# --- Gaussian, in the user's units -----------------------------------------------------------------------------------


def test_mean_is_that_of_the_functions():
    np.testing.assert_allclose(gaussian().mean, F.mean(0), rtol=1e-12)


def test_std_is_that_of_the_functions_and_the_noise():
    np.testing.assert_allclose(gaussian().std, np.sqrt(F.var(0) + (NOISE * SCALE) ** 2), rtol=1e-12)


def test_function_std_leaves_out_the_noise():
    np.testing.assert_allclose(gaussian().function_std, F.std(0), rtol=1e-12)


def test_samples_are_the_functions():
    np.testing.assert_allclose(gaussian().samples, F, rtol=1e-12)


def test_log_prob_is_that_of_a_mixture_for_each_point():
    density = np.exp(stats.norm.logpdf(Y, F, NOISE * SCALE).sum(-1))
    np.testing.assert_allclose(gaussian().log_prob(Y), np.log(density.mean(0)), rtol=1e-10)


def test_joint_log_prob_is_that_of_a_mixture_of_whole_functions():
    density = np.exp(stats.norm.logpdf(Y, F, NOISE * SCALE).sum((-1, -2)))
    np.testing.assert_allclose(gaussian().joint_log_prob(Y), np.log(density.mean()), rtol=1e-10)


def test_pointwise_log_prob_has_every_sample_and_point():
    expected = stats.norm.logpdf(Y, F, NOISE * SCALE).sum(-1)
    np.testing.assert_allclose(gaussian().pointwise_log_prob(Y), expected, rtol=1e-10)


def test_log_prob_is_a_density_in_the_users_units():
    """Its integral over a grid is 1: the Jacobian of the standardisation is there."""
    predictive = gaussian(points=1)
    grids = [
        np.linspace(centre - 9 * scale, centre + 9 * scale, 101) for centre, scale in zip(SHIFT, SCALE, strict=True)
    ]
    total = 0.0
    for first in grids[0]:
        column = np.stack([np.full(101, first), grids[1]], 1)
        repeated = SampledPredictive(predictive.outputs.expand(-1, 101, -1), predictive.likelihood, predictive.columns)
        total += np.exp(repeated.log_prob(column)).sum()
    assert total * np.prod([grid[1] - grid[0] for grid in grids]) == pytest.approx(1, abs=1e-6)


def test_log_prob_of_many_far_points_does_not_underflow():
    found = gaussian().joint_log_prob(Y + 1e4)
    assert math.isfinite(found)
    assert found < -1e6


def test_function_quantiles_are_numpys():
    levels = [0.1, 0.5, 0.9]
    np.testing.assert_allclose(gaussian().quantile(levels, noise=False), np.quantile(F, levels, axis=0), rtol=1e-12)
    np.testing.assert_allclose(gaussian().quantile(0.5, noise=False), np.median(F, axis=0), rtol=1e-12)


def test_quantiles_include_the_noise():
    """From 40,000 draws, a quantile's standard error is sqrt(q (1 - q) / 40000) in probability, here 0.0015 and 0.0025.

    Eight of them stay within 4.5 of these with probability 1 - 5e-5.
    """
    one = gaussian(1)
    many = SampledPredictive(one.outputs.expand(40_000, -1, -1), one.likelihood, one.columns)
    levels = np.array([0.1, 0.5])
    for level, found in zip(levels, many.quantile(levels.tolist(), seed=0), strict=True):
        reached = stats.norm.cdf(found, one.samples[0], NOISE * SCALE)
        assert np.abs(reached - level).max() < 4.5 * math.sqrt(level * (1 - level) / 40_000)
        without_scale = stats.norm.cdf(found, one.samples[0], NOISE)
        assert level == 0.5 or np.abs(without_scale - level).max() > 4.5 * math.sqrt(level * (1 - level) / 40_000)


def test_observations_follow_the_seed():
    first, again, other = (gaussian().observations(seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.shape == (6, 4, 2)


# --- other likelihoods -----------------------------------------------------------------------------------------------


def test_bernoulli_predictive_is_that_of_the_mixed_probabilities():
    p = special.expit(outputs().numpy())
    y = np.array([[0, 1], [1, 1], [0, 0], [1, 0]])
    predictive = discrete(Bernoulli())
    np.testing.assert_allclose(predictive.mean, p.mean(0), rtol=1e-12)
    np.testing.assert_allclose(predictive.std, np.sqrt(p.mean(0) * (1 - p.mean(0))), rtol=1e-10)
    np.testing.assert_allclose(predictive.samples, p, rtol=1e-12)
    densities = stats.bernoulli.pmf(y, p).prod(-1)
    np.testing.assert_allclose(predictive.log_prob(y), np.log(densities.mean(0)), rtol=1e-10)
    np.testing.assert_allclose(predictive.joint_log_prob(y), np.log(densities.prod(-1).mean()), rtol=1e-10)
    assert set(np.unique(predictive.observations(0))) == {0, 1}


def test_categorical_predictive_is_that_of_the_mixed_probabilities():
    p = special.softmax(outputs().numpy(), -1)
    y = np.array([0, 1, 1, 0])
    predictive = discrete(Categorical(2))
    np.testing.assert_allclose(predictive.mean, p.mean(0), rtol=1e-12)
    np.testing.assert_allclose(predictive.log_prob(y), np.log(p[:, np.arange(4), y].mean(0)), rtol=1e-10)
    np.testing.assert_allclose(predictive.joint_log_prob(y), np.log(p[:, np.arange(4), y].prod(-1).mean()), rtol=1e-10)
    assert predictive.observations(0).shape == (6, 4, 1)


def test_class_labels_have_no_quantiles():
    with pytest.raises(ValueError, match="quantile"):
        discrete(Categorical(2)).quantile(0.5)


@pytest.mark.parametrize("q", [-0.1, 1.1, [0.5, 2.0], []])
def test_quantile_levels_must_lie_between_0_and_1(q):
    with pytest.raises(ValueError, match="q:"):
        gaussian().quantile(q)


@pytest.mark.parametrize("y", [Y[:3], Y[:, :1], np.full_like(Y, np.nan)])
def test_observations_that_do_not_fit_are_refused(y):
    with pytest.raises(ValueError, match="y:"):
        gaussian().log_prob(y)


def test_impossible_observations_are_refused():
    with pytest.raises(ValueError, match="y:"):
        discrete(Bernoulli()).log_prob(np.full((4, 2), 2.0))


# --- outputs of a network --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 7, 13, 40, 10**6])
def test_chunks_change_nothing(monkeypatch, at_once):
    network = Network((3, 5, 2), "tanh")
    generator = torch.Generator().manual_seed(0)
    weights = [torch.randn(6, d, out, generator=generator, dtype=torch.float64) for d, out in network.weight_shapes]
    x = torch.randn(11, 3, generator=generator, dtype=torch.float64)
    monkeypatch.setattr("bnnp.prediction.weights.NUMBERS_AT_ONCE", at_once)
    found = network_outputs(network, weights, x)
    expected = [reference.network([reference.array(w[k]) for w in weights], x.numpy(), "tanh") for k in range(6)]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_no_points_give_no_outputs():
    network = Network((3, 5, 2))
    weights = [torch.zeros(6, d, out) for d, out in network.weight_shapes]
    assert network_outputs(network, weights, torch.zeros(0, 3)).shape == (6, 0, 2)


# --- from a model ----------------------------------------------------------------------------------------------------

X_SHIFT, X_SCALE = np.array([10.0]), np.array([4.0])
MODELS = {
    "gaussian": lambda: BNNP(1, 2, hidden=(4,), likelihood=Gaussian(0.3), dtype=torch.float64),
    "bernoulli": lambda: BNNP(1, 2, hidden=(4,), likelihood=Bernoulli(), dtype=torch.float64),
    "categorical": lambda: BNNP(1, 2, hidden=(4,), likelihood=Categorical(2), dtype=torch.float64),
}
every_model = pytest.mark.parametrize("name", list(MODELS))


def standardised(name: str) -> BNNP:
    model = MODELS[name]()
    model.columns.x_shift.copy_(torch.from_numpy(X_SHIFT))
    model.columns.x_scale.copy_(torch.from_numpy(X_SCALE))
    if name == "gaussian":
        model.columns.y_shift.copy_(torch.from_numpy(SHIFT))
        model.columns.y_scale.copy_(torch.from_numpy(SCALE))
    return model


def context(name: str) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x, y = random.normal(size=(5, 1)), random.normal(size=(5, 2))
    return x, {"gaussian": y, "bernoulli": y > 0, "categorical": y[:, :1] > 0}[name].astype(float)


@every_model
def test_functions_are_the_samples_of_the_prediction(name):
    x_new = np.linspace(0, 20, 7)[:, None]
    post = standardised(name).condition(*context(name), num_samples=3)
    samples = post.predict(x_new).samples
    np.testing.assert_allclose([f(x_new) for f in post.functions()], samples, rtol=1e-12)
    np.testing.assert_allclose([f(torch.from_numpy(x_new)) for f in post.functions()], samples, rtol=1e-12)


@every_model
def test_functions_of_the_prior_are_predictions_without_data(name):
    model = standardised(name)
    x_new = np.linspace(0, 20, 7)[:, None]
    network_inputs = (x_new - X_SHIFT) / X_SCALE
    link = {"gaussian": lambda f: f * SCALE + SHIFT, "bernoulli": special.expit}.get(
        name, lambda f: special.softmax(f, -1)
    )
    weights = model.prior.sample(3, seed=4)
    for k, function in enumerate(model.prior.functions(3, seed=4)):
        outputs_k = reference.network([reference.array(w[k]) for w in weights], network_inputs, "relu")
        np.testing.assert_allclose(function(x_new), link(outputs_k), rtol=1e-10)


@every_model
def test_users_units_and_the_models_units_tell_the_same_story(name):
    """A model that standardises sees the same as one that is given standardised data."""
    x, y = context(name)
    x_new, y_new = np.array([[-1.0], [0.5]]), y[:2]
    inner = MODELS[name]().condition(x, y, num_samples=4).predict(x_new)
    users_y, users_y_new = (y * SCALE + SHIFT, y_new * SCALE + SHIFT) if name == "gaussian" else (y, y_new)
    post = standardised(name).condition(x * X_SCALE + X_SHIFT, users_y, num_samples=4)
    outer = post.predict(x_new * X_SCALE + X_SHIFT)
    shift, scale = (SHIFT, SCALE) if name == "gaussian" else (0, np.ones(1))
    np.testing.assert_allclose(outer.mean, inner.mean * scale + shift, rtol=1e-8)
    np.testing.assert_allclose(outer.std, inner.std * scale, rtol=1e-8)
    np.testing.assert_allclose(outer.log_prob(users_y_new), inner.log_prob(y_new) - np.log(scale).sum(), rtol=1e-8)


@every_model
def test_prediction_of_another_number_of_columns_is_refused(name):
    post = MODELS[name]().condition(*context(name), num_samples=2)
    with pytest.raises(ValueError, match="x: got 2 columns"):
        post.predict(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="x: got 2 columns"):
        post.functions()[0](np.zeros((3, 2)))


@pytest.mark.parametrize("by_samples", [False, True])
def test_predictions_stay_what_they_are_when_the_model_is_trained_on(by_samples):
    model = bnnp.BNNP(1, 1, (4,), likelihood=bnnp.Gaussian(0.1), seed=0)
    x = np.linspace(-1, 1, 6)[:, None]
    post = model.condition(x, np.sin(x), num_samples=3, seed=0)
    pred = (post.predict_by_samples if by_samples else post.predict)(x)
    before = pred.mean, pred.std, pred.quantile(0.9), pred.samples
    tasks = bnnp.tasks.from_arrays([(5 + x, 100 + 20 * np.sin(k * x)) for k in range(1, 4)])
    bnnp.fit(model, tasks, steps=2, progress=False, seed=0)  # takes the units of these data
    assert model.columns.y_shift.item() > 50
    for now, was in zip((pred.mean, pred.std, pred.quantile(0.9), pred.samples), before, strict=True):
        np.testing.assert_allclose(now, was, rtol=1e-6)
