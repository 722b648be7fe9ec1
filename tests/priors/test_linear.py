"""The linear model behind the starts that are fitted to tasks."""

import numpy as np
import pytest
import torch
from scipy.stats import truncnorm
from torch.distributions import MultivariateNormal

from bnnp.priors.starts.linear import LinearFit, Sums, _normal_below, fit_censored, fit_linear

MEAN = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
COVARIANCE = torch.tensor([[1.0, 0.6, 0.0], [0.6, 0.5, -0.1], [0.0, -0.1, 0.2]], dtype=torch.float64)
NOISE = 0.3


def draw(tasks: int, seed: int = 0) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Features and outputs of a linear model, of unequal sizes; some tasks have fewer points than weights."""
    random = torch.Generator().manual_seed(seed)
    root = torch.linalg.cholesky(COVARIANCE)
    features, outputs = [], []
    for task in range(tasks):
        phi = torch.randn(2 + task % 9, 3, generator=random, dtype=torch.float64)
        weights = MEAN + root @ torch.randn(3, generator=random, dtype=torch.float64)
        noise = NOISE * torch.randn(len(phi), generator=random, dtype=torch.float64)
        features.append(phi)
        outputs.append(phi @ weights + noise)
    return features, outputs


def evidence(features, outputs, mean, covariance, noise) -> float:
    """Log-density of all outputs, in function space."""
    total = 0.0
    for phi, y in zip(features, outputs, strict=True):
        spread = phi @ covariance @ phi.mT + noise**2 * torch.eye(len(phi), dtype=torch.float64)
        total += float(MultivariateNormal(phi @ mean, spread).log_prob(y))
    return total


def fit(features, outputs, **choices) -> LinearFit:
    sums = Sums.of([phi[None] for phi in features], outputs)
    return fit_linear(sums, 1.0, 0.5, torch.zeros(len(features), dtype=torch.long), **choices)


def test_the_fit_explains_the_tasks_better_than_the_truth_does():
    """As the largest evidence must; and it is near the truth."""
    features, outputs = draw(400)
    found = fit(features, outputs)
    best = evidence(features, outputs, found.mean, found.covariance, found.noise)
    assert best > evidence(features, outputs, MEAN, COVARIANCE, NOISE)
    # 400 tasks: standard errors of mean and covariance are at most 0.05 and 0.07, and the shrinkage is far smaller
    assert float((found.mean - MEAN).abs().max()) < 0.2
    assert float((found.covariance - COVARIANCE).abs().max()) < 0.25
    assert found.noise == pytest.approx(NOISE, rel=0.05)
    for wrong in (0.8, 1.25):  # no better anywhere near
        assert best > evidence(features, outputs, wrong * found.mean, found.covariance, found.noise)
        assert best > evidence(features, outputs, found.mean, wrong * found.covariance, found.noise)
        assert best > evidence(features, outputs, found.mean, found.covariance, wrong * found.noise)


def test_independent_weights_have_no_covariance():
    found = fit(*draw(50), diagonal=True)
    assert torch.equal(found.covariance, found.covariance.diagonal().diag())
    assert bool((found.covariance.diagonal() > 0).all())


def test_few_tasks_keep_the_first_variance():
    features, _ = draw(2)
    alike = fit(features, [phi @ MEAN for phi in features])  # two tasks that agree to the last digit
    assert float(alike.covariance.diagonal().min()) > 0.2
    features, _ = draw(200)
    many = fit(features, [phi @ MEAN for phi in features])
    assert float(many.covariance.diagonal().max()) < 0.01


def test_every_task_finds_its_own_features():
    """Each has been made by one of four ways, and starts with the next one."""
    random = torch.Generator().manual_seed(0)
    ways = [torch.randn(4, 12, 3, generator=random, dtype=torch.float64) for _ in range(60)]
    right = torch.arange(60) % 4
    outputs = [
        phi[way] @ MEAN + 0.05 * torch.randn(12, generator=random).double()
        for phi, way in zip(ways, right, strict=True)
    ]
    wrong_at_first = torch.where(torch.arange(60) % 3 == 0, (right + 1) % 4, right)
    found = fit_linear(Sums.of(ways, outputs), 1.0, 0.5, wrong_at_first)
    assert torch.equal(found.chosen, right)


def test_outputs_below_a_bound_are_made_up_for():
    """Half of them are not seen, and the fit is near the truth; taking them for what is at the bound is not."""
    features, outputs = draw(400)
    bound = -0.4
    seen = [y.clamp(min=bound) for y in outputs]
    assert 0.4 < float((torch.cat(seen) == bound).double().mean()) < 0.6
    some = [y - 5 * (y <= bound) for y in seen]  # what is below does not matter
    ways = [phi[None] for phi in features]
    found, same = (
        fit_censored(ways, y, bound + 1e-9, 1.0, NOISE, torch.Generator().manual_seed(0)) for y in (seen, some)
    )
    # 400 tasks with half of their points, and one draw of those unseen: errors are larger than with all of them
    assert float((found.mean - MEAN).abs().max()) < 0.3
    assert float((found.covariance - COVARIANCE).abs().max()) < 0.35
    assert float((same.mean - MEAN).abs().max()) < 0.3
    taken_as_they_are = fit(features, seen)
    assert float((taken_as_they_are.mean - MEAN).abs().max()) > 0.6


def test_with_nothing_below_the_bound_it_is_the_plain_fit():
    features, outputs = draw(50)
    found = fit_censored([phi[None] for phi in features], outputs, -1e6, 1.0, NOISE, torch.Generator().manual_seed(0))
    best = evidence(features, outputs, found.mean, found.covariance, NOISE)
    for wrong in (0.8, 1.25):
        assert best > evidence(features, outputs, wrong * found.mean, found.covariance, NOISE)
        assert best > evidence(features, outputs, found.mean, wrong * found.covariance, NOISE)


@pytest.mark.parametrize("mean", [-3.0, 0.2, 2.0, 7.0])
def test_draws_below_a_bound(mean):
    drawn = _normal_below(0.5, torch.full((40_000,), mean).double(), 0.7, torch.Generator().manual_seed(0)).numpy()
    known = truncnorm(-np.inf, (0.5 - mean) / 0.7, mean, 0.7)
    assert drawn.max() <= 0.5
    assert drawn.mean() == pytest.approx(known.mean(), abs=5 * known.std() / 200)  # five standard errors
    assert drawn.std() == pytest.approx(known.std(), rel=0.03)


def test_what_can_hardly_be_below_is_at_the_bound():
    drawn = _normal_below(0.5, torch.tensor([1e3, 1e8]).double(), 0.7, torch.Generator().manual_seed(0))
    assert drawn.tolist() == [0.5, 0.5]
