"""Predictions with the last layer integrated: a mixture of Gaussians, one per sample of the hidden layers."""

import math
from typing import Any

import numpy as np
import pytest
import scoringrules
import torch
from scipy import stats

import bnnp
from bnnp import BNAM, BNNP, AttBNNP, Attentive, Bernoulli, Gaussian, MixturePredictive, Oracle, Transformer
from bnnp._core.columns import Columns
from bnnp.evaluation import evidence
from bnnp.evaluation.crps import MANY, crps_of_mixture
from bnnp.evaluation.score import score
from bnnp.inference.target import Target
from bnnp.inference_nets.pseudo import AmortisedLinear
from bnnp.models import enough
from bnnp.priors import PRIORS
from bnnp.tasks.task import TaskBatch
from support import reference
from support.last_layer import FLOAT64, OUT, model_of, task

K = 6
every_prior = pytest.mark.parametrize("prior", list(PRIORS))
X_NEW = torch.linspace(-1.5, 1.5, 8, dtype=FLOAT64).view(4, 2)
Y_NEW = torch.linspace(-1, 1, 8, dtype=FLOAT64).view(4, OUT)


def mixture(post: bnnp.WeightPosterior, x: torch.Tensor = X_NEW) -> MixturePredictive:
    found = post.predict(x)
    assert isinstance(found, MixturePredictive)
    return found


def moments(model: BNNP, post: bnnp.WeightPosterior, context: bnnp.tasks.Task, k: int):
    """Mean and covariance of `vec(f)` at the new points under one sample of the hidden layers, from the textbook."""
    weights = [w[k] for w in post.weights]
    mean, covariance = reference.model_moments(model, weights, context.x, context.y)[-1][2]
    hidden = [reference.array(w) for w in weights[:-1]]
    features = reference.features(len(hidden), reference.network(hidden, X_NEW.numpy(), "tanh"), "tanh")
    phi = np.kron(np.eye(OUT), features)
    return phi @ mean, phi @ covariance @ phi.T


