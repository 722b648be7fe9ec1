"""The paper's synthetic processes: their settings, their laws, and their exact predictives against separate NumPy."""

import numpy as np
import pytest
import torch

import bnnp
from bnnp.tasks import ExactPredictive, Task
from bnnp.tasks.synthetic import SOURCES, Synthetic


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def values(source: Synthetic, x: np.ndarray, draws: int, seed: int = 0) -> np.ndarray:
    """Clean function values (draws, points) at fixed inputs."""
    stream, inputs = generator(seed), torch.from_numpy(x)[:, None]
    return np.stack([source.values(inputs, stream)[:, 0].numpy() for _ in range(draws)])


def deviation(samples: np.ndarray, expected: float) -> float:
    """How far the mean of independent samples lies from its expectation, in standard errors."""
    return abs(samples.mean() - expected) / (samples.std(ddof=1) / np.sqrt(len(samples)))


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        (
            "sawtooth",
            {
                "noise": 0.05,
                "low": -2,
                "high": 2,
                "points": (40, 100),
                "period": 0.75,
                "height": 1.33,
                "slope_sd": 1 / 3,
                "offset_sd": 0.25,
            },
        ),
        ("heaviside", {"noise": 0.01, "low": -5, "high": 5, "points": (40, 100), "length_scale": 1}),
        (
            "gp",
            {"noise": 0.05, "low": -5, "high": 5, "points": (40, 100), "length_scale": 0.5, "output_scale": 1},
        ),
        (
            "bnn",
            {"noise": 0.1, "low": -4, "high": 4, "points": (40, 100), "hidden": (64, 64), "activation": "relu"},
        ),
    ],
)
def test_defaults_are_those_of_the_paper(name, settings):
    source = SOURCES[name]()
    assert {key: getattr(source, key) for key in settings} == settings
    assert (source.in_size, source.out_size) == (1, 1)


@pytest.mark.parametrize("name", SOURCES)
def test_tasks_have_sizes_and_inputs_from_their_ranges(name):
    source = SOURCES[name](low=1, high=3, points=(4, 6))
    tasks = source.draw(60, generator())
    x = torch.cat([task.x for task in tasks])
    assert {len(task) for task in tasks} == {4, 5, 6}
    assert 1 <= x.min() < 1.1
    assert 2.9 < x.max() <= 3
    assert all(task.y.shape == task.x.shape and task.y.dtype == torch.float64 for task in tasks)


@pytest.mark.parametrize("name", SOURCES)
def test_the_same_seed_draws_the_same_tasks(name):
    first, again, other = (SOURCES[name]().draw(2, generator(seed)) for seed in (5, 5, 6))
    assert all(torch.equal(a.y, b.y) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0].y, first[1].y[: len(first[0])])
    assert not torch.equal(first[0].x[:5], other[0].x[:5])


@pytest.mark.parametrize("name", SOURCES)
def test_noise_is_added_to_each_observation(name):
    noisy, clean = (SOURCES[name](noise=noise, points=(3000, 3000)).draw(1, generator())[0] for noise in (0.3, 0.0))
    error = (noisy.y - clean.y).numpy()
    # 3000 draws: standard error of the standard deviation 0.3 / sqrt(6000) = 0.0039; |z| > 4.5: 7e-6
    assert abs(error.std() - 0.3) < 4.5 * 0.0039
    assert abs(error.mean()) < 4.5 * 0.3 / np.sqrt(3000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"noise": -0.1}, "noise=-0.1"),
        ({"low": 2, "high": 2}, "expected noise >= 0 and low < high"),
        ({"points": (1, 5)}, "points"),
        ({"points": (9, 5)}, "points"),
        ({"points": 50}, "points: got 50, expected a range"),
    ],
)
def test_bad_settings_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        bnnp.tasks.sawtooth(**arguments)


# --- sawtooth --------------------------------------------------------------------------------------------------------


def teeth(x: np.ndarray) -> np.ndarray:
    """The deterministic part, with floor instead of remainder."""
    return 1.33 * ((x - 0.75 * np.floor(x / 0.75)) - 0.375)


def test_sawtooth_values_follow_the_formula_of_the_paper():
    x = np.linspace(-2, 2, 81)
    e1, e2 = torch.randn(2, generator=generator(4), dtype=torch.float64).numpy()
    expected = e1 * x / 3 + 0.25 * e2 + teeth(x)
    np.testing.assert_allclose(values(bnnp.tasks.sawtooth(), x, 1, seed=4)[0], expected, atol=1e-12)


