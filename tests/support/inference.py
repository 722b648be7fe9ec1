"""Shared by tests: helpers of test_inference."""

import math
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
import torch

import bnnp
from bnnp.inference import InferenceWarning
from bnnp.inference.mcmc.chains import Sampler
from bnnp.inference.target import Density, Target
from support import reference
from support.models import with_random_prior

FLOAT64 = torch.float64
NOISE = (0.4, 0.7)


def data(points: int = 9, seed: int = 0, out: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(points, 3)), rng.normal(size=(points, out))


def linear(prior: str = "unitwise") -> bnnp.BNNP:
    """A network of one layer, whose posterior is known."""
    return with_random_prior(
        bnnp.BNNP(3, 2, (), prior=prior, likelihood=bnnp.Gaussian(NOISE), last_layer="likelihood", dtype=FLOAT64)
    )


def deep(prior: str = "unitwise") -> bnnp.BNNP:
    return with_random_prior(bnnp.BNNP(3, 2, (4,), "tanh", prior=prior, likelihood=bnnp.Gaussian(NOISE), dtype=FLOAT64))


def warns_of_short_chains(samples: bool) -> AbstractContextManager:
    """For a few draws, of which a method that runs Markov chains must say that they are too few."""
    return pytest.warns(InferenceWarning, match="too few to tell") if samples else nullcontext()


def target(model: bnnp.BNNP, *sets: tuple[np.ndarray, np.ndarray], whitened: bool = True) -> Target:
    return Target.of(model.prior, model.network, sets, model.likelihood, whitened)


def exact_moments(model: bnnp.BNNP, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Mean and covariance of all weights given the data, unit by unit, and the log evidence."""
    phi = np.hstack([x, np.ones((len(x), 1))])
    means, variances, total = [], [], 0.0
    prior = model.prior.layer(0, [])
    for unit in range(2):
        mean, factor = prior.mean[0, 0, unit].detach().numpy(), prior.factor[unit].detach().numpy()
        noise = np.full(len(x), NOISE[unit])
        covariance = factor @ factor.T
        posterior = np.linalg.inv(np.linalg.inv(covariance) + phi.T @ phi / NOISE[unit] ** 2)
        means.append(mean + posterior @ phi.T @ (y[:, unit] - phi @ mean) / NOISE[unit] ** 2)
        variances.append(posterior)
        total += reference.log_evidence(mean, covariance, phi, y[:, unit], noise)
    return np.stack(means), np.stack(variances), total


def units_of(post: bnnp.inference.InferredPosterior) -> np.ndarray:
    """Samples of the only layer's weights (samples, units, d)."""
    return post.weights[0].mT.numpy()


def positions(
    method: Sampler, density: Density, begin: torch.Tensor, warmup: int, draws: int, thin: int, seed: int = 1
):
    """Positions (sets, chains, draws, size) from given ones, and the mean acceptance."""
    generator = torch.Generator().manual_seed(seed)
    state = method.sampling(density, begin, warmup, thin)
    for _ in range(warmup + draws * thin):
        state = method.step(density, state, generator)
    return torch.stack(state.kept, dim=2), float(state.accepted.mean()) / (draws * thin)


def assert_moments(post, model, x, y, effective: float):
    """Mean and variances within 5 standard errors for so many independent draws."""
    mean, covariance, _ = exact_moments(model, x, y)
    found = units_of(post)
    scale = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    assert np.abs((found.mean(0) - mean) / scale).max() < 5 / math.sqrt(effective)
    assert np.abs(found.var(0) / scale**2 - 1).max() < 5 * math.sqrt(2 / effective)
