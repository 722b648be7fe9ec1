"""Other ways to infer weights, against the exact posterior of a linear model; wrong variants must be caught."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import bnnp
from bnnp.evaluation import evidence, tempering
from bnnp.inference import GIVI, HMC, NUTS, SGHMC, SGLD, SWAG, Effort, GaussianVI, SingleTaskBNNP, infer_many
from bnnp.inference.infer import METHODS
from bnnp.inference.mcmc.chains import Chain, Sampler
from bnnp.inference.mcmc.steps import leapfrog
from bnnp.inference.target import Target
from support.inference import (
    FLOAT64,
    NOISE,
    assert_moments,
    data,
    deep,
    exact_moments,
    linear,
    positions,
    target,
    units_of,
    warns_of_short_chains,
)

every_prior = pytest.mark.parametrize("prior", list(bnnp.priors.PRIORS))


# --- the target ------------------------------------------------------------------------------------------------------


@every_prior
@pytest.mark.parametrize("whitened", [True, False])
def test_positions_and_weights_go_both_ways(prior, whitened):
    of = target(deep(prior), data(), data(5, 1), whitened=whitened)
    position = of.draw_prior(3, torch.Generator().manual_seed(0))
    assert position.shape == (2, 3, of.size)
    torch.testing.assert_close(of.position_of(of.weights(position)), position)


@every_prior
def test_both_coordinates_have_the_same_density_but_for_a_constant(prior):
    model = deep(prior)
    raw = target(model, data(), data(5, 1), whitened=False)
    other = replace(raw, whitened=True)
    weights = raw.weights(raw.draw_prior(4, torch.Generator().manual_seed(0)))
    difference = raw.log_density(raw.position_of(weights)) - other.log_density(other.position_of(weights))
    torch.testing.assert_close(difference, difference[0, 0].expand(2, 4))


@every_prior
def test_log_density_is_that_of_prior_and_likelihood(prior):
    model, (x, y), (x2, y2) = deep(prior), data(), data(5, 1)
    of = target(model, (x, y), (x2, y2), whitened=False)
    position = of.draw_prior(4, torch.Generator().manual_seed(0))
    weights = of.weights(position)
    for i, (inputs, outputs) in enumerate(((x, y), (x2, y2))):
        own = [w[i] for w in weights]
        f = model.network(own, torch.from_numpy(inputs)).detach().numpy()
        scaled = (outputs - f) / np.array(NOISE)
        likelihood = (-0.5 * scaled**2 - np.log(NOISE) - 0.5 * math.log(2 * math.pi)).sum((1, 2))
        expected = model.prior.log_prob(own).detach().numpy() + likelihood
        np.testing.assert_allclose(of.log_density(position)[i].detach().numpy(), expected, rtol=1e-10)


def test_minibatches_estimate_the_log_density_without_bias():
    of = target(deep(), data(12), data(7, 1))
    position = of.draw_prior(1, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    value, gradient = of.value_and_gradient(position)
    torch.testing.assert_close(of.minibatch_value_and_gradient(position, 12, generator), (value, gradient))
    found = [of.minibatch_value_and_gradient(position, 4, generator) for _ in range(500)]
    for draws, expected in zip(map(torch.stack, zip(*found, strict=True)), (value, gradient), strict=True):
        error = (draws.mean(0) - expected) / (draws.std(0) / math.sqrt(500))
        assert bool((error.abs() < 5.5).all())  # false alarms: 60 quantities, 4e-8 each
    batch, share = of.minibatch(8, generator)
    assert share.tolist() == [12 / 8, 1.0]
    assert batch.mask.sum(1).tolist() == [8, 7]


# --- samplers --------------------------------------------------------------------------------------------------------


def start(of: Target, momentum_seed: int = 3, step: float = 0.05) -> Chain:
    chain = HMC(step).begin(of, of.draw_prior(2, torch.Generator().manual_seed(0)))
    noise = torch.randn(chain.position.shape, generator=torch.Generator().manual_seed(momentum_seed), dtype=FLOAT64)
    return replace(chain, momentum=noise)


def energy(chain: Chain) -> torch.Tensor:
    return chain.value - 0.5 * chain.momentum.square().sum(-1)


def test_leapfrog_steps_can_be_undone_and_keep_the_energy_to_second_order():
    of = target(deep(), data(), data(5, 1))
    first = start(of)
    there = leapfrog(of, first, 7)
    back = leapfrog(of, replace(there, momentum=-there.momentum), 7)
    torch.testing.assert_close(back.position, first.position)
    errors = [(energy(leapfrog(of, start(of, step=h), round(0.08 / h))) - energy(first)).abs() for h in (0.02, 0.01)]
    assert bool(((errors[0] / errors[1] - 4).abs() < 1).all())


SAMPLERS = {
    "hmc": (HMC(0.1, 8), 1),
    "hmc in the weights themselves": (HMC(0.1, 8), 1),
    "lmc": (HMC(0.3, 1), 10),
    "nuts": (NUTS(0.1, 6), 1),
    "sghmc": (SGHMC(0.05, 12, friction=0.3, batch_size=100), 1),
    "sgld": (SGLD(0.12, batch_size=100), 20),
}


@pytest.mark.filterwarnings("ignore::bnnp.inference.InferenceWarning")  # 20 draws per chain say little about mixing
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_draw_from_the_exact_posterior_of_a_linear_model(name):
    model, (x, y) = linear(), data()
    method, thin = SAMPLERS[name]
    post = bnnp.infer(
        model.prior,
        model.network,
        x,
        y,
        method=method,
        likelihood=model.likelihood,
        num_samples=800,
        chains=40,
        warmup=100,
        thin=thin,
        whitened=name != "hmc in the weights themselves",
    )
    assert post.num_samples == 800
    assert post.chains == 40
    assert_moments(post, model, x, y, effective=400)
    assert post.diagnostics.acceptance is not None
    if method.adapts:
        assert bool(((post.diagnostics.acceptance - 0.8).abs() < 0.19).all())


def test_steps_that_are_too_large_are_refused_and_without_the_test_the_answer_is_wrong():
    model, (x, y) = linear(), data()
    of = target(model, (x, y))
    begin = of.draw_prior(40, torch.Generator().manual_seed(0))

    def draws(method):
        return positions(method, of, begin, warmup=30, draws=20, thin=3)

    assert draws(HMC(2.0, 8, adapts=False))[1] < 0.05
    scale = np.sqrt(np.diagonal(exact_moments(model, x, y)[1], axis1=1, axis2=2))

    def spread(found) -> np.ndarray:
        weights = of.weights(found[0].flatten(1, 2))[0][0].mT.detach().numpy()
        return weights.std(0) / scale

    class NoTest(HMC):
        """Accepts everything."""

        def move(self, density, chain, generator):
            momentum = torch.randn(chain.position.shape, generator=generator, dtype=FLOAT64)
            return leapfrog(density, replace(chain, momentum=momentum), self.leapfrog_steps)

    assert np.abs(spread(draws(HMC(0.25, 4, adapts=False))) - 1).max() < 0.25
    assert not np.abs(spread(draws(NoTest(0.45, 4, adapts=False))) - 1).max() < 0.25  # or not a number


def test_the_bias_of_langevin_steps_without_a_test_shrinks_with_their_size():
    """For a standard normal target the variance is 1/(1 - eps^2/4)."""
    of = target(linear(), (np.zeros((0, 3)), np.zeros((0, 2))))
    begin = of.draw_prior(500, torch.Generator().manual_seed(0))
    for step in (1.2, 0.6):
        found, _ = positions(SGLD(step), of, begin, warmup=30, draws=20, thin=4)
        expected = 1 / (1 - step**2 / 4)
        assert float(found.var()) == pytest.approx(expected, rel=0.04)  # standard error below 1 %


def test_likelihoods_of_minibatches_must_be_scaled_up():
    """Without the factor n/b the posterior is too wide, which the moments show."""
    model, (x, y) = linear(), data(40)
    of = target(model, (x, y))

    class Unscaled(Target):
        def minibatch(self, size, generator):
            batch, share = super().minibatch(size, generator)
            return batch, torch.ones_like(share)

    scale = np.sqrt(np.diagonal(exact_moments(model, x, y)[1], axis1=1, axis2=2))
    spreads = []
    for kind in (Target, Unscaled):
        these = kind(of.prior, of.network, of.likelihood, of.data)
        begin = these.draw_prior(40, torch.Generator().manual_seed(0))
        found, _ = positions(SGLD(0.03, batch_size=20), these, begin, warmup=300, draws=20, thin=10)
        spreads.append(of.weights(found.flatten(1, 2))[0][0].mT.detach().numpy().std(0) / scale)
    assert np.abs(spreads[0] - 1).max() < 0.25
    assert spreads[1].mean() > 1.25


# --- approximations --------------------------------------------------------------------------------------------------

BOUNDS = {"mfvi": None, "ucvi": 0.02, "lcvi": 0.02, "fcvi": 0.02, "givi": 0.3, "bnnp": 0.3}
"""How far below the log evidence each may end; independent weights cannot reach it."""


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_lie_below_the_evidence_of_a_linear_model_and_reach_it_where_they_can(name):
    model, (x, y) = linear(), data()
    _, _, evidence_ = exact_moments(model, x, y)
    method = GIVI(9) if name == "givi" else name
    post = bnnp.infer(
        model.prior,
        model.network,
        x,
        y,
        method=method,
        likelihood=model.likelihood,
        num_samples=1500,
        steps=700,
        learning_rate=(3e-2, 1e-3),
    )
    found = post.diagnostics
    assert found.bound is not None
    assert found.bound_error is not None
    assert found.elbo is not None
    gap = evidence_ - found.bound
    assert gap > -4 * found.bound_error - 1e-9
    tolerance = BOUNDS[name]
    if tolerance is None:
        assert gap > 0.1
        assert_means_only(post, model, x, y)
    else:
        assert gap < tolerance + 4 * found.bound_error
    if name in ("ucvi", "lcvi", "fcvi"):
        assert_moments(post, model, x, y, effective=400)


@pytest.mark.parametrize("method", ["givi", "bnnp", "ucvi"])
def test_bounds_of_a_deep_network_rise(method):
    model, (x, y) = deep(), data(12)
    post = bnnp.infer(
        model.prior,
        model.network,
        x,
        y,
        method=GIVI(6) if method == "givi" else method,
        likelihood=model.likelihood,
        num_samples=1,
        steps=300,
        learning_rate=(2e-2, 1e-3),
    )
    trace = post.diagnostics.elbo
    assert trace is not None
    assert post.diagnostics.bound is not None
    assert float(trace[-50:].mean()) > float(trace[:20].mean()) + 3
    of = target(model, (x, y))
    assert post.diagnostics.bound < tempering.by_tempering(of, 100, moves=2, leapfrog_steps=5).value + 0.3


def assert_means_only(post, model, x, y):
    mean, covariance, _ = exact_moments(model, x, y)
    scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    assert np.abs((units_of(post).mean(0) - mean) / scale).max() < 0.25
    assert (units_of(post).std(0) < 1.05 * scale).all()


# --- evidence --------------------------------------------------------------------------------------------------------


def test_three_estimates_of_the_evidence_agree_with_the_exact_one():
    model, (x, y) = linear(), data()
    _, _, expected = exact_moments(model, x, y)
    of = target(model, (x, y))
    exact = evidence.by_importance(of, model.condition(x, y, num_samples=200))
    assert exact.value == pytest.approx(expected, abs=1e-8)
    assert exact.standard_error < 1e-6
    plain = evidence.by_monte_carlo(of, 200_000, seed=1)
    assert plain.trustworthy
    assert abs(plain.value - expected) < 4 * plain.standard_error
    tempered = tempering.by_tempering(of, 200, moves=3, leapfrog_steps=5, repeats=4)
    assert abs(tempered.value - expected) < 5 * tempered.standard_error + 0.05


def test_an_estimate_from_few_draws_says_that_it_is_not_to_be_trusted():
    model, (x, y) = linear(), data(60)
    found = evidence.by_monte_carlo(target(model, (x, 5 + y)), 2000)
    assert not found.trustworthy
    assert "NOT to be trusted" in str(found)


def test_evidence_is_in_the_units_of_the_data():
    model, (x, y) = linear(), data()
    before = evidence.by_importance(target(model, (x, y)), model.condition(x, y, num_samples=10)).value
    model.columns.y_scale.fill_(2.0)
    after = evidence.by_importance(target(model, (x, 2 * y)), model.condition(x, 2 * y, num_samples=10)).value
    assert after == pytest.approx(before - y.size * math.log(2), abs=1e-8)


# --- the door --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_a_posterior_for_every_data_set(method):
    model = deep()
    sets = [data(4), data(7, 1)]
    effort = Effort(steps=3, chains=2, warmup=2)
    choice = SWAG(updates=3, every=2) if method == "swag" else method

    def posteriors() -> list[bnnp.inference.InferredPosterior]:
        with warns_of_short_chains(isinstance(METHODS[method], Sampler)):
            return infer_many(
                model.prior,
                model.network,
                sets,
                method=choice,
                likelihood=model.likelihood,
                num_samples=5,
                effort=effort,
            )

    posts, again = posteriors(), posteriors()
    for post, (x, _) in zip(posts, sets, strict=True):
        assert [tuple(w.shape) for w in post.weights] == [(5, *shape) for shape in model.network.weight_shapes]
        assert np.isfinite(post.predict(x).mean).all()
        assert len(post.functions()) == 5
    assert all(torch.equal(a, b) for a, b in zip(posts[0].weights, again[0].weights, strict=True))
    assert not torch.equal(posts[0].weights[0], posts[1].weights[0])


def test_inference_changes_neither_the_prior_nor_the_likelihood():
    model, (x, y) = deep(), data()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for method, record in METHODS.items():
        with warns_of_short_chains(isinstance(record, Sampler)):
            bnnp.infer(
                model.prior,
                model.network,
                x,
                y,
                method=SWAG(updates=3, every=2) if method == "swag" else method,
                likelihood=model.likelihood,
                num_samples=3,
                steps=2,
                warmup=2,
            )
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())


def test_bad_input_to_infer_is_refused():
    model, (x, y) = deep(), data()
    with pytest.raises(ValueError, match="method: got 'gibbs', expected one of mfvi"):
        bnnp.infer(model, x, y, method="gibbs")
    with pytest.raises(ValueError, match="num_samples: got 0"):
        bnnp.infer(model, x, y, num_samples=0)
    with pytest.raises(ValueError, match="got 9 and 8 points"):
        bnnp.infer(model, x, y[:8])
    with pytest.raises(ValueError, match="x: got nan"):
        bnnp.infer(model, x * math.nan, y)
    with pytest.raises(ValueError, match="data_sets: got no data sets"):
        infer_many(model, [])
    layerwise = deep("layerwise")
    with pytest.raises(ValueError, match="correlations: got 'full', expected one of mfvi, ucvi, lcvi, fcvi"):
        bnnp.inference.GaussianVI("full")
    with pytest.raises(ValueError, match="givi needs a prior that keeps the units"):
        bnnp.infer(layerwise, x, y, method=GIVI(3))
    assert isinstance(METHODS["mfvi"], GaussianVI)


def infer_both(subject: Any, *data: Any, **options: Any) -> list:
    """By both doors: one data set, and many at once."""
    *network, x, y = data
    options = {"method": "mfvi", "num_samples": 4, **options}
    one: Any = bnnp.infer
    many: Any = infer_many
    post = one(subject, *network, x, y, steps=3, **options)
    return [post, *many(subject, *network, [(x, y)], effort=Effort(steps=3), **options)]


def test_a_model_brings_its_prior_its_network_and_the_noise_it_has_learned():
    model, (x, y) = deep(), data()
    assert isinstance(model.likelihood, bnnp.Gaussian)
    with torch.no_grad():
        model.likelihood.raw.add_(0.5)
    model.columns.y_scale.fill_(2.0)
    found = infer_both(model, x, y)
    expected = infer_both(model.prior, model.network, x, y, likelihood=model.likelihood)
    other = infer_both(model.prior, model.network, x, y, likelihood=bnnp.Gaussian(NOISE))
    for one, same, different in zip(found, expected, other, strict=True):
        assert one.likelihood.noise.tolist() == model.likelihood.noise.tolist()
        assert one.columns is model.columns
        assert all(torch.equal(a, b) for a, b in zip(one.weights, same.weights, strict=True))
        assert not torch.equal(one.weights[0], different.weights[0])


def test_a_prior_without_a_likelihood_is_refused():
    model, (x, y) = deep(), data()
    cure = r"likelihood: got nothing beside a prior, expected .*bnnp.Gaussian\(0.1\); .* bnnp.infer\(model, x, y\)"
    with pytest.raises(ValueError, match=cure):
        bnnp.infer(model.prior, model.network, x, y)  # pyright: ignore
    with pytest.raises(ValueError, match=cure):
        infer_many(model.prior, model.network, [(x, y)])  # pyright: ignore
    with pytest.raises(ValueError, match="likelihood: got Gaussian beside a model, which has its own; leave it out"):
        bnnp.infer(model, x, y, likelihood=bnnp.Gaussian(0.1))  # pyright: ignore


def test_a_network_that_does_not_match_the_prior_is_refused():
    model, (x, y) = deep(), data()
    other = bnnp.Network((3, 5, 2), "tanh")
    with pytest.raises(ValueError, match=r"prior: got one over weights of shapes .*\(4, 4\).* network with .*\(4, 5\)"):
        infer_both(model.prior, other, x, y, likelihood=model.likelihood)
    same_shapes = bnnp.Network((3, 4, 2), "relu")
    for method in ("mfvi", "bnnp"):
        infer_both(model.prior, same_shapes, x, y, likelihood=model.likelihood, method=method)


def test_a_model_without_a_prior_over_weights_is_refused():
    x, y = data()
    with pytest.raises(ValueError, match=r"model: got a CNP, which has no prior .*; predict with its own `condition"):
        bnnp.infer(bnnp.neural_processes.CNP(3, 2), x, y)  # pyright: ignore
    with pytest.raises(ValueError, match="model: got int, expected a model such as"):
        infer_many(3, [(x, y)])  # pyright: ignore


def test_a_wrong_number_of_arguments_is_refused():
    model, (x, y) = deep(), data()
    with pytest.raises(ValueError, match=r"got 4 positional arguments, expected 3: \(model, x, y\)"):
        bnnp.infer(model, model.network, x, y)  # pyright: ignore
    with pytest.raises(ValueError, match=r"got 3 .*, expected 4: \(prior, network, x, y, likelihood=...\)"):
        bnnp.infer(model.prior, x, y, likelihood=model.likelihood)  # pyright: ignore
    with pytest.raises(ValueError, match=r"got 2 .*, expected 3: \(prior, network, data_sets, likelihood=...\)"):
        infer_many(model.prior, [(x, y)], likelihood=model.likelihood)  # pyright: ignore


@pytest.mark.parametrize("last_layer", ["predicted", "likelihood"])
def test_fine_tuning_starts_at_the_trained_model(last_layer):
    model = bnnp.BNNP(1, 1, (4,), likelihood=bnnp.Gaussian(0.2), last_layer=last_layer, seed=3)
    x = np.linspace(-1, 1, 6)[:, None]
    effort = Effort(steps=1, learning_rate=(1e-9, 1e-9))
    options = {"likelihood": model.likelihood, "num_samples": 2000, "effort": effort, "seed": 0}
    (tuned,) = infer_many(model.prior, model.network, [(x, x**2)], method=SingleTaskBNNP(start=model), **options)
    expected = model.condition(x, x**2, num_samples=2000, seed=1).predict(x)
    spread = expected.function_std / np.sqrt(2000)  # the means of 2000 draws differ by 1.4 of it on average
    assert np.abs((tuned.predict(x).mean - expected.mean) / spread).max() < 7


def test_the_progress_function_is_called_after_every_step_and_may_end_the_inference():
    model, told = bnnp.BNNP(1, 1, hidden=(4,)), []
    choices = {"method": "ensemble", "num_samples": 2, "steps": 5}
    bnnp.infer(model, [[0.0]], [[1.0]], progress=lambda done, steps: told.append((done, steps)), **choices)
    assert told == [(step, 5) for step in range(1, 6)]

    def stop(done: int, steps: int) -> None:
        if done == 3:
            raise KeyboardInterrupt
        told.append(done)

    told.clear()
    with pytest.raises(KeyboardInterrupt):
        bnnp.infer(model, [[0.0]], [[1.0]], progress=stop, **choices)
    assert told == [1, 2]
