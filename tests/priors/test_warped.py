"""Functions that a hidden unit warps: fits of warps, what outputs say before a warp, and the start made of them."""

import math

import numpy as np
import pytest
import torch
from scipy import integrate

import bnnp
from bnnp.priors.starts.warps import Warp, fit_warp


def normal(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_two_levels_are_found():
    g = normal(600)
    warp = fit_warp(torch.sign(g) + 0.02 * normal(600, 1), torch.tanh)
    assert warp.slope > 10
    assert abs(warp.height) == pytest.approx(1, abs=0.05)
    assert warp.noise == pytest.approx(0.02, rel=0.5)
    assert warp.gain > 1


def test_a_floor_is_found():
    g = normal(600)
    y = torch.relu(g - 0.3)
    warp = fit_warp((y - y.mean()) / y.std(), torch.tanh)
    draws = warp.height * torch.tanh(warp.slope * normal(5000, 2) + warp.place) + warp.level
    floor = float(-y.mean() / y.std())
    assert warp.gain > 0.3
    assert float((draws < floor + 0.1).double().mean()) > 0.4  # 0.62 of the values lie at the floor
    assert float((draws < floor - 0.2).double().mean()) < 0.01


def test_gaussian_values_gain_nothing():
    assert fit_warp(normal(600), torch.tanh).gain < 0.05


@pytest.mark.parametrize("y", [-0.9, 0.2, 1.4])
def test_sites_have_the_moments_of_an_integral(y: float):
    warp = Warp(torch.tanh, 1.2, 0.1, 0.3, 1.5, 0.4, 0.0)
    mean, variance = 0.4, 0.7

    def density(g: float) -> float:
        fitted = 1.2 * math.tanh(1.5 * g + 0.3) + 0.1
        return math.exp(-0.5 * ((y - fitted) / 0.4) ** 2 - 0.5 * (g - mean) ** 2 / variance)

    total, first, second = (
        integrate.quad(lambda g, power=power: g**power * density(g), -8, 8, limit=200)[0] for power in range(3)
    )
    wanted = first / total, second / total - (first / total) ** 2
    value, noise = warp.sites(*(torch.tensor([number], dtype=torch.float64) for number in (y, mean, variance)))
    precision = 1 / variance + 1 / float(noise) ** 2
    found = (mean / variance + float(value) / float(noise) ** 2) / precision, 1 / precision
    np.testing.assert_allclose(found, wanted, rtol=2e-3)


def started(source: bnnp.tasks.TaskSource, out_size: int = 1, hidden: tuple[int, ...] = (24, 24)) -> bnnp.BNNP:
    model = bnnp.BNNP(1, out_size, hidden, "tanh", last_layer="likelihood", dtype=torch.float64, seed=0)
    bnnp.start_prior(model, source, bnnp.starts.Warped(), seed=0)
    return model


@pytest.fixture
def few_choices(monkeypatch: pytest.MonkeyPatch):
    """Let the start try few shapes of features."""
    monkeypatch.setattr("bnnp.priors.starts.search.SLOPES", (2.0, 4.0, 8.0))
    monkeypatch.setattr("bnnp.priors.starts.search.DENSITIES", (0.0,))


@pytest.mark.usefixtures("few_choices")
def test_draws_have_the_levels_of_the_process():
    model, x = started(bnnp.tasks.heaviside(points=(30, 40))), np.linspace(-5, 5, 300)[:, None]
    draws = np.stack([np.asarray(f(x))[:, 0] for f in model.prior.functions(200, seed=0)])
    assert (np.abs(np.abs(draws) - 1) < 0.1).mean() > 0.8


def test_the_prior_stays_as_it_is_for_gaussian_outputs_and_small_networks():
    assert started(bnnp.tasks.gp(low=-2, high=2, points=(20, 20))).prior.is_standard()
    assert started(bnnp.tasks.heaviside(points=(20, 20)), hidden=(16,)).prior.is_standard()


@pytest.mark.usefixtures("few_choices")
def test_each_output_has_a_unit_of_its_own():
    generator = np.random.default_rng(0)
    tasks = []
    for _ in range(20):
        x = generator.uniform(-2, 2, (15, 1))
        smooth = np.sin(2 * x + generator.uniform(0, 6))
        tasks.append((x, np.concatenate([50 + 10 * np.sign(smooth), smooth + generator.normal(0, 0.1, x.shape)], 1)))
    model = started(bnnp.tasks.from_arrays(tasks), out_size=2, hidden=(16, 16))
    draws = np.stack([np.asarray(f(np.linspace(-2, 2, 50)[:, None])) for f in model.prior.functions(100, seed=0)])
    assert (np.abs(np.abs(draws[..., 0] - 50) - 10) < 1.5).mean() > 0.7
    assert 0.3 < draws[..., 1].std() < 1.5
