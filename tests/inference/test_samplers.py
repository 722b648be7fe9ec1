"""Markov chains on targets with known moments, against Pyro on a network, and the diagnostics of how they mix."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

import bnnp
from bnnp.inference import HMC, NUTS, InferenceWarning
from bnnp.inference.gradient import by_autograd
from bnnp.inference.mcmc import nuts as nuts_module
from bnnp.inference.mcmc.chains import mixing
from support.inference import FLOAT64, data, deep, positions, target

SAMPLERS = {"hmc": (HMC(0.1, 15), 100, 1), "nuts": (NUTS(0.2, 5), 40, 1), "lmc": (HMC(0.1, 1), 600, 60)}
"""The method, its warm-up and its steps per draw."""


@dataclass(frozen=True)
class Correlated:
    """A Gaussian with correlations of 0.9, unequal scales and a mean that is not 0, for two "data sets"."""

    mean = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, 1.0]], dtype=FLOAT64)

    @property
    def covariance(self) -> torch.Tensor:
        scales = torch.tensor([1.0, 0.5, 1.5], dtype=FLOAT64)
        correlation = torch.full((3, 3), 0.9, dtype=FLOAT64).fill_diagonal_(1.0)
        return scales[:, None] * correlation * scales

    def value_and_gradient(self, position):
        off = position - self.mean[:, None]
        pulled = off @ torch.linalg.inv(self.covariance)
        return -0.5 * (off * pulled).sum(-1), -pulled


class Skewed:
    """Independent Gumbel variables: mean 0.5772, variance pi^2/6, skewness 1.14."""

    def value_and_gradient(self, position):
        return by_autograd(lambda p: (-p - (-p).exp()).sum(-1), position)


def draws(method, density, warmup: int = 20, thin: int = 1) -> torch.Tensor:
    begin = torch.randn(2, 100, 3, generator=torch.Generator().manual_seed(0), dtype=FLOAT64)
    return positions(method, density, begin, warmup=warmup, draws=20, thin=thin)[0].flatten(1, 2)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_correlated_target(name):
    method, warmup, thin = SAMPLERS[name]
    found = draws(method, Correlated(), warmup, thin)
    scales = Correlated().covariance.diagonal().sqrt()
    for i in range(2):  # at least 300 effective draws: the slowest is LMC
        assert bool(((found[i].mean(0) - Correlated.mean[i]) / scales).abs().max() < 5 / math.sqrt(300))
        covariance = torch.cov(found[i].mT) / (scales[:, None] * scales)
        expected = Correlated().covariance / (scales[:, None] * scales)
        assert bool((covariance - expected).abs().max() < 5 * math.sqrt(2 / 300))


def skewed_moments(found: torch.Tensor) -> tuple[float, float, float]:
    centred = found - found.mean()
    return float(found.mean()), float(found.var()), float(centred.pow(3).mean() / found.std() ** 3)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_skewed_target(name):
    method, warmup, thin = SAMPLERS[name]
    mean, variance, skewness = skewed_moments(draws(method, Skewed(), warmup, thin))
    assert mean == pytest.approx(0.5772, abs=0.07)
    assert variance == pytest.approx(math.pi**2 / 6, abs=0.25)
    assert skewness == pytest.approx(1.14, abs=0.35)


def test_a_path_whose_draws_ignore_the_density_is_caught(monkeypatch):
    """Large steps along which the energy changes: all leaves of a path equally likely would be wrong."""
    right = skewed_moments(draws(NUTS(0.9, 5, adapts=False), Skewed()))
    assert right[1] == pytest.approx(math.pi**2 / 6, abs=0.25)
    monkeypatch.setattr(nuts_module, "_energy", lambda chain: torch.zeros_like(chain.value))
    wrong = skewed_moments(draws(NUTS(0.9, 5, adapts=False), Skewed()))
    assert abs(wrong[0] - 0.5772) > 0.2 or abs(wrong[1] - math.pi**2 / 6) > 0.4


def test_a_test_with_another_momentum_than_was_drawn_is_caught():
    class Redrawn(HMC):
        """Compares with the energy of a momentum that did not make the proposal."""

        def move(self, density, chain, generator):
            from bnnp.inference.mcmc.steps import chosen, leapfrog

            momentum = torch.randn(chain.position.shape, generator=generator, dtype=FLOAT64)
            other = torch.randn(chain.position.shape, generator=generator, dtype=FLOAT64)
            proposal = leapfrog(density, replace(chain, momentum=momentum), self.leapfrog_steps)
            gain = proposal.value - chain.value - 0.5 * (proposal.momentum.square() - other.square()).sum(-1)
            uniform = torch.rand(gain.shape, generator=generator, dtype=FLOAT64)
            return replace(chosen(uniform.log() < gain, proposal, chain), accepted=gain.clamp(max=0).exp())

    right = skewed_moments(draws(HMC(0.2, 8, adapts=False), Skewed()))
    wrong = skewed_moments(draws(Redrawn(0.2, 8, adapts=False), Skewed()))
    assert right[1] == pytest.approx(math.pi**2 / 6, abs=0.25)
    assert abs(wrong[1] - math.pi**2 / 6) > 0.3


def test_the_length_of_paths_follows_the_target():
    """A no-U-turn path in a standard normal is about half a turn long: pi/step leapfrog steps, up to a doubling."""
    density = target(deep(), (np.zeros((0, 3)), np.zeros((0, 2))))
    counted = []

    class Counting:
        def value_and_gradient(self, position):
            counted.append(1)
            return density.value_and_gradient(position)

    begin = density.draw_prior(1, torch.Generator().manual_seed(0))
    for step in (0.4, 0.1):
        method = NUTS(step, 9, adapts=False)
        chain = method.begin(Counting(), begin)
        counted.clear()
        generator = torch.Generator().manual_seed(1)
        for _ in range(20):
            chain = method.move(Counting(), chain, generator)
        assert math.pi / step / 2.5 < len(counted) / 20 < 2.5 * math.pi / step


@pytest.mark.slow
def test_the_posterior_of_a_network_is_the_one_that_pyro_finds():
    """Means and standard deviations of the function at three inputs, within five standard errors of both.

    Pyro's sampler is an independent piece of software; it gets the log-density from the definition of the model.
    """
    from pyro import infer as pyro_infer

    model = bnnp.BNNP(1, 1, (3,), "tanh", likelihood=bnnp.Gaussian(0.3), dtype=FLOAT64)
    x = np.array([[-1.0], [-0.3], [0.4], [1.2]])
    y = np.array([[0.9], [0.2], [-0.3], [0.5]])
    at = torch.tensor([[-1.5], [0.0], [1.0]], dtype=FLOAT64)

    def outputs(v, inputs):  # the standard prior: variance 1/(inputs + 1), biases included
        first, second = v[..., :6].unflatten(-1, (3, 2)) / math.sqrt(2), v[..., 6:].unflatten(-1, (1, 4)) / 2
        h = torch.tanh(inputs * first[..., :, 0] + first[..., :, 1])
        return h @ second[..., 0, :3] + second[..., 0, 3]

    def potential(values):
        v = values["v"]
        off = (torch.from_numpy(y)[:, 0] - outputs(v, torch.from_numpy(x))) / 0.3
        return 0.5 * v.square().sum() + 0.5 * off.square().sum()

    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    chain = pyro_infer.MCMC(
        pyro_infer.NUTS(potential_fn=potential, adapt_mass_matrix=False),
        num_samples=120,
        warmup_steps=40,
        initial_params={"v": torch.zeros(10, dtype=FLOAT64)},
        disable_progbar=True,
    )
    chain.run()
    torch.random.set_rng_state(state)
    theirs = torch.stack([outputs(v, at) for v in chain.get_samples()["v"]]).numpy()
    post = bnnp.infer(
        model.prior,
        model.network,
        x,
        y,
        method="nuts",
        likelihood=model.likelihood,
        num_samples=600,
        chains=20,
        warmup=60,
    )
    assert post.diagnostics.warnings == ()
    ours = post.predict(at).samples[:, :, 0]
    effective = 50  # of Pyro's 120 draws; ours are many more
    scale = ours.std(0)
    assert (np.abs(theirs.mean(0) - ours.mean(0)) / scale).max() < 5 / math.sqrt(effective)
    assert np.abs(theirs.std(0) / scale - 1).max() < 5 / math.sqrt(2 * effective)


def test_mixing_tells_chains_that_agree_from_those_that_do_not():
    noise = torch.randn(4, 250, 3, generator=torch.Generator().manual_seed(0))
    rhat, ess = mixing(noise)
    assert rhat is not None
    assert ess is not None
    assert rhat < 1.02
    assert 600 < ess < 1500
    apart = noise + torch.arange(4)[:, None, None]
    rhat, ess = mixing(apart)
    assert rhat is not None
    assert ess is not None
    assert rhat > 1.3
    assert ess < 20
    walk = noise.cumsum(1)
    assert mixing(walk)[0] > 1.2  # pyright: ignore
    assert mixing(torch.zeros(4, 250, 3)) == (math.inf, 1.0)
    assert mixing(noise[:, :3]) == (None, None)
    assert mixing(noise[:1])[0] < 1.05  # pyright: ignore
    assert mixing(walk[:1])[0] > 1.2  # pyright: ignore


def test_chains_that_have_not_mixed_or_reject_everything_are_warned_of():
    model, (x, y) = deep(), data()

    def infer(method, **effort):
        return bnnp.infer(
            model.prior, model.network, x, y, method=method, likelihood=model.likelihood, num_samples=80, **effort
        )

    with pytest.warns(InferenceWarning, match="chains have not mixed: R-hat"):
        post = infer(HMC(1e-4, 1, adapts=False), warmup=0)
    assert post.diagnostics.rhat is not None
    assert post.diagnostics.rhat > 1.5
    with pytest.warns(InferenceWarning, match=r"accepts 0\.0. of its proposals"):
        infer(HMC(5.0, 10, adapts=False), warmup=0)
    with pytest.warns(InferenceWarning, match="independent ones, expected at least 100"):
        infer(HMC(1e-2, 1, adapts=False), warmup=20)


def test_chains_may_begin_near_a_mode():
    model, (x, y) = deep(), data()
    of = target(model, (x, y))
    method = HMC(1e-6, 1, adapts=False)
    values = []
    for climb in (0, 200):
        effort = bnnp.inference.Effort(climb=climb, warmup=0)
        state = method.init(of, effort, 4, torch.Generator().manual_seed(0))
        values.append(float(state.chain.value.mean()))
    assert values[1] > values[0] + 5