def test_sawtooth_moments():
    x = np.array([-1.9, 0.4, 1.3])
    f = values(bnnp.tasks.sawtooth(), x, 3000)
    centred = f - teeth(x)
    # nine statistics beyond 4.5 standard errors by chance: 6e-5
    for i in range(3):
        assert deviation(centred[:, i], 0) < 4.5
        assert deviation(centred[:, i] ** 2, (x[i] / 3) ** 2 + 0.25**2) < 4.5
        assert deviation(centred[:, i] * centred[:, 0], x[i] * x[0] / 9 + 0.25**2) < 4.5
    # a slope of standard deviation 1 / sqrt(3) instead of 1/3 would be seen
    assert deviation(centred[:, 0] ** 2, x[0] ** 2 / 3 + 0.25**2) > 20


# --- Heaviside -------------------------------------------------------------------------------------------------------


def test_heaviside_values_are_plus_and_minus_one():
    x = np.linspace(-5, 5, 60)
    f = values(bnnp.tasks.heaviside(), x, 50)
    assert set(np.unique(f)) == {-1.0, 1.0}
    assert all(set(row) == {-1.0, 1.0} for row in f)  # its mean is taken off first, so both occur
    assert (f[:, 1:] != f[:, :-1]).sum(1).max() < 20  # long runs, not noise


def test_heaviside_observations_lie_within_the_noise():
    y = torch.cat([task.y for task in bnnp.tasks.heaviside().draw(20, generator())]).abs()
    assert 0 < (y - 1).abs().max() < 6 * 0.01  # about 1400 draws beyond 6 standard deviations: 3e-6


def test_heaviside_switches_as_often_as_its_length_scale_says():
    x = np.linspace(-2, 2, 12)
    f = values(bnnp.tasks.heaviside(), x, 2000)
    agreement = f[:, 5] * f[:, 6]

    def expected(length_scale: float) -> float:
        """2/pi asin(correlation) of neighbours, after the mean of all points has been taken off."""
        centre = np.eye(12) - 1 / 12
        covariance = centre @ np.exp(-0.5 * ((x[:, None] - x) / length_scale) ** 2) @ centre
        return 2 / np.pi * np.arcsin(covariance[5, 6] / np.sqrt(covariance[5, 5] * covariance[6, 6]))

    assert deviation(agreement, expected(1.0)) < 4.5  # false alarm 7e-6
    assert deviation(agreement, expected(0.5)) > 8


# --- Gaussian process ------------------------------------------------------------------------------------------------


def test_gp_covariance():
    x = np.array([0.0, 0.3, 1.0])
    f = values(bnnp.tasks.gp(output_scale=2.0), x, 4000)
    # nine statistics beyond 4.5 standard errors by chance: 6e-5
    for i in range(3):
        assert deviation(f[:, i], 0) < 4.5
        for j in range(i, 3):
            expected = 4 * np.exp(-((x[i] - x[j]) ** 2) / (2 * 0.5**2))
            assert deviation(f[:, i] * f[:, j], expected) < 4.5
    # without the 2 in the exponent, or with the output scale not squared, it would be seen
    assert deviation(f[:, 0] * f[:, 1], 4 * np.exp(-(0.3**2) / 0.5**2)) > 6
    assert deviation(f[:, 0] ** 2, 2.0) > 8


def test_gp_draws_are_smooth_at_close_inputs():
    f = values(bnnp.tasks.gp(), np.linspace(-5, 5, 400), 5)
    assert np.abs(np.diff(f)).max() < 0.5


# --- networks --------------------------------------------------------------------------------------------------------


def test_bnn_variance_of_a_linear_network():
    x = np.array([-3.0, 0.5, 2.0])
    f = values(bnnp.tasks.bnn(hidden=(6,), activation="identity"), x, 4000)
    hidden_variance = (x**2 + 1) / 2  # weights of variance 1/2 for one input and a bias
    variance = (6 * hidden_variance + 1) / 7
    # six statistics beyond 4.5 standard errors by chance: 4e-5
    for i in range(3):
        assert deviation(f[:, i], 0) < 4.5
        assert deviation(f[:, i] ** 2, variance[i]) < 4.5
    # variance 1/d without the bias among the inputs would be seen
    assert deviation(f[:, 0] ** 2, (x[0] ** 2 + 1) + 1 / 6) > 10


def test_bnn_variance_of_a_relu_network():
    x = np.array([-3.0, 0.5])
    f = values(bnnp.tasks.bnn(hidden=(5, 4)), x, 6000)
    # E[relu(h)^2] = E[h^2] / 2 for a symmetric h, in each hidden layer
    first = (x**2 + 1) / 2
    second = (5 * first / 2 + 1) / 6
    variance = (4 * second / 2 + 1) / 5
    for i in range(2):  # beyond 4.5 standard errors by chance: 1e-5
        assert deviation(f[:, i] ** 2, variance[i]) < 4.5
        assert deviation(f[:, i] ** 2, (4 * (5 * first[i] + 1) / 6 + 1) / 5) > 10  # no nonlinearity


# --- exact predictives -----------------------------------------------------------------------------------------------


