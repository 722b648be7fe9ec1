"""The linear mixed model behind the empirical start, against dense NumPy and SciPy."""

import numpy as np
import pytest
import scipy.stats
import torch

from bnnp.priors.starts.fitting import fit_mixed
from bnnp.priors.starts.freedom import most_freedom
from bnnp.priors.starts.mixed import FIRST, NOISE, Freedom, MixedModel
from bnnp.priors.starts.sums import Sums, TaskPoints

SIZES = (3, 7, 1, 0, 12)


both = pytest.mark.parametrize("varies", [False, True])
"""One noise, and one noise per point."""


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def problem(varies: bool, d: int = 4, outputs: int = 2) -> tuple[MixedModel, list[TaskPoints]]:
    """A model with a free covariance, and tasks of unequal sizes, one of them empty."""
    shape = (torch.eye(d, dtype=torch.float64) + 0.3 * normal(outputs, d, d, seed=1)).tril()
    model = MixedModel(normal(d, seed=2).abs() + 0.1, FIRST + 0.3 * normal(outputs, 5, seed=3), shape)
    features, values, noise = ([normal(n, k, seed=n + seed) for n in SIZES] for k, seed in ((d, 0), (2, 50), (2, 90)))
    return model, seen(features, values, noise if varies else [None] * len(SIZES))


def seen(features, values, noise=None) -> list[TaskPoints]:
    return [TaskPoints(*one) for one in zip(features, values, noise or [None] * len(values), strict=True)]


