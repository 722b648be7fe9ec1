"""Several outputs, binary outputs and classes, from training to prediction: the laws that every likelihood obeys."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import special, stats

import bnnp
from bnnp.likelihoods.base import Likelihood
from bnnp.tasks.source import Collection
from support.training import in_records

PRIORS = ("factorised", "unitwise", "layerwise", "networkwise")
LIKELIHOODS = {
    "gaussian": (3, lambda: bnnp.Gaussian([0.1, 0.2, 0.3])),
    "bernoulli": (2, lambda: bnnp.Bernoulli()),
    "categorical": (3, lambda: bnnp.Categorical(3)),
}
X_NEW = np.linspace(-2, 2, 9)[:, None]
every_prior = pytest.mark.parametrize("prior", PRIORS)
every_likelihood = pytest.mark.parametrize("name", list(LIKELIHOODS))


def data_sets(name: str, count: int, seed: int, points: int = 24) -> list[tuple[np.ndarray, np.ndarray]]:
    """Waves of a random phase: outputs of a task are functions of one and the same wave."""
    generator = np.random.default_rng(seed)
    sets = []
    for _ in range(count):
        x = generator.uniform(-2, 2, (points, 1))
        wave = np.sin(2 * x + generator.normal(0, 1))
        if name == "gaussian":
            y = wave * [1.0, -2.0, 3.0] + [0.0, 10.0, -5.0] + generator.normal(0, [0.1, 0.2, 0.3], (points, 3))
        elif name == "bernoulli":
            y = (generator.random((points, 2)) < special.expit(6 * wave * [1, -1])).astype(float)
        else:
            y = np.digitize(wave, [-0.5, 0.5]).astype(float)
        sets.append((x, y))
    return sets


def tasks(name: str, count: int = 40, seed: int = 0) -> Collection:
    return bnnp.tasks.from_arrays(data_sets(name, count, seed))


def new_model(name: str, prior: str = "unitwise", hidden=(8,), **choices) -> bnnp.BNNP:
    out_size, likelihood = LIKELIHOODS[name]
    return bnnp.BNNP(1, out_size, hidden=hidden, prior=prior, likelihood=likelihood(), seed=0, **choices)


def fit(model: bnnp.BNNP, source: Collection, steps: int, **choices) -> bnnp.BNNP:
    objective = bnnp.objectives.PPAVI(num_samples=4)
    bnnp.fit(model, source, objective=objective, steps=steps, progress=False, seed=0, **in_records(choices))
    return model


_trained: dict[tuple[str, str], bnnp.BNNP] = {}


def trained(name: str, prior: str = "unitwise") -> bnnp.BNNP:
    """A model after a few steps, in which nothing is at its start; the same one for all tests, which leave it alone."""
    if (name, prior) not in _trained:
        _trained[name, prior] = fit(new_model(name, prior, hidden=(5, 4)), tasks(name), steps=3)
    return _trained[name, prior]


def predictive(
    model: bnnp.BNNP, name: str, num_samples: int = 40, by_samples: bool = False, **choices
) -> bnnp.Predictive:
    x, y = data_sets(name, 1, seed=9)[0]
    post = model.condition(x, y, num_samples=num_samples, seed=1, **choices)
    return post.predict_by_samples(X_NEW) if by_samples else post.predict(X_NEW)


def new_observations(name: str) -> np.ndarray:
    return data_sets(name, 1, seed=5, points=len(X_NEW))[0][1]


# --- shapes and ranges -----------------------------------------------------------------------------------------------


@every_prior
@every_likelihood
def test_predictions_have_a_column_per_output_and_observations_those_of_the_data(name, prior):
    pred = predictive(trained(name, prior), name)
    outputs, columns = LIKELIHOODS[name][0], data_sets(name, 1, 0)[0][1].shape[1]
    assert pred.mean.shape == pred.std.shape == pred.function_std.shape == (9, outputs)
    assert pred.samples.shape == (40, 9, outputs)
    assert pred.observations(0).shape == (40, 9, columns)
    assert pred.log_prob(new_observations(name)).shape == (9,)
    if name != "categorical":
        assert pred.quantile([0.1, 0.5, 0.9]).shape == (3, 9, outputs)


@every_likelihood
def test_predictions_lie_where_observations_can_be(name):
    pred = predictive(trained(name), name)
    drawn = pred.observations(0)
    if name == "gaussian":
        assert np.all(pred.std > pred.function_std)
        return
    assert np.all((pred.samples >= 0) & (pred.samples <= 1))
    assert set(np.unique(drawn)) <= ({0.0, 1.0} if name == "bernoulli" else {0.0, 1.0, 2.0})
    np.testing.assert_allclose(pred.std, np.sqrt(pred.mean * (1 - pred.mean)), rtol=1e-4)  # of one binary number


def test_class_probabilities_sum_to_one():
    pred = predictive(trained("categorical"), "categorical")
    np.testing.assert_allclose(pred.samples.sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(pred.mean.sum(-1), 1, rtol=1e-6)
    total = np.exp([pred.log_prob(np.full((9, 1), label)) for label in range(3)]).sum(0)
    np.testing.assert_allclose(total, 1, rtol=1e-6)


@every_likelihood
def test_outputs_that_are_not_real_keep_their_units(name):
    columns = trained(name).columns
    shifted = name == "gaussian"
    assert bool((columns.y_scale != 1).all()) == bool((columns.y_shift != 0).all()) == shifted
    assert bool((columns.x_scale != 1).all())


# --- numbers that are reached by a second route -----------------------------------------------------------------------


@every_likelihood
def test_mean_and_spread_are_those_of_new_observations(name):
    """Observations are drawn for each of 4000 functions: within 5 standard errors, 1 false alarm in 30,000 tests."""
    pred = predictive(trained(name), name, num_samples=4000)
    drawn = pred.observations(3)
    if name == "categorical":
        drawn = (drawn == np.arange(3)).astype(float)
    error = pred.std / np.sqrt(len(drawn))
    assert np.all(np.abs(drawn.mean(0) - pred.mean) < 5 * error + 1e-6)
    assert np.abs(drawn.mean(0) - pred.mean[::-1]).max() > 5 * error.max()  # means of other points are told apart
    np.testing.assert_allclose(drawn.std(0), pred.std, rtol=0.15, atol=0.02)


@every_likelihood
def test_log_density_given_one_weight_sample_is_scipys_summed_over_outputs_and_points(name):
    model = trained(name)
    pred, y = predictive(model, name, num_samples=1, by_samples=True), new_observations(name)
    f = pred.samples[0]
    if name == "gaussian":
        assert isinstance(model.likelihood, bnnp.Gaussian)
        noise = (model.likelihood.noise * model.columns.y_scale).detach().numpy()
        terms = stats.norm.logpdf(y, f, noise).sum(-1)
    elif name == "bernoulli":
        terms = stats.bernoulli.logpmf(y, f).sum(-1)
    else:
        terms = np.log(f[np.arange(9), y[:, 0].astype(int)])
    np.testing.assert_allclose(pred.log_prob(y), terms, rtol=2e-5)
    assert pred.joint_log_prob(y) == pytest.approx(terms.sum(), rel=2e-5)


@every_likelihood
def test_several_outputs_are_dependent_through_the_weights(name):
    """With many weight samples the joint density of all points is not the product of their own densities."""
    pred, y = predictive(trained(name), name, num_samples=200), new_observations(name)
    assert abs(pred.joint_log_prob(y) - pred.log_prob(y).sum()) > 1e-3


def test_functions_are_the_samples():
    for name in LIKELIHOODS:
        x, y = data_sets(name, 1, seed=9)[0]
        post = trained(name).condition(x, y, num_samples=3, seed=1)
        for function, sample in zip(post.functions(), post.predict(X_NEW).samples, strict=True):
            np.testing.assert_allclose(function(X_NEW), sample, rtol=1e-4, atol=1e-6)


# --- learning --------------------------------------------------------------------------------------------------------


def ignorance(name: str, held_out: Collection) -> float:
    """Log-density a point of predictions that know the outputs' own mean and spread, or that classes are alike."""
    if name != "gaussian":
        return -np.log(3) if name == "categorical" else -2 * np.log(2)
    y = torch.cat([task.y for task in held_out.tasks]).numpy()
    return float(stats.norm.logpdf(y, y.mean(0), y.std(0)).sum(-1).mean())


