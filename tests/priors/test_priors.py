import math

import numpy as np
import pytest
import torch
from torch import nn

from bnnp import Network
from bnnp.priors import PRIORS, Prior, by_name
from bnnp.priors.learnable import GaussianUnits
from support import reference

NETWORK = Network((2, 3, 2), "tanh")
every_prior = pytest.mark.parametrize("name", list(PRIORS))


def standard(name: str) -> Prior:
    return by_name(name, NETWORK).double()


def randomised(name: str, seed: int = 0) -> Prior:
    prior = standard(name)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in prior.parameters():
            parameter += 0.4 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return prior


def dense(prior: Prior):
    """Mean and factor of the covariance of all weights, exactly as the prior has them now."""
    return reference.prior_moments(prior)[0], reference.prior_factor(prior)


# --- densities and samples -------------------------------------------------------------------------------------------


@every_prior
def test_starts_with_mean_0_and_variance_1_over_fan_in_plus_1(name):
    mean, covariance = reference.prior_moments(standard(name))
    variances = np.concatenate([np.full(3 * 3, 1 / 3), np.full(4 * 2, 1 / 4)])
    np.testing.assert_array_equal(mean, 0)
    np.testing.assert_allclose(covariance, np.diag(variances), rtol=1e-6)


@every_prior
def test_log_prob_is_that_of_one_large_normal(name):
    prior = randomised(name)
    mean, covariance = reference.prior_moments(prior)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(2, 3, d, out, generator=generator, dtype=torch.float64) for d, out in NETWORK.weight_shapes]
    found = prior.log_prob(weights)
    for index in np.ndindex(2, 3):
        omega = reference.all_weights([reference.array(w[index]) for w in weights])
        np.testing.assert_allclose(found[index].item(), reference.log_density(omega, mean, covariance), rtol=1e-10)


@every_prior
def test_log_prob_refuses_weights_of_another_network(name):
    with pytest.raises(ValueError, match="weights"):
        standard(name).log_prob([torch.zeros(3, 3), torch.zeros(3, 2)])


@every_prior
def test_layers_are_the_papers_conditionals(name):
    prior = randomised(name)
    mean, covariance = reference.prior_moments(prior)
    weights = prior.sample(4, seed=0)
    whitened, start = [], 0
    for layer, w in enumerate(weights):
        given = prior.layer(layer, whitened)
        whitened.append(given.whiten(prior.to_units(w.unsqueeze(0))))
        factor = torch.diag_embed(given.factor) if given.is_diagonal else given.factor
        found_covariance = reference.block_diagonal(list(reference.array(factor @ factor.mT)))
        current = np.arange(start, start + w[0].numel())
        for k in range(4):
            before = reference.all_weights([reference.array(v[k]) for v in weights])[:start]
            expected = reference.conditional(mean, covariance, current, np.arange(start), before)
            found_mean = reference.array(given.mean.expand(1, 4, -1, -1)[0, k]).ravel()
            np.testing.assert_allclose(found_mean, expected[0], rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(found_covariance, expected[1], rtol=1e-10, atol=1e-10)
        start += w[0].numel()


def worst_standard_error(samples, mean, covariance):
    """The largest deviation, in standard errors, of first and second moments of samples from those of a normal."""
    z = np.linalg.solve(np.linalg.cholesky(covariance), (samples - mean).T).T
    root = math.sqrt(len(z))
    first = np.abs(z.mean(0)) * root
    second = np.abs(z.T @ z / len(z) - np.eye(z.shape[1])) * root
    second[np.diag_indices_from(second)] /= math.sqrt(2)
    return max(first.max(), second.max())


# 17 means and 153 second moments: the largest of 170 standard normals exceeds 5 with probability 1e-4.
TOO_FAR = 5


@every_prior
def test_samples_have_the_priors_moments(name):
    prior = randomised(name)
    weights = prior.sample(4000, seed=0)
    samples = np.array([reference.all_weights([reference.array(w[k]) for w in weights]) for k in range(4000)])
    mean, covariance = reference.prior_moments(prior)
    factor = reference.prior_factor(prior)
    assert worst_standard_error(samples, mean, covariance) < TOO_FAR
    assert worst_standard_error(samples, 0.5 * mean, covariance) > TOO_FAR
    assert worst_standard_error(samples, mean, 1.3 * covariance) > TOO_FAR
    if name != "factorised":
        assert worst_standard_error(samples, mean, factor.T @ factor) > TOO_FAR
        assert worst_standard_error(samples, mean, np.diag(np.diag(covariance))) > TOO_FAR


@every_prior
def test_samples_follow_the_seed(name):
    prior = randomised(name)
    first, again, other = (prior.sample(2, seed=seed) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))
    assert [tuple(w.shape) for w in first] == [(2, 3, 3), (2, 4, 2)]


@every_prior
def test_number_of_samples_must_be_positive(name):
    with pytest.raises(ValueError, match="num_samples"):
        standard(name).sample(0)


# --- one family inside another ---------------------------------------------------------------------------------------


