import math

import numpy as np
import pytest
import torch
from scipy import special, stats

from bnnp import Bernoulli, Categorical, Gaussian
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.by_name import LIKELIHOODS, from_config

MEMBERS = {
    "gaussian": lambda: Gaussian([0.3, 0.7, 1.1]).for_outputs(3).double(),
    "bounded": lambda: Gaussian([0.3, 0.7, 1.1], max_noise=1.5).for_outputs(3).double(),
    "bernoulli": lambda: Bernoulli().for_outputs(3),
    "categorical": lambda: Categorical(3).for_outputs(3),
}
every_likelihood = pytest.mark.parametrize("name", list(MEMBERS))


def outputs(*shape: int) -> torch.Tensor:
    return 1.5 * torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def observation_moments(name: str, f: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of an observation (one column a class for labels), from SciPy."""
    if name == "bernoulli":
        p = special.expit(f)
        return p, np.asarray(stats.bernoulli.var(p))
    if name == "categorical":
        p = special.softmax(f, -1)
        return p, np.asarray(stats.bernoulli.var(p))
    return f, np.broadcast_to(np.square([0.3, 0.7, 1.1]), f.shape)


# --- densities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gaussian", "bounded"])
def test_gaussian_log_prob_is_scipys(name):
    f, y = outputs(2, 4, 3), outputs(4, 3) + 1
    expected = stats.norm.logpdf(y.numpy(), f.numpy(), [0.3, 0.7, 1.1]).sum(-1)
    found = MEMBERS[name]().log_prob(f, y).detach()
    np.testing.assert_allclose(found, expected, rtol=1e-6)  # the noise starts in float32


def test_gaussian_log_prob_is_exact_for_the_noise_it_has():
    likelihood = MEMBERS["gaussian"]()
    f, y, noise = outputs(2, 4, 3), outputs(4, 3) + 1, likelihood.noise.detach().numpy()
    expected = stats.norm.logpdf(y.numpy(), f.numpy(), noise).sum(-1)
    np.testing.assert_allclose(likelihood.log_prob(f, y).detach(), expected, rtol=1e-12)


def test_bernoulli_log_prob_is_scipys():
    f, y = outputs(2, 4, 3), (outputs(4, 3) > 0).double()
    expected = stats.bernoulli.logpmf(y.numpy(), special.expit(f.numpy())).sum(-1)
    np.testing.assert_allclose(Bernoulli().log_prob(f, y), expected, rtol=1e-12)


def test_bernoulli_takes_grey_values_as_cross_entropy():
    f, y = outputs(2, 4, 3), torch.rand(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    p = special.expit(f.numpy())
    expected = (y.numpy() * np.log(p) + (1 - y.numpy()) * np.log1p(-p)).sum(-1)
    np.testing.assert_allclose(Bernoulli().log_prob(f, y), expected, rtol=1e-10)


def test_categorical_log_prob_is_scipys():
    f, y = outputs(2, 3, 3), torch.tensor([[2.0], [0.0], [1.0]], dtype=torch.float64)
    expected = special.log_softmax(f.numpy(), -1)[:, [0, 1, 2], [2, 0, 1]]
    np.testing.assert_allclose(Categorical(3).log_prob(f, y), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bernoulli_is_safe_at_extreme_logits(dtype):
    f = torch.tensor([[1e4], [-1e4], [1e4], [-1e4]], dtype=dtype, requires_grad=True)
    y = torch.tensor([[1.0], [0.0], [0.0], [1.0]], dtype=dtype)
    log_prob = Bernoulli().log_prob(f, y)
    (gradient,) = torch.autograd.grad(log_prob.sum(), f)
    np.testing.assert_array_equal(log_prob.detach(), [0, 0, -1e4, -1e4])
    np.testing.assert_array_equal(gradient.squeeze(), [0, 0, -1, 1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_categorical_is_safe_at_extreme_logits(dtype):
    f = torch.tensor([[1e4, -1e4, 0.0]] * 3, dtype=dtype)
    y = torch.tensor([[0.0], [1.0], [2.0]], dtype=dtype)
    np.testing.assert_array_equal(Categorical(3).log_prob(f, y), [0, -2e4, -1e4])


@every_likelihood
def test_mean_and_variance_are_scipys(name):
    likelihood, f = MEMBERS[name](), outputs(2, 4, 3)
    mean, variance = observation_moments(name, f.numpy())
    np.testing.assert_allclose(likelihood.mean(f).detach(), mean, rtol=1e-6)
    np.testing.assert_allclose(likelihood.variance(f).detach(), variance, rtol=1e-6)


# --- samples ---------------------------------------------------------------------------------------------------------

NUM_SAMPLES = 20_000
# 6 means and 6 variances a likelihood: the largest of 12 standard normals exceeds 4.5 with probability 8e-5.
TOO_FAR = 4.5


def worst_standard_error(columns: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> float:
    """Largest deviation of the means and variances of samples (samples, ...) from the given ones."""
    squares = (columns - mean) ** 2
    root = math.sqrt(len(columns))
    first = np.abs(columns.mean(0) - mean) / columns.std(0) * root
    second = np.abs(squares.mean(0) - variance) / squares.std(0) * root
    return max(first.max(), second.max())


@every_likelihood
def test_samples_have_the_moments_of_an_observation(name):
    likelihood, f = MEMBERS[name](), outputs(2, 3)
    drawn = likelihood.sample(f.expand(NUM_SAMPLES, 2, 3), torch.Generator().manual_seed(0)).detach()
    assert drawn.shape == (NUM_SAMPLES, 2, likelihood.y_size(3))
    likelihood.check(drawn)
    columns = likelihood.encode(drawn).numpy()
    mean, variance = observation_moments(name, f.numpy())
    assert worst_standard_error(columns, mean, variance) < TOO_FAR
    assert worst_standard_error(columns, mean + 0.05, variance) > TOO_FAR
    assert worst_standard_error(columns, mean[:, ::-1], variance) > TOO_FAR
    if likelihood.real_valued:
        assert worst_standard_error(columns, mean, 1.1 * variance) > TOO_FAR


@every_likelihood
def test_samples_follow_the_generator(name):
    likelihood, f = MEMBERS[name](), outputs(50, 3)
    first, again, other = (likelihood.sample(f, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# --- what users set --------------------------------------------------------------------------------------------------


def test_noise_starts_where_it_is_set():
    np.testing.assert_allclose(Gaussian(0.05).noise.detach(), [0.05], rtol=1e-6)
    np.testing.assert_allclose(Gaussian([0.1, 0.2], max_noise=0.3).noise.detach(), [0.1, 0.2], rtol=1e-6)


def test_noise_stays_below_its_bound_however_long_it_learns():
    likelihood = Gaussian(0.2, max_noise=0.3)
    optimiser = torch.optim.SGD(likelihood.parameters(), lr=1.0)
    for _ in range(100):
        optimiser.zero_grad()
        (-likelihood.log_prob(torch.zeros(5, 1), torch.full((5, 1), 9.0)).sum()).backward()
        optimiser.step()
    assert 0.29 < likelihood.noise.item() <= float(np.float32(0.3))


def test_noise_learns_only_if_it_may():
    f, y = torch.zeros(5, 1), torch.ones(5, 1)
    assert Gaussian(0.2).log_prob(f, y).requires_grad
    assert not Gaussian(0.2, learnable=False).for_outputs(1).log_prob(f, y).requires_grad


def test_one_noise_becomes_one_an_output():
    own = Gaussian(0.2, max_noise=0.5).for_outputs(3)
    np.testing.assert_allclose(own.noise.detach(), [0.2] * 3, rtol=1e-6)
    assert own.max_noise == 0.5


def test_training_a_model_does_not_change_the_users_likelihood():
    users = Gaussian([0.2, 0.4])
    own = users.for_outputs(2)
    with torch.no_grad():
        own.raw.add_(1)
    np.testing.assert_allclose(users.noise.detach(), [0.2, 0.4], rtol=1e-6)


@pytest.mark.parametrize("noise", [0.0, -0.1, math.nan, math.inf, [], [0.1, 0.0]])
def test_noise_must_be_positive_and_finite(noise):
    with pytest.raises(ValueError, match="noise"):
        Gaussian(noise)


def test_noise_must_start_below_its_bound():
    with pytest.raises(ValueError, match="max_noise"):
        Gaussian(0.3, max_noise=0.3)


def test_number_of_noises_must_be_that_of_outputs():
    with pytest.raises(ValueError, match="noise"):
        Gaussian([0.1, 0.2]).for_outputs(3)


def test_number_of_classes_must_be_that_of_outputs():
    with pytest.raises(ValueError, match="out_size"):
        Categorical(3).for_outputs(2)
    with pytest.raises(ValueError, match="num_classes"):
        Categorical(1)


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (Bernoulli(), [[0.0], [1.1]]),
        (Bernoulli(), [[-0.1]]),
        (Categorical(3), [[3.0]]),
        (Categorical(3), [[-1.0]]),
        (Categorical(3), [[0.5]]),
    ],
)
def test_impossible_observations_are_refused(likelihood: Likelihood, y):
    with pytest.raises(ValueError, match="y"):
        likelihood.check(torch.tensor(y))


@every_likelihood
def test_possible_observations_and_none_at_all_are_accepted(name):
    likelihood = MEMBERS[name]()
    likelihood.check(torch.tensor([[0.0], [1.0]]))
    likelihood.check(torch.empty(0, 1))


def test_labels_are_encoded_as_one_hot():
    encoded = Categorical(3).encode(torch.tensor([[2.0], [0.0]]))
    np.testing.assert_array_equal(encoded, [[0, 0, 1], [1, 0, 0]])


@every_likelihood
def test_config_gives_the_likelihood_back(name):
    likelihood = MEMBERS[name]()
    again = from_config(likelihood.config()).to(torch.float64)
    f, y = outputs(4, 3), torch.ones(4, likelihood.y_size(3), dtype=torch.float64)
    assert type(again) in LIKELIHOODS.values()
    torch.testing.assert_close(again.log_prob(f, y), likelihood.log_prob(f, y), rtol=1e-5, atol=1e-5)
    assert {key: value for key, value in again.config().items() if key != "noise"} == {
        key: value for key, value in likelihood.config().items() if key != "noise"
    }