def weight_space_sawtooth(context: Task, x_new: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Bayesian linear regression on the features (x/3, 0.25) after the teeth are taken off."""

    def features(x):
        return np.column_stack([x / 3, np.full(len(x), 0.25)])

    x, y = context.x[:, 0].numpy(), context.y[:, 0].numpy()
    precision = np.eye(2) + features(x).T @ features(x) / noise**2
    mean = np.linalg.solve(precision, features(x).T @ (y - teeth(x)) / noise**2)
    phi = features(x_new)
    return teeth(x_new) + phi @ mean, phi @ np.linalg.inv(precision) @ phi.T


def brute_force_gp(context: Task, x_new: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """The conditional of the joint Gaussian through its precision matrix."""
    x = np.concatenate([x_new, context.x[:, 0].numpy()])
    joint = np.exp(-((x[:, None] - x[None]) ** 2) / 0.5)
    n = len(x_new)
    joint[range(n, len(x)), range(n, len(x))] += noise**2
    blocks = np.linalg.inv(joint[n:, n:])
    gain = joint[:n, n:] @ blocks
    return gain @ context.y[:, 0].numpy(), joint[:n, :n] - gain @ joint[n:, :n]


EXACT = {"sawtooth": weight_space_sawtooth, "gp": brute_force_gp}


def drawn(name: str, points: int) -> Task:
    return SOURCES[name](points=(max(2, points), max(2, points))).draw(1, generator(7))[0].take(torch.arange(points))


def oracle(name: str, context: Task, x_new: np.ndarray) -> ExactPredictive:
    return SOURCES[name]().oracle(context.x, context.y, x_new)  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("points", [0, 1, 12])
def test_the_oracle_agrees_with_a_separate_computation(name, points):
    context, x_new = drawn(name, points), np.array([-1.7, 0.1, 0.2, 1.9])
    mean, covariance = EXACT[name](context, x_new, 0.05)
    predictive = oracle(name, context, x_new)
    np.testing.assert_allclose(predictive.mean[:, 0], mean, atol=1e-10)
    np.testing.assert_allclose(predictive.covariance, covariance, atol=1e-10)
    np.testing.assert_allclose(predictive.std[:, 0], np.sqrt(np.diag(covariance) + 0.05**2), atol=1e-10)


@pytest.mark.parametrize("name", EXACT)
def test_densities_of_the_oracle_are_those_of_its_gaussian(name):
    context, x_new, y = drawn(name, 5), np.array([-1.7, 0.1, 1.9]), np.array([[0.3], [-0.2], [0.6]])
    mean, covariance = EXACT[name](context, x_new, 0.05)
    total = covariance + 0.05**2 * np.eye(3)
    error = y[:, 0] - mean
    joint = -0.5 * (error @ np.linalg.inv(total) @ error + np.log(np.linalg.det(2 * np.pi * total)))
    single = -0.5 * (error**2 / np.diag(total) + np.log(2 * np.pi * np.diag(total)))
    predictive = oracle(name, context, x_new)
    np.testing.assert_allclose(predictive.joint_log_prob(torch.from_numpy(y)), joint, rtol=1e-8)
    np.testing.assert_allclose(predictive.marginal_log_prob(torch.from_numpy(y)), single, rtol=1e-8)


@pytest.mark.parametrize("name", EXACT)
def test_the_joint_density_is_the_sum_of_conditionals(name):
    task = drawn(name, 9)
    context, targets = task.take(torch.arange(3)), range(3, 9)
    joint = oracle(name, context, task.x[3:].numpy()).joint_log_prob(task.y[3:])
    one_by_one = sum(
        float(oracle(name, task.take(torch.arange(i)), task.x[i : i + 1].numpy()).marginal_log_prob(task.y[i : i + 1]))
        for i in targets
    )
    assert joint == pytest.approx(one_by_one, rel=1e-8)


@pytest.mark.parametrize("name", EXACT)
def test_functions_of_the_oracle_have_its_moments(name):
    predictive = oracle(name, drawn(name, 4), np.array([-1.0, 0.5, 1.5]))
    samples = predictive.sample(4000, generator())[..., 0].numpy()
    mean, covariance = predictive.mean[:, 0].numpy(), predictive.covariance.numpy()
    error = samples - mean
    for i in range(3):  # twelve statistics beyond 4.5 standard errors by chance: 8e-5
        assert deviation(samples[:, i], mean[i]) < 4.5
        for j in range(3):
            assert deviation(error[:, i] * error[:, j], covariance[i, j]) < 4.5
    assert deviation(error[:, 0] ** 2, 1.5 * covariance[0, 0]) > 10


def test_the_oracle_refuses_bad_data():
    with pytest.raises(ValueError, match="x and y: got 2 and 1 points"):
        bnnp.tasks.sawtooth().oracle([1, 2], [1], [0.0])
    with pytest.raises(ValueError, match="x_new: got nan"):
        bnnp.tasks.gp().oracle([1], [1], [np.nan])
