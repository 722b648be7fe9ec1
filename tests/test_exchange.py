"""Posteriors as trees that ArviZ reads."""

import numpy as np
import pytest

import bnnp

X, Y, NEW = np.linspace(-1, 1, 5)[:, None], np.linspace(3, 5, 10).reshape(5, 2), np.array([[0.2], [0.3], [0.4]])


@pytest.fixture(scope="module")
def post():
    model = bnnp.BNNP(1, 2, (4,), likelihood=bnnp.Gaussian(0.5), seed=0)
    bnnp.fit(model, bnnp.tasks.from_arrays([(X, Y)]), steps=1, progress=False)  # for shifts and scales
    return model.condition(X, Y, num_samples=200, seed=0)


@pytest.fixture(scope="module")
def tree(post):
    return bnnp.to_arviz(post, NEW)


def test_groups_hold_weights_predictions_and_data_in_the_users_units(post, tree):
    np.testing.assert_array_equal(tree["posterior/weights_1"][0], post.weights[1])
    np.testing.assert_allclose(tree["observed_data/y1"], Y[:, 1], rtol=1e-6)
    np.testing.assert_allclose(tree["constant_data/x0"], X[:, 0], rtol=1e-6)
    np.testing.assert_array_equal(tree["predictions_constant_data/x0"], NEW[:, 0])
    drawn, exact = tree["predictions/y0"].values[0], post.predict(NEW)
    error = exact.std[:, 0] / np.sqrt(200)
    assert (np.abs(drawn.mean(0) - exact.mean[:, 0]) < 5 * error).all()  # by chance below 1e-5


def test_log_likelihoods_are_those_of_every_weight_sample(post, tree):
    f = post.functions()[7](X)
    noise = post.likelihood.noise.detach().numpy() * post.columns.y_scale.numpy()
    expected = (-0.5 * ((Y - f) / noise) ** 2 - np.log(noise) - 0.5 * np.log(2 * np.pi)).sum(1)
    np.testing.assert_allclose(tree["log_likelihood/y0_y1"].values[0, 7], expected, rtol=1e-4)


def test_the_prior_is_wider_than_the_posterior(tree):
    assert tree["prior_predictive/y0"].std("draw").mean() > 1.2 * tree["posterior_predictive/y0"].std("draw").mean()


def test_without_the_known_points_there_is_less(post):
    updated = post.update([[0.5]], [[3.0, 4.0]])
    assert set(bnnp.to_arviz(updated, NEW).children) == {
        *("posterior", "prior", "predictions", "predictions_constant_data"),
    }


def test_chains_are_kept():
    model = bnnp.BNNP(1, 1, (4,), seed=0)
    with pytest.warns(bnnp.inference.InferenceWarning):
        found = bnnp.infer(model, X, Y[:, :1], method="hmc", num_samples=6, chains=2, warmup=2)
    tree = bnnp.to_arviz(found)
    assert set(tree.children) == {"posterior"}
    np.testing.assert_array_equal(np.asarray(tree["posterior/weights_0"])[1, 0], found.weights[0][3])


def test_arviz_reads_it(tree):
    arviz = pytest.importorskip("arviz_base", reason="not in every environment")
    assert arviz.extract(tree, group="log_likelihood", var_names="y0_y1").shape == (5, 200)