@every_likelihood
def test_learning_improves_the_log_density_of_new_tasks(name):
    """By 0.05 nats per point at least. The untrained model has the same units, so that they are not what is learned."""
    source, held_out = tasks(name), tasks(name, count=12, seed=1)
    start, model = (new_model(name) for _ in range(2))
    fit(start, source, steps=1, learning_rate=(0.0, 0.0))
    fit(model, source, steps=60, learning_rate=(2e-2, 2e-3), optimiser=torch.optim.Adam)
    before, after = (
        bnnp.evaluate(m, held_out, num_samples=50, context_share=(0.3, 0.6), seed=0)["marginal_lppd"]
        for m in (start, model)
    )
    assert after > max(before, ignorance(name, held_out)) + 0.05


@every_prior
@every_likelihood
def test_every_prior_is_trained_on_every_output(name, prior):
    """A few steps move every parameter of the prior and of the inference networks."""
    model, start = trained(name, prior), new_model(name, prior, hidden=(5, 4))
    for (label, now), before in zip(model.named_parameters(), start.parameters(), strict=True):
        assert bool(torch.isfinite(now).all()), label
        assert not torch.equal(now, before), label


@every_likelihood
def test_training_in_chunks(name):
    model = fit(new_model(name), tasks(name, count=6), steps=2, chunk_size=5)
    assert np.isfinite(predictive(model, name).mean).all()


