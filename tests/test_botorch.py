"""BoTorch: fixed functions, gradients, conditioning on more points, and the search for candidates."""

import numpy as np
import pytest
import torch

import bnnp

pytest.importorskip("botorch", reason="the extra botorch is not installed")
from botorch.acquisition import qLogExpectedImprovement
from botorch.optim import optimize_acqf
from botorch.sampling.get_sampler import get_sampler

from bnnp.botorch import BNNPModel, ThompsonSampling

pytestmark = pytest.mark.filterwarnings("ignore")  # those of BoTorch and its optimisers
BOUNDS = torch.tensor([[-3.0, 8.0], [1.0, 12.0]], dtype=torch.float64)


@pytest.fixture(scope="module")
def surrogate():
    """A model of two inputs in units of their own, and three observations."""
    generator = np.random.default_rng(0)
    x = BOUNDS[0].numpy() + generator.random((4, 10, 2)) * (BOUNDS[1] - BOUNDS[0]).numpy()
    y = 50 + 10 * np.sin(x.sum(-1, keepdims=True))
    model = bnnp.BNNP(2, 1, (8, 8), activation="tanh", likelihood=bnnp.Gaussian(0.1), seed=0)
    bnnp.fit(model, bnnp.tasks.from_arrays(list(zip(x, y, strict=True))), steps=1, progress=False)
    return BNNPModel(model, torch.from_numpy(x[0, :3]), torch.from_numpy(y[0, :3]), num_samples=32)


def inputs(*shape: int, seed: int = 0) -> torch.Tensor:
    share = torch.rand(*shape, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return BOUNDS[0] + share * (BOUNDS[1] - BOUNDS[0])


def acquisition(surrogate: BNNPModel) -> qLogExpectedImprovement:
    sampler = get_sampler(surrogate.posterior(inputs(1)), torch.Size([32]))
    return qLogExpectedImprovement(surrogate, best_f=surrogate.train_Y.max(), sampler=sampler)


def test_values_are_those_of_the_posteriors_functions(surrogate):
    x = inputs(3, 4)
    values = surrogate.posterior(x).values
    assert values.shape == (3, 32, 4, 1)
    expected = surrogate.post.functions()[5](x[2].numpy())
    np.testing.assert_allclose(values[2, 5].numpy(), expected, rtol=1e-5)


def test_the_same_inputs_have_the_same_value_again_and_in_any_batch(surrogate):
    x, value = inputs(5, 4), acquisition(surrogate)
    together = value(x)
    assert torch.equal(together, value(x))
    torch.testing.assert_close(torch.cat([value(x[i : i + 1]) for i in range(5)]), together, rtol=1e-10, atol=0)
    torch.testing.assert_close(acquisition(surrogate)(x), together, rtol=0, atol=0)


def test_gradients_are_those_of_finite_differences(surrogate):
    x = inputs(2, 4).requires_grad_()
    assert torch.autograd.gradcheck(acquisition(surrogate), (x,), eps=1e-6, atol=1e-6)
    assert torch.autograd.gradcheck(lambda x: surrogate.posterior(x, observation_noise=True).values, (x,), atol=1e-6)


def test_four_candidates_from_end_to_end(surrogate):
    value = acquisition(surrogate)
    found, best = optimize_acqf(value, BOUNDS, q=4, num_restarts=2, raw_samples=16, options={"maxiter": 20, "seed": 0})
    assert found.shape == (4, 2)
    assert ((found >= BOUNDS[0]) & (found <= BOUNDS[1])).all()
    assert best > value(inputs(16, 4, seed=3)).median()


def test_more_observations_condition_anew_on_all(surrogate):
    x, y = inputs(2), torch.tensor([[51.0], [45.0]], dtype=torch.float64)
    more = surrogate.condition_on_observations(x, y)
    expected = surrogate.model.condition(
        torch.cat([surrogate.train_X, x]), torch.cat([surrogate.train_Y, y]), num_samples=32, seed=0
    )
    new = inputs(3, seed=1)
    torch.testing.assert_close(more.forward(new), torch.from_numpy(_values(expected, new)), rtol=1e-5, atol=1e-4)
    assert len(surrogate.train_X) == 3


def _values(post, x: torch.Tensor) -> np.ndarray:
    return np.stack([function(x.numpy()) for function in post.functions()])


def test_noise_is_the_learned_one_and_fixed(surrogate):
    x = inputs(2000)
    noisy, clean = (surrogate.posterior(x, observation_noise=noise).values for noise in (True, False))
    spread = (noisy - clean).std()
    expected = surrogate.model.likelihood.noise.item() * surrogate.model.columns.y_scale.item()
    assert spread.item() == pytest.approx(expected, rel=0.02)  # 64,000 draws: a standard error is 0.3 %
    again = surrogate.posterior(x[:3], observation_noise=True).values
    torch.testing.assert_close(again, noisy[:, :3])


def test_thompson_sampling_maximises_a_whole_function(surrogate):
    value = ThompsonSampling(surrogate, number=3)
    found, best = optimize_acqf(value, BOUNDS, q=1, num_restarts=2, raw_samples=32, options={"maxiter": 50, "seed": 0})
    values = surrogate.post.functions()[3](inputs(500).numpy())
    assert best is not None
    assert best.item() >= values.max() - 0.05 * values.std()
    assert value(found.unsqueeze(0)).item() == pytest.approx(best.item())


def test_what_does_not_fit_is_refused(surrogate):
    labels = bnnp.BNNP(2, 1, (4,), likelihood=bnnp.Bernoulli(), seed=0)
    with pytest.raises(ValueError, match="model: got a BNNP, expected"):
        BNNPModel(labels, inputs(3), torch.zeros(3, 1))
    with pytest.raises(ValueError, match="a batch of data sets"):
        surrogate.condition_on_observations(inputs(2, 3), torch.zeros(2, 3, 1))
