"""The linear model behind the starts that are fitted to tasks."""

import pytest
import torch
from torch.distributions import MultivariateNormal

from bnnp.priors.fitted import LinearFit, Sums, fit_linear

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