@every_likelihood
def test_scores_are_those_of_the_likelihood(name):
    scores = bnnp.evaluate(trained(name), tasks(name, count=4, seed=2), num_samples=20, seed=0)
    expected = {"accuracy"} if name == "categorical" else {"mae", "rmse", "crps", "coverage_90"}
    assert expected <= set(scores.names())
    assert all(np.isfinite(scores[score]) for score in scores.names())


# --- contexts in chunks, updates, files -------------------------------------------------------------------------------


@every_prior
@every_likelihood
def test_a_context_in_chunks_gives_the_predictions_of_the_whole(name, prior):
    model = trained(name, prior)
    whole, chunked = predictive(model, name), predictive(model, name, chunk_size=7)
    np.testing.assert_allclose(whole.mean, chunked.mean, rtol=2e-3, atol=2e-3 * float(np.abs(whole.mean).max()))


@every_prior
@every_likelihood
def test_an_update_is_exact_without_hidden_layers_and_moves_predictions_with_them(name, prior):
    x, y = data_sets(name, 1, seed=9)[0]
    linear = new_model(name, prior, hidden=(), dtype=torch.float64)
    whole = linear.condition(x, y, num_samples=2000, seed=1).predict(X_NEW)
    online = linear.condition(x[:10], y[:10], num_samples=2000, seed=2).update(x[10:], y[10:]).predict(X_NEW)
    error = np.sqrt(whole.function_std**2 + online.function_std**2) / np.sqrt(2000)
    assert np.all(np.abs(whole.mean - online.mean) < 5 * error)
    first = trained(name, prior).condition(x[:10], y[:10], num_samples=5, seed=1)
    second = first.update(x[10:], y[10:])
    assert second.points == len(x)
    assert not np.allclose(first.predict(X_NEW).mean, second.predict(X_NEW).mean)


@every_prior
@every_likelihood
def test_models_and_posteriors_come_back_from_files(name, prior, tmp_path: Path):
    model = trained(name, prior)
    x, y = data_sets(name, 1, seed=9)[0]
    again = bnnp.load(model.save(tmp_path / "model.bnnp"))
    posts = [m.condition(x, y, num_samples=4, seed=1) for m in (model, again)]
    loaded = bnnp.load_posterior(posts[0].save(tmp_path / "post.bnnp"))
    expected = posts[0].predict(X_NEW)
    for pred in (posts[1].predict(X_NEW), loaded.predict(X_NEW)):
        np.testing.assert_array_equal(pred.mean, expected.mean)
        np.testing.assert_array_equal(pred.log_prob(new_observations(name)), expected.log_prob(new_observations(name)))


