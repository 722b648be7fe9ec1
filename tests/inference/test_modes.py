"""Ensembles, Laplace's approximation and SWAG, against the exact posterior of a linear model and in other ways."""

import math

import numpy as np
import pytest
import torch

import bnnp
from bnnp.inference import SWAG, Effort, Ensemble, Laplace, infer_many
from support.gradients import LIKELIHOODS, sets
from support.inference import FLOAT64, NOISE, assert_moments, data, deep, exact_moments, linear, target, units_of

FAST = {"steps": 500, "learning_rate": (5e-2, 1e-4)}


def infer(model, x, y, method, num_samples: int = 1000, **options):
    return bnnp.infer(
        model.prior,
        model.network,
        x,
        y,
        method=method,
        likelihood=model.likelihood,
        num_samples=num_samples,
        **FAST | options,
    )


@pytest.mark.parametrize("points", [9, 2, 0])
def test_laplace_is_exact_for_a_linear_model(points):
    model, (x, y) = linear(), data(points)
    assert_moments(infer(model, x, y, Laplace(), 2000), model, x, y, effective=2000)


@pytest.mark.parametrize("prior", list(bnnp.priors.PRIORS))
def test_laplace_is_exact_for_a_linear_model_under_every_prior(prior):
    """There the BNNP with the likelihood's own noise is exact, too."""
    model, (x, y) = linear(prior), data(6)
    found = infer(model, x, y, Laplace(), 3000).predict(x)
    exact = model.condition(x, y, num_samples=3000).predict(x)
    scale = exact.function_std
    assert (np.abs(found.mean - exact.mean) / scale).max() < 5 * math.sqrt(2 / 3000)
    assert np.abs(found.function_std / scale - 1).max() < 5 / math.sqrt(3000)


def test_the_last_layer_is_exact_given_the_features_of_the_others():
    model, (x, y) = deep(), data()
    post = infer(model, x, y, Laplace(last_layer=True), 3000)
    first, last = post.weights
    assert bool((first == first[:1]).all())
    h = np.tanh(np.hstack([x, np.ones((9, 1))]) @ first[0].numpy())
    phi = np.hstack([h, np.ones((9, 1))])
    prior = model.prior.layer(1, [])
    for unit in range(2):
        factor = prior.factor[unit].detach().numpy()
        precision = np.linalg.inv(factor @ factor.T) + phi.T @ phi / NOISE[unit] ** 2
        found = np.cov(last[:, :, unit].numpy().T)
        np.testing.assert_allclose(found, np.linalg.inv(precision), atol=0.12 * np.abs(np.linalg.inv(precision)).max())


def test_the_mode_has_no_slope():
    model, (x, y) = deep(), data()
    post = infer(model, x, y, Ensemble(3), steps=1500)
    of = target(model, (x, y))
    position = of.position_of([w.unsqueeze(0) for w in post.weights])
    value, gradient = of.value_and_gradient(position)
    assert float(gradient.norm(dim=-1).max()) < 0.05
    assert post.diagnostics.elbo is not None
    assert float(post.diagnostics.elbo[-1]) == pytest.approx(float(value.mean()), abs=0.01)


@pytest.mark.parametrize("likelihood", ["bernoulli", "categorical"])
def test_laplace_has_the_curvature_of_other_likelihoods(likelihood):
    """For a network of one layer the generalised Gauss-Newton matrix is the Hessian, which autograd finds."""
    model = bnnp.BNNP(3, 2, (), likelihood=LIKELIHOODS[likelihood], dtype=FLOAT64)
    ((x, y),) = sets(likelihood, (8,))
    post = infer(model, x, y, Laplace(), 4000, steps=700)
    of = target(model, (x, y))
    drawn = of.position_of([w.unsqueeze(0) for w in post.weights])[0]
    mode = of.position_of([w.unsqueeze(0) for w in infer(model, x, y, Ensemble(1), steps=700).weights])[0, 0]
    hessian: torch.Tensor = torch.autograd.functional.hessian(  # pyright: ignore
        lambda p: of.log_density(p[None, None]).sum(), mode
    )
    covariance = torch.linalg.inv(-hessian)
    scale = covariance.diagonal().sqrt()
    assert bool(((drawn.mean(0) - mode) / scale).abs().max() < 5 / math.sqrt(4000))
    error = (torch.cov(drawn.mT) - covariance) / (scale[:, None] * scale)
    assert bool(error.abs().max() < 5 * math.sqrt(2 / 4000))