def joined(tasks: list[TaskPoints], output: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, outputs and relative noise of all tasks, one after the other."""
    phi, y = (torch.cat([getattr(task, name) for task in tasks]).numpy() for name in ("phi", "y"))
    noise = [np.ones(task.y.shape) if task.log_noise is None else task.log_noise.exp().numpy() for task in tasks]
    return phi, y[:, output], np.concatenate(noise)[:, output]


def covariance_of_outputs(model: MixedModel, tasks: list[TaskPoints], output: int) -> np.ndarray:
    """The covariance of the outputs of all tasks, one after the other, written out."""
    own, common = model.own_factor()[output].numpy(), model.common_root()[output].numpy()
    phi, _, relative = joined(tasks, output)
    task = np.repeat(np.arange(len(tasks)), [len(one.y) for one in tasks])
    same = (task[:, None] == task).astype(float)
    noise = float(model.noise[output]) ** 2 * relative**2
    return phi @ np.diag(common**2) @ phi.T + same * (phi @ own @ own.T @ phi.T) + np.diag(noise)


@both
def test_the_evidence_is_the_density_of_all_outputs(varies):
    model, tasks = problem(varies)
    found = model.evidence(Sums.of(tasks))
    for output in range(2):
        covariance, y = covariance_of_outputs(model, tasks, output), joined(tasks, output)[1]
        expected = scipy.stats.multivariate_normal.logpdf(y, np.zeros(len(y)), covariance)  # pyright: ignore
        assert float(found[output]) == pytest.approx(expected, rel=1e-10)


@both
def test_derivatives_of_the_evidence(varies):
    model, tasks = problem(varies)
    sums = Sums.of(tasks)
    theta, shape = model.theta.clone().requires_grad_(), model.shape.clone().requires_grad_()

    def evidence(theta, shape):
        return MixedModel(model.values, theta, shape.tril()).evidence(sums)

    assert torch.autograd.gradcheck(evidence, (theta, shape))


@both
def test_the_weights_of_a_task_that_was_seen(varies):
    """Against conditioning one joint Gaussian of all outputs and the values of the second task at some points."""
    model, tasks = problem(varies)
    means, factors = model.of_tasks(Sums.of(tasks))
    new = normal(5, 4, seed=9)
    for output in range(2):
        known, at = covariance_of_outputs(model, tasks, output), new.numpy()
        phi, y, _ = joined(tasks, output)
        same = np.repeat(np.arange(len(tasks)) == 1, [len(one.y) for one in tasks])
        own, common = model.own_factor()[output].numpy(), np.diag(model.common_root()[output].numpy() ** 2)
        cross = at @ common @ phi.T + same * (at @ own @ own.T @ phi.T)
        spread = at @ (common + own @ own.T) @ at.T - cross @ np.linalg.solve(known, cross.T)
        factor = new @ factors[1, output]
        np.testing.assert_allclose((new @ means[1, output]).numpy(), cross @ np.linalg.solve(known, y), atol=1e-9)
        np.testing.assert_allclose((factor @ factor.mT).numpy(), spread, atol=1e-9)


@both
def test_the_weights_of_a_new_task_are_those_given_all_others(varies):
    """Against conditioning one joint Gaussian of all outputs and the values of a new task at some points."""
    model, tasks = problem(varies)
    mean, covariance = model.of_new_task(Sums.of(tasks))
    new = normal(5, 4, seed=9)
    for output in range(2):
        known, at = covariance_of_outputs(model, tasks, output), new.numpy()
        phi, y, _ = joined(tasks, output)
        own, common = model.own_factor()[output].numpy(), np.diag(model.common_root()[output].numpy() ** 2)
        cross = at @ common @ phi.T
        expected = cross @ np.linalg.solve(known, y)
        spread = at @ (common + own @ own.T) @ at.T - cross @ np.linalg.solve(known, cross.T)
        np.testing.assert_allclose((new @ mean[output]).numpy(), expected, atol=1e-9)
        np.testing.assert_allclose((new @ covariance[output] @ new.mT).numpy(), spread, atol=1e-9)


def drawn_tasks(count: int, second: float = 0.2, points: int = 10) -> tuple[torch.Tensor, list[TaskPoints]]:
    """Tasks of a model that is known: own weights of unequal deviations around common ones, one output."""
    deviations, common = torch.tensor([1.0, second]).double(), torch.tensor([[2.0], [-1.0]]).double()
    features = [normal(points + task % 5, 2, seed=task) for task in range(count)]
    weights = [common + deviations[:, None] * normal(2, 1, seed=1000 + task) for task in range(count)]
    outputs = [
        phi @ w + 0.1 * normal(len(phi), 1, seed=2000 + task)
        for task, (phi, w) in enumerate(zip(features, weights, strict=True))
    ]
    return deviations, seen(features, outputs)


def test_a_fit_with_freedom_finds_the_noise_the_common_weights_and_how_tasks_differ():
    deviations, tasks = drawn_tasks(200)
    sums, first = Sums.of(tasks), MixedModel.first(torch.ones(2, dtype=torch.float64), 1)
    simple, value = fit_mixed(sums, first)
    free, more = fit_mixed(sums, simple, Freedom(1.0))
    assert more > value
    mean, covariance = free.of_new_task(sums)
    assert float(free.noise) == pytest.approx(0.1, rel=0.05)  # about 2000 points: a standard error of 2 %
    np.testing.assert_allclose(mean[0], [2.0, -1.0], atol=5 * 1 / 200**0.5)
    # 200 tasks: a standard error of a standard deviation is 5 %
    np.testing.assert_allclose(covariance[0].diagonal().sqrt(), deviations, rtol=0.2)


def test_a_known_noise_is_not_changed():
    _, tasks = drawn_tasks(20)
    first = MixedModel.first(torch.ones(2, dtype=torch.float64), 1)
    known = torch.full((1, 5), torch.nan, dtype=torch.float64)
    known[:, NOISE] = np.log(0.3)
    model, _ = fit_mixed(Sums.of(tasks), first, held=known)
    assert float(model.noise) == pytest.approx(0.3)
    assert float(most_freedom(tasks, model, known)[0].noise) == pytest.approx(0.3)


@pytest.mark.parametrize(("count", "free"), [(1, False), (40, True)])
def test_left_out_tasks_decide_how_free_the_covariance_is(count, free):
    """One task has none to leave out. With forty, deviations of 1 and 0.01 are not one number."""
    _, tasks = drawn_tasks(count, second=0.01, points=3)
    first = MixedModel.first(torch.ones(2, dtype=torch.float64), 1)
    simple, _ = fit_mixed(Sums.of(tasks), first)
    model, _ = most_freedom(tasks, simple, None)
    assert bool((model.shape != torch.eye(2)).any()) is free