# --- the command line ------------------------------------------------------------------------------------------------


def long_table(name: str, path: Path, count: int, seed: int) -> tuple[Path, list[str]]:
    """The tasks as rows of a table, and the names of its outputs."""
    sets = data_sets(name, count, seed)
    columns = [f"out{i}" for i in range(sets[0][1].shape[1])]
    parts = [pd.DataFrame(np.hstack(pair), columns=["x", *columns]).assign(site=i) for i, pair in enumerate(sets)]
    pd.concat(parts).to_csv(path, index=False)
    return path, columns


@every_likelihood
def test_tables_with_such_outputs_are_trained_on_and_predicted(name, tmp_path, monkeypatch, capsys):
    from support.command_line import run

    table, columns = long_table(name, tmp_path / "all.csv", 6, seed=0)
    known, _ = long_table(name, tmp_path / "known.csv", 1, seed=1)
    wanted = [option for column in columns for option in ("--y", column)]
    words = ["--task", "site", "--x", "x", *wanted, "--likelihood", name, "--hidden", 4, "--steps", 3, "--samples", 2]
    out = tmp_path / "model"
    code, _, err = run(monkeypatch, capsys, "train", table, *words, "--out", out, "--quiet")
    assert code == 0, err
    code, _, err = run(
        monkeypatch, capsys, "predict", out, "--context", known, "--targets", known, "--out", tmp_path / "p.csv"
    )
    assert code == 0, err
    found, sets = pd.read_csv(tmp_path / "p.csv"), data_sets(name, 1, seed=1)[0]
    direct = bnnp.load(out).condition(*sets).predict(sets[0])
    labels = [f"out0_is_{c}" for c in range(3)] if name == "categorical" else [f"{c}_mean" for c in columns]
    np.testing.assert_allclose(found[labels], direct.mean, rtol=1e-4, atol=1e-5)
    code, printed, err = run(monkeypatch, capsys, "evaluate", out, table, "--task", "site", "--samples", 5)
    assert code == 0, err
    assert ("accuracy" if name == "categorical" else "crps") in printed
    for verb in (["sample", out, "--num", 2, "--out", tmp_path / "f.csv"], ["info", out]):
        code, _, err = run(monkeypatch, capsys, *verb)
        assert code == 0, err


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("out_size", "likelihood", "message"),
    [
        (2, bnnp.Gaussian([0.1, 0.2, 0.3]), "got 3 values, expected 1 or one for each of 2 outputs"),
        (2, bnnp.Categorical(3), "got 2, expected 3, the number of classes"),
    ],
)
def test_likelihoods_that_do_not_fit_the_outputs_are_refused(out_size: int, likelihood: Likelihood, message: str):
    with pytest.raises(ValueError, match=message):
        bnnp.BNNP(1, out_size, likelihood=likelihood)


@pytest.mark.parametrize(
    ("name", "y", "message"),
    [
        ("gaussian", [[0.0, 1.0]], "got 2 columns, expected 3"),
        ("bernoulli", [[0.0, 1.5]], r"expected values in \[0, 1\]"),
        ("categorical", [[3.0]], "expected class labels 0, ..., 2"),
        ("categorical", [[0.5]], "expected class labels 0, ..., 2"),
    ],
)
def test_observations_that_cannot_be_are_refused_everywhere(name, y, message):
    model = trained(name)
    x = [[0.0]]
    good = data_sets(name, 1, 0, points=1)[0][1]
    post = model.condition(x, good, num_samples=2)
    for attempt in (
        lambda: model.condition(x, y),
        lambda: model.condition(x, y, chunk_size=1),
        lambda: post.update(x, y),
        lambda: post.predict(x).log_prob(y),
    ):
        with pytest.raises(ValueError, match=message):
            attempt()