def test_members_of_a_plain_ensemble_agree_on_a_linear_model():
    """There is one mode, so that they have no spread: an ensemble is not a posterior."""
    model, (x, y) = linear(), data()
    mean, covariance, _ = exact_moments(model, x, y)
    scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    found = units_of(infer(model, x, y, Ensemble(5), steps=1000))
    assert found.shape[0] == 5
    assert np.abs((found - mean) / scale).max() < 0.02


def test_members_of_an_anchored_ensemble_are_draws_of_the_posterior_of_a_linear_model():
    model, (x, y) = linear(), data()
    post = infer(model, x, y, Ensemble(600, anchored=True), steps=800)
    assert post.num_samples == 600
    assert_moments(post, model, x, y, effective=600)


def test_an_anchored_ensemble_needs_a_gaussian_likelihood():
    model = bnnp.BNNP(3, 2, (), likelihood=bnnp.Bernoulli(), dtype=FLOAT64)
    with pytest.raises(ValueError, match="anchored ensemble needs a Gaussian likelihood"):
        infer(model, *sets("bernoulli")[0], Ensemble(3, anchored=True))


def test_swag_has_the_mean_of_the_posterior_and_the_moments_of_its_path():
    model, (x, y), (x2, y2) = linear(), data(12), data(7, 1)
    method = SWAG(updates=60, every=5, rank=60, batch_size=5)
    of = target(model, (x, y), (x2, y2))
    effort = Effort(steps=800, learning_rate=(5e-2, 1e-4))
    generator = torch.Generator().manual_seed(0)
    state = method.init(of, effort, 10, generator)
    path = []
    for step in range(method.num_steps(effort, 10)):
        state = method.step(of, state, generator)
        if step >= 800 and (step - 799) % 5 == 0:
            path.append(state.place.detach()[:, 0].clone())
    seen = torch.stack(path, dim=1)
    assert seen.shape[1] == 60
    torch.testing.assert_close(state.mean, seen.mean(1))
    drawn = of.position_of(method.sample(of, state, 20_000, generator).weights)
    torch.testing.assert_close(drawn.mean(1), seen.mean(1), atol=0.05, rtol=0)
    running = torch.stack([seen[:, : n + 1].mean(1) for n in range(60)], dim=1)
    deviations = seen - running
    expected = 0.5 * seen.var(1, correction=0) + 0.5 * deviations.square().sum(1) / 59
    torch.testing.assert_close(drawn.var(1), expected, rtol=0.06, atol=1e-6)
    for i, (inputs, outputs) in enumerate(((x, y), (x2, y2))):
        mean, covariance, _ = exact_moments(model, inputs, outputs)
        scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        found = of.weights(state.mean.unsqueeze(1))[0][i, 0].mT.detach().numpy()
        assert np.abs((found - mean) / scale).max() < 1.0  # the path has 60 positions that hang together


def test_plain_steps_that_are_too_large_are_told():
    model, (x, y) = deep(), data()
    with pytest.raises(ArithmeticError, match="SWAG's path is not finite after"):
        infer(model, x, y, SWAG(learning_rate=1e6), steps=10)


def test_the_rate_of_plain_steps_is_the_reciprocal_of_the_largest_curvature():
    model, (x, y) = linear(), data(12)
    of = target(model, (x, y))
    position = of.draw_prior(1, torch.Generator().manual_seed(0))
    rate = SWAG()._rate(of, position, torch.Generator().manual_seed(1))
    eye = torch.eye(of.size, dtype=FLOAT64)[None]
    hessian = of.value_and_gradient(position + eye)[1][0] - of.value_and_gradient(position)[1][0]  # it is quadratic
    assert 1 / float(rate) == pytest.approx(float(torch.linalg.eigvalsh(-hessian)[-1]), rel=0.02)


def test_many_data_sets_at_once_are_what_each_is_alone():
    model = deep()
    several = [data(4), data(7, 1), data(0, 2)]
    for method in (Laplace(), Ensemble(2)):
        effort = Effort(steps=50)
        posts = infer_many(
            model.prior,
            model.network,
            several,
            method=method,
            likelihood=model.likelihood,
            num_samples=2,
            effort=effort,
        )
        assert [len(post.predict(x).mean) for post, (x, _) in zip(posts, several, strict=True)] == [4, 7, 0]
