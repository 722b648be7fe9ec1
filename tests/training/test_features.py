"""Training of features: its objective against a dense reference, and how it changes a model."""

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

import bnnp
from bnnp.numerics.bends import bends_over
from bnnp.training.features import LARGE_STEPS, SMALL_STEPS, _Free, _prepared, can_train_features, train_features

PRIORS = ("factorised", "unitwise", "layerwise", "networkwise")


def tasks(outputs: int = 2) -> bnnp.tasks.Collection:
    """Five data sets of unequal sizes, from smaller to larger than the number of features."""
    random = np.random.default_rng(0)
    return bnnp.tasks.from_arrays(
        [(random.normal(size=(n, 2)), random.normal(size=(n, outputs))) for n in (2, 3, 5, 9, 14)]
    )


def started(prior: str) -> bnnp.BNNP:
    model = bnnp.BNNP(2, 2, hidden=(6, 4), prior=prior, activation="tanh", dtype=torch.float64, seed=0)
    bnnp.start_prior(model, tasks(), "spread", seed=0)
    return model


def batch_of(model: bnnp.BNNP):
    return _prepared(model, tasks().tasks, torch.Generator().manual_seed(0))


def moved(model: bnnp.BNNP) -> _Free:
    """The parameters that are trained, each moved away from its start."""
    batch = batch_of(model)
    free = _Free(model, batch, SMALL_STEPS)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in free.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
    return free


@pytest.mark.parametrize("prior", PRIORS)
def test_the_evidence_is_that_of_a_dense_gaussian(prior: str):
    model = started(prior)
    free, batch = moved(model), batch_of(model)
    got = free.log_evidence(batch).detach().numpy()
    hidden, last = [w.detach().numpy() for w in free.weights()], free.last_layer()
    factor = last.factor.detach() if last.factor.ndim == 3 else torch.diag_embed(last.factor.detach())
    for task in range(len(got)):
        here = batch.mask[task]
        phi = batch.x[task, here].numpy()
        for w in hidden:
            phi = np.tanh(np.column_stack([phi, np.ones(len(phi))]) @ w)
        phi, expected = np.column_stack([phi, np.ones(len(phi))]), 0.0
        for unit in range(2):
            spread = phi @ factor[unit].numpy()
            noise = float(free.log_noise[unit].detach().exp())
            covariance = torch.from_numpy(spread @ spread.T + noise**2 * np.eye(len(phi)))
            mean = torch.from_numpy(phi @ last.mean[0, 0, unit].detach().numpy())
            expected += float(MultivariateNormal(mean, covariance).log_prob(batch.y[task, here, unit]))
        assert got[task] == pytest.approx(expected, abs=1e-9)


def test_derivatives_of_the_evidence_are_those_of_finite_differences():
    model = started("unitwise")
    free, batch = moved(model), batch_of(model)
    parameters = [*free.parameters()]

    def total(*values):
        return torch.func.functional_call(_Evidence(free), dict(zip(names, values, strict=True)), (batch,)).sum()

    names = [f"free.{name}" for name, _ in free.named_parameters()]
    assert torch.autograd.gradcheck(total, tuple(p.detach().clone().requires_grad_() for p in parameters))


class _Evidence(torch.nn.Module):
    def __init__(self, free: _Free):
        super().__init__()
        self.free = free

    def forward(self, batch):
        return self.free.log_evidence(batch)


@pytest.mark.parametrize("prior", PRIORS)
def test_what_is_written_is_what_was_trained(prior: str):
    model = started(prior)
    free, batch = moved(model), batch_of(model)
    before = free.log_evidence(batch).detach()
    free.write(batch.x[batch.mask])
    again = _Free(model, batch, SMALL_STEPS).log_evidence(batch).detach()
    torch.testing.assert_close(again, before, rtol=0, atol=1e-8)


def test_training_raises_the_evidence_and_repeats_itself():
    model, other = started("unitwise"), started("unitwise")
    first = _Free(model, batch_of(model), SMALL_STEPS).log_evidence(batch_of(model)).detach().sum()
    for one in (model, other):
        train_features(one, tasks(), 60, progress=False, seed=0)
    last = _Free(model, batch_of(model), SMALL_STEPS).log_evidence(batch_of(model)).detach().sum()
    assert float(last) > float(first) + 1
    for one, same in zip(model.prior.sample(1, 0), other.prior.sample(1, 0), strict=True):
        assert one.equal(same)


def test_a_model_in_float32_whose_noise_varies_is_trained_too():
    model = bnnp.BNNP(2, 2, hidden=(6, 4), activation="tanh", seed=0)
    bnnp.start_prior(model, tasks(), "spread", seed=0)
    assert isinstance(model.likelihood, bnnp.Gaussian)
    model.likelihood.vary(bends_over(torch.linspace(-1, 1, 9)[:, None].expand(-1, 2), [0]), torch.full((4, 2), 0.1))
    before = model.likelihood.noise.detach().clone()
    train_features(model, tasks(), 5, progress=False, seed=0)
    assert not model.likelihood.noise.equal(before)


def test_training_that_diverges_leaves_the_model_alone(monkeypatch):
    model = started("unitwise")
    before = model.prior.sample(1, 0)
    monkeypatch.setattr(_Free, "log_evidence", lambda self, batch: self.log_noise.sum() * torch.nan)
    with pytest.raises(bnnp.TrainingDiverged, match="not finite"):
        train_features(model, tasks(), 3, progress=False, seed=0)
    assert all(one.equal(same) for one, same in zip(model.prior.sample(1, 0), before, strict=True))


def test_a_covariance_that_becomes_singular_is_refused_before_anything_is_written(monkeypatch):
    model = started("unitwise")
    before = model.prior.sample(1, 0)
    monkeypatch.setattr(_Free, "covariance", lambda self: torch.ones(2, 5, 5, dtype=torch.float64))
    with pytest.raises(bnnp.TrainingDiverged, match="became singular"):
        train_features(model, tasks(), 3, progress=False, seed=0)
    assert all(one.equal(same) for one, same in zip(model.prior.sample(1, 0), before, strict=True))


def test_large_steps_go_further():
    moved = []
    for pace in (SMALL_STEPS, LARGE_STEPS):
        model = started("unitwise")
        before = model.prior.sample(1, 0)[-1]
        train_features(model, tasks(), 3, pace=pace, progress=False, seed=0)
        moved.append(float((model.prior.sample(1, 0)[-1] - before).abs().max()))
    assert moved[1] > 3 * moved[0]


def test_a_fixed_noise_is_not_changed():
    model = bnnp.BNNP(2, 2, hidden=(4,), likelihood=bnnp.Gaussian(0.3, learnable=False), dtype=torch.float64, seed=0)
    bnnp.start_prior(model, tasks(), "spread", seed=0)
    train_features(model, tasks(), 3, progress=False, seed=0)
    assert isinstance(model.likelihood, bnnp.Gaussian)
    assert model.likelihood.noise.tolist() == pytest.approx([0.3, 0.3])


def test_which_models_have_features_to_train():
    assert can_train_features(bnnp.BNNP(1, 1, hidden=(4,)))
    assert not can_train_features(bnnp.BNNP(1, 1, hidden=(4,)).set_prior_learnability(0.5))
    assert not can_train_features(bnnp.BNNP(1, 1, hidden=(4,), likelihood=bnnp.Bernoulli()))
    assert not can_train_features(bnnp.neural_processes.CNP(1, 1))