@every_prior
@pytest.mark.parametrize("points", [0, 2, 9])
def test_components_and_densities_are_those_of_the_textbook(prior, points):
    model, context = model_of(prior), task(points, 1)
    post = model.condition(context.x, context.y, num_samples=K, seed=0)
    pred, noise = mixture(post), reference.array(model.likelihood.noise)  # pyright: ignore[reportArgumentType]
    joint, single = [], []
    for k in range(K):
        mean, covariance = moments(model, post, context, k)
        np.testing.assert_allclose(pred.means[k].T.reshape(-1), mean, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(pred.variances[k].T.reshape(-1), np.diag(covariance), rtol=1e-8, atol=1e-9)
        observed = covariance + np.diag(np.repeat(noise, 4) ** 2)
        joint.append(reference.log_density(reference.vec(Y_NEW.numpy()), mean, observed))
        rows = [[n, 4 + n] for n in range(4)]
        y = Y_NEW.numpy()
        single.append([reference.log_density(y[n], mean[r], observed[np.ix_(r, r)]) for n, r in enumerate(rows)])
    np.testing.assert_allclose(pred.pointwise_log_prob(Y_NEW), single, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(pred.log_prob(Y_NEW), np.log(np.mean(np.exp(single), 0)), rtol=1e-9, atol=1e-9)
    assert pred.joint_log_prob(Y_NEW) == pytest.approx(math.log(np.mean(np.exp(joint))), rel=1e-9)


@pytest.mark.parametrize("kind", ["unitwise", "networkwise", "attentive", "bnam"])
def test_moments_are_those_of_many_weight_samples(kind):
    """Mean and variance at 8 values: each within 5 standard errors of 4,000 samples; chance 1e-5 of a false alarm.

    The samples of the hidden layers are the same, so that the error is the last layer's alone, and at most this.
    """
    gaussian = Gaussian([0.6, 0.9])
    model = {
        "unitwise": lambda: model_of("unitwise"),
        "networkwise": lambda: model_of("networkwise"),
        "attentive": lambda: AttBNNP(
            2, OUT, (4,), inference=Attentive(hidden=(8,)), likelihood=gaussian, dtype=FLOAT64
        ),
        "bnam": lambda: BNAM(2, OUT, Transformer(4, heads=2), likelihood=gaussian, dtype=FLOAT64),
    }[kind]()
    context = task(5, 1)
    post = model.condition(context.x, context.y, num_samples=4000, seed=0)
    pred, by_samples = mixture(post), post.predict_by_samples(X_NEW)
    error = by_samples.function_std / math.sqrt(4000)
    assert (np.abs(pred.mean - by_samples.mean) < 5 * error).all()
    assert (np.abs(pred.mean - by_samples.mean) > 0).any()
    squares = ((by_samples.samples - by_samples.mean) ** 2).std(0) / math.sqrt(4000)
    assert (np.abs(pred.function_std**2 - by_samples.function_std**2) < 5 * squares).all()
    np.testing.assert_array_equal(pred.samples, by_samples.samples)
    np.testing.assert_allclose(pred.std**2, pred.function_std**2 + reference.array(model.likelihood.noise) ** 2)


@pytest.mark.parametrize("noise", [True, False])
def test_quantiles_are_where_the_distribution_function_says(noise):
    model, context = model_of("unitwise"), task(5, 1)
    pred = mixture(model.condition(context.x, context.y, num_samples=K, seed=0))
    levels = [0.01, 0.3, 0.5, 0.95]
    found = pred.quantile(levels, noise=noise)
    assert found.shape == (4, 4, OUT)
    spread = np.sqrt(pred.variances.numpy() + (pred.noise.detach().numpy() ** 2 if noise else 0))
    for level, values in zip(levels, found, strict=True):
        below = stats.norm.cdf(values, pred.means.numpy(), spread).mean(0)
        np.testing.assert_allclose(below, level, atol=1e-9)
        if noise:
            np.testing.assert_allclose(pred.cdf(values), level, atol=1e-9)
    np.testing.assert_allclose(pred.quantile(0.3, noise=noise), found[1], rtol=1e-10)
    low, high = pred.interval(0.9, noise=noise)
    np.testing.assert_allclose(np.stack([low, high]), pred.quantile([0.05, 0.95], noise=noise), rtol=1e-10)
    assert np.isneginf(pred.quantile(0.0)).all()
    assert np.isposinf(pred.quantile(1.0)).all()
    with pytest.raises(ValueError, match=r"q: got 1\.5"):
        pred.quantile(1.5)
    with pytest.raises(ValueError, match="level: got 1, expected a number between 0 and 1"):
        pred.interval(1)


def test_quantiles_of_certain_and_of_far_components():
    """Components without any width, as of a function that is known, and a mixture of two far modes."""
    means, nothing = torch.tensor([[[-100.0]], [[100.0]]], dtype=FLOAT64), torch.zeros(2, 1, 1, dtype=FLOAT64)
    components: Any = None
    pred = MixturePredictive(means, nothing, nothing[0] + 0.1, components, Gaussian(0.1), Columns(1, 1))
    assert pred.quantile(0.25).item() == pytest.approx(-100, abs=1e-6)
    assert pred.quantile(0.75).item() == pytest.approx(100, abs=1e-6)
    assert pred.quantile(0.2, noise=False).item() == pytest.approx(-100, abs=1e-3)


@pytest.mark.parametrize("width", [0.0, 1e-7])
def test_the_search_for_quantiles_does_not_rest_on_a_thin_component(width):
    """At the middle component the distribution function is steep but far from these levels."""
    means = torch.tensor([-1.0, 0.0, 1.0], dtype=FLOAT64)[:, None, None]
    components: Any = None
    variances, nothing = torch.full_like(means, width**2), torch.zeros(1, 1, dtype=FLOAT64)
    pred = MixturePredictive(means, variances, nothing, components, Gaussian(0.1), Columns(1, 1))
    np.testing.assert_allclose(pred.quantile([0.1, 0.5, 0.9], noise=False).ravel(), [-1, 0, 1], atol=2 * width)


@every_prior
def test_contexts_in_chunks_predict_the_same(prior):
    model, context = model_of(prior), task(9, 1)
    whole, chunks = (model.condition(context.x, context.y, num_samples=K, seed=0, chunk_size=c) for c in (None, 4))
    for name in ("means", "variances"):
        one, other = (getattr(mixture(post), name) for post in (whole, chunks))
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-9)
    assert mixture(whole).joint_log_prob(Y_NEW) == pytest.approx(mixture(chunks).joint_log_prob(Y_NEW), rel=1e-8)


@every_prior
def test_an_updated_posterior_predicts_from_all_points(prior):
    """Without hidden layers an update is exact."""
    model, context = model_of(prior, hidden=()), task(9, 1)
    whole = model.condition(context.x, context.y, num_samples=K, seed=0)
    updated = model.condition(context.x[:4], context.y[:4], num_samples=K, seed=0).update(context.x[4:], context.y[4:])
    torch.testing.assert_close(mixture(updated).means, mixture(whole).means, rtol=1e-8, atol=1e-9)
    assert mixture(updated).joint_log_prob(Y_NEW) == pytest.approx(mixture(whole).joint_log_prob(Y_NEW), rel=1e-8)


def test_an_updated_posterior_with_hidden_layers_has_moved():
    model, context = model_of("unitwise"), task(9, 1)
    before = model.condition(context.x[:4], context.y[:4], num_samples=K, seed=0)
    after = before.update(context.x[4:], context.y[4:])
    assert not torch.allclose(mixture(after).means, mixture(before).means)
    assert bool((mixture(after).variances <= mixture(before).variances + 1e-12).all())


@pytest.mark.parametrize("kind", ["unitwise", "attentive"])
def test_posteriors_from_disk_predict_the_same(kind, tmp_path):
    gaussian = Gaussian([0.6, 0.9])
    model = (
        model_of(kind)
        if kind in PRIORS
        else AttBNNP(2, OUT, (4,), inference=Attentive(hidden=(8,)), likelihood=gaussian)
    )
    context = task(5, 1)
    post = model.condition(context.x, context.y, num_samples=K, seed=0)
    again = bnnp.load_posterior(post.save(tmp_path / "p.bnnp"))
    torch.testing.assert_close(mixture(again).means, mixture(post).means)
    torch.testing.assert_close(mixture(again).variances, mixture(post).variances)


def test_other_likelihoods_keep_their_samples():
    model = BNNP(1, 1, (4,), likelihood=Bernoulli(), seed=0)
    post = model.condition([[0.0], [1.0]], [[0.0], [1.0]])
    assert post.num_samples == enough.MOST
    assert isinstance(post.predict([[0.5]]), bnnp.SampledPredictive)


def test_many_points_are_predicted_in_blocks(monkeypatch):
    from bnnp.models import components
    from bnnp.prediction import weights as prediction

    for prior in ("unitwise", "layerwise"):
        model, context = model_of(prior), task(5, 1)
        post = model.condition(context.x, context.y, num_samples=K, seed=0)
        x, y = task(30, 3).x, task(30, 3).y
        whole = mixture(post, x)
        expected = whole.log_prob(y), whole.joint_log_prob(y)
        with monkeypatch.context() as patch:
            for module in (prediction, components):
                patch.setattr(module, "NUMBERS_AT_ONCE", 500)
            blocks = mixture(post, x)
            found = blocks.log_prob(y), blocks.joint_log_prob(y)
        torch.testing.assert_close(blocks.means, whole.means, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-10)
        assert found[1] == pytest.approx(expected[1], rel=1e-10)


# --- how many samples ------------------------------------------------------------------------------------------------


def test_samples_that_agree_are_enough_and_samples_that_differ_are_not():
    """A hidden layer that is all but known, against one whose slopes are all over the place beside the noise."""
    models = [BNNP(1, 1, (1,), "identity", likelihood=Gaussian(0.1), seed=0) for _ in range(2)]
    for model, scale in zip(models, (1e-3, 30.0), strict=True):
        model.prior.assign_layer(0, torch.ones(2, 1), torch.full((2, 1), scale))
        model.prior.assign_layer(1, torch.ones(2, 1), torch.full((2, 1), 0.01))
    nothing = np.zeros((0, 1))
    few, many = (model.condition(nothing, nothing, seed=0) for model in models)
    assert few.num_samples == enough.FIRST
    assert enough.gap(few) < enough.LARGEST_GAP
    assert many.num_samples == enough.MOST
    fixed = models[1].condition(nothing, nothing, num_samples=enough.MOST, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(many.weights, fixed.weights, strict=True))


def test_gap_is_that_of_leaving_each_component_out():
    model, context = model_of("unitwise"), task(5, 1)
    post = model.condition(context.x, context.y, num_samples=40, seed=0)
    assert 0 < enough.gap(post) < 1
    assert enough.gap(model_of("unitwise", hidden=()).condition(context.x, context.y, num_samples=40)) == 0
    in_chunks = model.condition(context.x, context.y, chunk_size=2)
    assert in_chunks.num_samples >= enough.FIRST


# --- scores ----------------------------------------------------------------------------------------------------------


def test_crps_is_that_of_the_closed_form_whatever_the_number_of_components():
    rng = np.random.default_rng(0)
    for components in (1, 3, MANY, MANY + 1):
        observed, means = rng.normal(size=7), rng.normal(size=(7, components))
        spreads = rng.uniform(0.02, 1, size=(7, components))
        found, expected = crps_of_mixture(observed, means, spreads), crps_mixnorm(observed, means, spreads)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
        chosen = rng.integers(components, size=200_000)
        draws = means[0, chosen] + spreads[0, chosen] * rng.normal(size=200_000)
        sampled = scoringrules.crps_ensemble(observed[0], draws, estimator="pwm")
        assert found[0] == pytest.approx(sampled, abs=0.01)


def crps_mixnorm(observed, means, spreads) -> np.ndarray:
    return np.asarray(scoringrules.crps_mixnorm(observed, means, spreads))


def test_scores_of_a_mixture_in_the_users_units():
    model, context = model_of("unitwise"), task(5, 1)
    model.columns.take(Columns(2, OUT), include_y=True)
    with torch.no_grad():
        model.columns.y_shift.copy_(torch.tensor([3.0, -1.0]))
        model.columns.y_scale.copy_(torch.tensor([10.0, 0.5]))
    y = Y_NEW * torch.tensor([10.0, 0.5]) + torch.tensor([3.0, -1.0])
    context_y = context.y * torch.tensor([10.0, 0.5]) + torch.tensor([3.0, -1.0])
    pred = mixture(model.condition(context.x, context_y, num_samples=K, seed=0))
    found = score(pred, y)
    means, spreads = pred.standard_components()
    density = stats.norm.pdf(y.numpy(), means, spreads).prod(-1)
    assert found[f"marginal_lppd@{K} integrated"] == pytest.approx(np.log(density.mean(0)).mean(), rel=1e-9)
    assert found[f"pooled_lppd@{K} integrated"] == pytest.approx(np.log(density.mean()), rel=1e-9)
    assert found[f"joint_lppd@{K} integrated"] == pytest.approx(pred.joint_log_prob(y) / 4, rel=1e-12)
    crps = [crps_mixnorm(y[n, c].numpy(), means[:, n, c], spreads[:, n, c]) for n, c in np.ndindex(4, OUT)]
    assert found["crps"] == pytest.approx(np.mean(crps), rel=1e-9)
    low, high = pred.interval(0.9)
    assert found["coverage_90"] == ((low <= y.numpy()) & (y.numpy() <= high)).mean()
    louder = pred.with_noise(4.0)
    np.testing.assert_allclose(louder.std**2, pred.function_std**2 + 16, rtol=1e-9)


def test_the_oracle_is_scored_exactly():
    source = bnnp.tasks.gp()
    generator = torch.Generator().manual_seed(0)
    whole = source.draw(1, generator)[0]
    context, target = whole.take(torch.arange(10)), whole.take(torch.arange(10, 30))
    exact = source.oracle(context.x, context.y, target.x)
    found = score(Oracle(source).condition(context.x, context.y, num_samples=3).predict(target.x), target.y)
    assert found["marginal_lppd@exact"] == pytest.approx(float(exact.marginal_log_prob(target.y).mean()), rel=1e-10)
    assert found["joint_lppd@exact"] == pytest.approx(exact.joint_log_prob(target.y) / 20, rel=1e-10)
    normal = scoringrules.crps_normal(target.y.numpy(), exact.mean.numpy(), exact.std.numpy())
    assert found["crps"] == pytest.approx(normal.mean(), rel=1e-10)


def test_estimators_are_named():
    source = bnnp.tasks.sawtooth(points=(8, 9))
    model = BNNP(1, 1, (3,), seed=0)
    by_itself, of_20 = (bnnp.evaluate(model, source, num_samples=n, num_tasks=1) for n in (None, 20))
    assert "joint_lppd@integrated" in by_itself.names()
    assert "joint_lppd@20 integrated" in of_20.names()
    sampled = bnnp.evaluate(BNNP(1, 1, (3,), likelihood=Bernoulli(), seed=0), _binary(), num_samples=5)
    assert "joint_lppd@5" in sampled.names()


def _binary():
    return bnnp.tasks.from_arrays([(np.arange(6.0), np.arange(6) % 2.0)])


# --- evidence --------------------------------------------------------------------------------------------------------


@every_prior
def test_importance_sampling_is_exact_in_a_linear_model(prior):
    model, context = model_of(prior, hidden=()), task(6, 1)
    post = model.condition(context.x, context.y, num_samples=3, seed=0)
    batch = TaskBatch.of([context])
    target = Target(model.prior, model.network, model.likelihood, batch)
    phi = np.kron(np.eye(OUT), reference.features(0, context.x.numpy(), "tanh"))
    noise = np.repeat(reference.array(model.likelihood.noise), 6)  # pyright: ignore[reportArgumentType]
    exact = reference.log_evidence(*reference.prior_moments(model.prior), phi, reference.vec(context.y.numpy()), noise)
    found = evidence.by_importance(target, post)
    assert found.value == pytest.approx(exact, rel=1e-10)
    assert found.effective == pytest.approx(3)


@every_prior
def test_importance_sampling_agrees_with_monte_carlo(prior):
    """Of draws from the posterior and from the prior: within 4.5 standard errors of both (7e-6 of a false alarm).

    Inference networks that are not trained had better not be sure of themselves, or hardly a draw would count.
    """
    model, context = model_of(prior), task(3, 1)
    for layer in model.layers:
        assert isinstance(layer, AmortisedLinear)
        outputs = layer.outputs(layer.units, layer.true_outputs)
        layer.encoder.set_output_bias(slice(outputs - layer.units, outputs), 1.5)
    post = model.condition(context.x, context.y, num_samples=20_000, seed=0)
    batch = TaskBatch.of([context])
    target = Target(model.prior, model.network, model.likelihood, batch)
    found = evidence.by_importance(target, post)
    expected = evidence.by_monte_carlo(target, 200_000, seed=1)
    error = math.hypot(found.standard_error, expected.standard_error)
    assert abs(found.value - expected.value) < 4.5 * error
    assert error < 0.1