def with_parameters_of(name: str, source: Prior) -> Prior:
    """A richer prior, with zeros for the correlations that the source does not have."""
    prior = standard(name)
    mean, factor = dense(source)
    scale, start = np.diag(factor), 0
    lower = factor / scale[:, None] - np.eye(len(scale))
    for block in prior.gaussians:
        assert isinstance(block, GaussianUnits)
        assert block.lower is not None
        units, size = block.mean.value.shape
        for u in range(units):
            part = slice(start, start + size)
            with torch.no_grad():
                block.mean.value[u] = torch.from_numpy(mean[part])
                block.log_scale.value[u] = torch.from_numpy(np.log(scale[part]))
                block.lower.value[u] = torch.from_numpy(lower[part, part])
            start += size
    return prior


@pytest.mark.parametrize(
    ("poor", "rich"),
    [
        ("factorised", "unitwise"),
        ("unitwise", "layerwise"),
        ("unitwise", "networkwise"),
        ("layerwise", "networkwise"),
    ],
)
def test_richer_prior_with_block_diagonal_covariance_is_the_poorer_one(poor, rich):
    source = randomised(poor)
    prior = with_parameters_of(rich, source)
    ours, theirs = prior.sample(5, seed=3), source.sample(5, seed=3)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(prior.log_prob(ours), source.log_prob(theirs), rtol=1e-10, atol=1e-10)


# --- the learnable share ---------------------------------------------------------------------------------------------


def train(prior: Prior, optimiser: torch.optim.Optimizer, bystander: nn.Parameter, steps: int):
    """Pull all weights to 2, whatever may be trained."""
    target = [torch.full(shape, 2.0, dtype=torch.float64) for shape in NETWORK.weight_shapes]
    for _ in range(steps):
        optimiser.zero_grad()
        (bystander.square().sum() - prior.log_prob(target)).backward()
        optimiser.step()


@every_prior
@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.1, 2), (0.5, 8), (0.8, 14), (0.99, 17), (1.0, 17)])
def test_only_the_first_weights_learn(name, share, count):
    """round(share * 17) weights, after momentum for all of them, and under weight decay."""
    prior = randomised(name)
    bystander = nn.Parameter(torch.ones(1, dtype=torch.float64))
    optimiser = torch.optim.AdamW([*prior.parameters(), bystander], lr=0.05, weight_decay=0.5)
    train(prior, optimiser, bystander, 3)
    prior.set_learnability(share)
    mean, factor = dense(prior)
    train(prior, optimiser, bystander, 3)
    new_mean, new_factor = dense(prior)
    assert np.array_equal(new_mean[count:], mean[count:])
    assert np.array_equal(new_factor[count:], factor[count:])
    assert (new_mean[:count] != mean[:count]).all()
    assert (np.diag(new_factor)[:count] != np.diag(factor)[:count]).all()
    assert prior.learnability == share


@every_prior
def test_frozen_correlations_stay_and_the_others_learn(name):
    prior = randomised(name)
    optimiser = torch.optim.SGD(prior.parameters(), lr=0.01)
    prior.set_learnability(0.5)
    factor = reference.prior_factor(prior)
    train(prior, optimiser, nn.Parameter(torch.ones(1, dtype=torch.float64)), 1)
    moved = reference.prior_factor(prior) != factor
    may_move = (factor != 0) & (np.arange(17) < 8)[:, None]
    np.testing.assert_array_equal(moved, may_move)


@every_prior
def test_changing_learnability_changes_no_values(name):
    prior = randomised(name)
    optimiser = torch.optim.Adam(prior.parameters(), lr=0.01)
    bystander = nn.Parameter(torch.ones(1, dtype=torch.float64))
    for share in (0.5, 0.2, 0.9, 1.0):
        before = dense(prior)
        prior.set_learnability(share)
        assert all(np.array_equal(a, b) for a, b in zip(dense(prior), before, strict=True))
        train(prior, optimiser, bystander, 1)


@pytest.mark.parametrize("name", ["factorised", "unitwise", "layerwise"])
def test_a_fixed_prior_is_made_once_and_follows_every_change_of_its_values(name):
    prior, other = randomised(name), randomised(name, seed=5)
    for each in (prior, other):
        each.set_learnability(0)
    assert prior.layer(1, []) is prior.layer(1, [])
    assert not torch.equal(prior.layer(1, []).factor, other.layer(1, []).factor)
    prior.load_state_dict(other.state_dict())
    for part in ("mean", "factor", "precision", "log_determinants"):
        torch.testing.assert_close(getattr(prior.layer(1, []), part), getattr(other.layer(1, []), part))
    block = prior.gaussians[1]
    assert isinstance(block, GaussianUnits)
    assert block.mean.fixed is not None
    block.mean.fixed += 1
    torch.testing.assert_close(prior.layer(1, []).mean, other.layer(1, []).mean + 1)
    assert prior.float().layer(1, []).precision.dtype == torch.float32
    prior.set_learnability(1)
    assert prior.layer(1, []).mean.requires_grad


@every_prior
@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_learnability_outside_0_to_1_is_refused(name, share):
    with pytest.raises(ValueError, match="share"):
        standard(name).set_learnability(share)


@every_prior
def test_is_standard_until_any_parameter_changes(name):
    prior = standard(name)
    assert prior.is_standard()
    prior.set_learnability(0.5)
    assert prior.is_standard()
    for parameter, _ in prior.named_parameters():
        changed = standard(name)
        with torch.no_grad():
            changed.get_parameter(parameter)[..., -1, 0] += 0.1
        assert not changed.is_standard(), parameter


def test_unknown_prior_is_refused():
    with pytest.raises(ValueError, match="unitwise"):
        by_name("horseshoe", NETWORK)
