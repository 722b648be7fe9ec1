"""Positive outputs: logarithms inside, the user's units outside, against NumPy and SciPy."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import integrate, stats

import bnnp
from bnnp.app.export import packed
from bnnp.evaluation.crps import crps_of_lognormals
from bnnp.evaluation.evidence import by_importance
from bnnp.inference.target import Target
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.prediction.lognormal import moments

SHIFT, SCALE = 0.7, 0.4


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    time = rng.uniform(0, 4, 40)
    conc = np.exp(1 - time / 2 + 0.2 * rng.normal(size=40))
    return pd.DataFrame({"subject": np.repeat(list("abcde"), 8), "time": time, "conc": conc})


def model_with(positive: bool) -> bnnp.BNNP:
    model = bnnp.BNNP(1, 1, hidden=(4,), likelihood=Gaussian(0.5), last_layer="likelihood", dtype=torch.float64, seed=0)
    model.columns.y_shift.fill_(SHIFT)
    model.columns.y_scale.fill_(SCALE)
    model.columns.positive = positive
    return model


@pytest.fixture(scope="module")
def both() -> tuple[bnnp.Predictive, bnnp.Predictive, np.ndarray]:
    """Predictions of positive outputs, of their logarithms, and outputs at these inputs."""
    x, y, new = [[0.0], [1.0], [2.0]], np.array([[1.0], [2.0], [5.0]]), [[0.5], [1.5], [3.0], [-1.0]]
    positive = model_with(True).condition(x, y, num_samples=40, seed=0)
    logarithms = model_with(False).condition(x, np.log(y), num_samples=40, seed=0)
    return positive.predict(new), logarithms.predict(new), np.array([[0.5], [4.0], [2.0], [1.0]])


def components(logarithms: bnnp.MixturePredictive, *, noise: bool = True):
    """The log-normals of the mixture."""
    means = logarithms.means.numpy() * SCALE + SHIFT
    variances = logarithms.variances + (logarithms.noise.square() if noise else 0.0)
    return stats.lognorm(s=variances.detach().sqrt().numpy() * SCALE, scale=np.exp(means))


def test_densities_are_those_of_log_normals(both):
    positive, logarithms, y = both
    expected = np.log(components(logarithms).pdf(y).mean(0))[:, 0]  # pyright: ignore
    np.testing.assert_allclose(positive.log_prob(y), expected, rtol=1e-9)
    joint = logarithms.joint_log_prob(np.log(y)) - np.log(y).sum()
    assert positive.joint_log_prob(y) == pytest.approx(joint, rel=1e-12)
    np.testing.assert_allclose(positive.cdf(y), components(logarithms).cdf(y).mean(0), rtol=1e-9)


@pytest.mark.parametrize("noise", [True, False])
def test_moments_are_those_of_log_normals(both, noise):
    positive, logarithms, _ = both
    parts = components(logarithms, noise=noise)
    mean = parts.mean().mean(0)
    std = np.sqrt((parts.var() + parts.mean() ** 2).mean(0) - mean**2)
    np.testing.assert_allclose(positive.std if noise else positive.function_std, std, rtol=1e-9)
    if noise:
        np.testing.assert_allclose(positive.mean, mean, rtol=1e-9)


def test_quantiles_samples_and_functions_are_transformed(both):
    positive, logarithms, _ = both
    np.testing.assert_allclose(positive.quantile([0.0, 0.05, 0.9]), np.exp(logarithms.quantile([0.0, 0.05, 0.9])))
    np.testing.assert_allclose(positive.samples, np.exp(logarithms.samples))
    np.testing.assert_allclose(positive.observations(seed=1), np.exp(logarithms.observations(seed=1)))
    functions = [model_with(flag).prior.functions(2, 0)[0]([[0.5]]) for flag in (True, False)]
    np.testing.assert_allclose(functions[0], np.exp(functions[1]))


def test_predictions_by_samples_have_the_same_units():
    x, y, new, y_new = [[0.0], [1.0]], np.array([[1.0], [2.0]]), [[0.5], [3.0]], np.array([[0.5], [2.0]])
    positive = model_with(True).condition(x, y, num_samples=7, seed=0).predict_by_samples(new)
    f = positive.outputs.numpy() * SCALE + SHIFT
    parts = stats.lognorm(s=0.5 * SCALE, scale=np.exp(f))
    np.testing.assert_allclose(positive.mean, parts.mean().mean(0), rtol=1e-6)
    second = (parts.var() + parts.mean() ** 2).mean(0)
    np.testing.assert_allclose(positive.std, np.sqrt(second - positive.mean**2), rtol=1e-6)
    np.testing.assert_allclose(positive.function_std, np.exp(f).std(0), rtol=1e-6)
    expected = parts.logpdf(y_new)[..., 0]  # pyright: ignore
    np.testing.assert_allclose(positive.pointwise_log_prob(y_new), expected, rtol=1e-6)


def test_moments_of_wide_mixtures_do_not_overflow():
    mean, std = moments(torch.tensor([300.0, 301.0]).double(), torch.tensor([0.01, 0.01]).double())
    assert bool(torch.isfinite(mean))
    assert bool(torch.isfinite(std))


def test_the_crps_is_the_integral_that_defines_it():
    means, spreads, y = np.array([[0.0, 1.0, -0.5]]), np.array([[0.3, 0.5, 1.0]]), np.array([1.7])

    def integrand(t: float) -> float:
        below = stats.norm.cdf((np.log(t) - means[0]) / spreads[0]).mean()
        return (below - (t >= y[0])) ** 2

    expected = sum(integrate.quad(integrand, *ends, limit=200)[0] for ends in ((1e-12, y[0]), (y[0], 20), (20, 500)))
    assert crps_of_lognormals(y, means, spreads)[0] == pytest.approx(expected, rel=1e-5)


def test_scores_are_in_the_users_units(both):
    positive, logarithms, y = both
    found = bnnp.evaluation.score(positive, torch.from_numpy(y))
    assert found["mae"] == pytest.approx(np.abs(positive.mean - y).mean())
    means, spreads = (part.reshape(40, -1).T for part in positive.standard_components())
    assert found["crps"] == pytest.approx(crps_of_lognormals(y[:, 0], means, spreads).mean())
    low, high = logarithms.interval(0.5)
    assert found["coverage_50"] == ((low < np.log(y)) & (np.log(y) < high)).mean()


def test_a_table_of_positive_outputs_is_learned_by_its_logarithms(table, tmp_path):
    tasks = bnnp.tasks.from_table(table, task="subject", x="time", y="conc", positive=True)
    model = bnnp.BNNP(1, 1, hidden=(4,), last_layer="likelihood", dtype=torch.float64, seed=0)
    bnnp.start_prior(model, tasks, "spread")
    assert float(model.columns.y_shift) == pytest.approx(np.log(table["conc"]).mean())
    assert float(model.columns.y_scale) == pytest.approx(np.log(table["conc"]).std())
    standard = tasks.standardised()
    assert float(torch.cat([task.y for task in standard.tasks]).mean()) == pytest.approx(0.0, abs=1e-9)
    again = bnnp.load(model.save(tmp_path / "model.bnnp"))
    assert again.columns.positive
    low = again.condition([[0.0]], [[2.0]], num_samples=5).predict([[3.0]]).quantile(1e-6)
    assert low.item() > 0
    assert "of the logarithm" in str(again)


def test_the_evidence_has_the_jacobian():
    x, y = [[0.0], [1.0]], np.array([[1.0], [2.0]])
    values = []
    for flag, outputs in ((True, y), (False, np.log(y))):
        model = model_with(flag)
        target = Target.of(model.prior, model.network, [(x, outputs)], model.likelihood)
        values.append(by_importance(target, model.condition(x, outputs, num_samples=20, seed=0)).value)
    assert values[0] == pytest.approx(values[1] - np.log(y).sum(), rel=1e-9)


def test_outputs_that_are_not_positive_are_refused_by_row(table):
    wrong = table.copy()
    wrong.loc[3, "conc"] = 0.0
    with pytest.raises(ValueError, match=r"column 'conc': got 0.0 at row 5 .*expected positive numbers"):
        bnnp.tasks.from_table(wrong, task="subject", x="time", y="conc", positive=True)
    model = model_with(True)
    with pytest.raises(ValueError, match="y: got -1 at row 1, column 'y0', expected positive numbers"):
        model.condition([[0.0], [1.0]], [[1.0], [-1.0]])
    with pytest.raises(ValueError, match="y: got 0 at row 0"):
        model.condition([[0.0]], [[1.0]], num_samples=2).predict([[0.0]]).log_prob([[0.0]])
    with pytest.raises(ValueError, match="y: got 0 at row 0"):
        bnnp.infer(model, [[0.0]], [[0.0]], method="ensemble", num_samples=2, steps=2)


def test_the_exported_page_refuses_a_model_of_positive_outputs():
    with pytest.raises(ValueError, match="on a log scale"):
        packed("own", model_with(True))
