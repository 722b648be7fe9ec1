"""A Gaussian noise that varies with the inputs: densities, files, and the models and methods that use it."""

import numpy as np
import pytest
import torch
from scipy import stats

import bnnp
from bnnp.app.export import packed
from bnnp.inference.target import Target
from bnnp.numerics.bends import bends_at, bends_over

X = torch.linspace(-2, 2, 9, dtype=torch.float64)[:, None]
TABLE = bends_over(X, [0])
COEFFICIENTS = torch.tensor([[1.0, 0.0], [0.3, 0.0], [-0.2, 0.5], [0.1, 0.0]], dtype=torch.float64)


def varied(max_noise: float | None = None) -> bnnp.Gaussian:
    likelihood = bnnp.Gaussian([0.3, 0.7], max_noise=max_noise).double()
    likelihood.vary(TABLE, COEFFICIENTS)
    return likelihood


def noise_of_numpy(x: torch.Tensor) -> np.ndarray:
    return np.array([0.3, 0.7]) * np.exp(bends_at(TABLE, x).numpy() @ COEFFICIENTS.numpy())


def test_a_likelihood_in_float32_takes_inputs_in_float64():
    noise = varied().float().noise_at(X)
    assert noise.dtype == torch.float32
    np.testing.assert_allclose(noise.detach().numpy(), noise_of_numpy(X), rtol=1e-6)


@pytest.fixture(scope="module")
def model() -> bnnp.BNNP:
    own = bnnp.BNNP(1, 2, hidden=(4,), likelihood=varied(), last_layer="likelihood", dtype=torch.float64, seed=0)
    own.columns.x_shift.fill_(0.5)
    own.columns.y_scale.fill_(2.0)
    return own


def coefficients(model: bnnp.BNNP) -> torch.Tensor:
    assert isinstance(model.likelihood, bnnp.Gaussian)
    assert model.likelihood.coefficients is not None
    return model.likelihood.coefficients.detach().clone()


def data(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-1.5, 2.5, (n, 1)), rng.normal(size=(n, 2))


def test_densities_and_moments_at_given_points_are_scipys():
    f, y = torch.randn(3, 9, 2, dtype=torch.float64), torch.randn(9, 2, dtype=torch.float64)
    here, noise = varied().at(X), noise_of_numpy(X)
    np.testing.assert_allclose(varied().noise_at(X).detach(), noise, rtol=1e-6)
    expected = stats.norm.logpdf(y.numpy(), f.numpy(), noise).sum(-1)
    np.testing.assert_allclose(here.log_prob(f, y).detach(), expected, rtol=1e-5)
    np.testing.assert_allclose(here.variance(f).detach(), np.broadcast_to(noise**2, f.shape), rtol=1e-5)
    leaf = f.clone().requires_grad_()
    (slope,) = torch.autograd.grad(here.log_prob(leaf, y).sum(), leaf)
    torch.testing.assert_close(here.slope(f, y).detach(), slope)
    root = here.curvature_root(f).detach()
    np.testing.assert_allclose(
        (root.mT @ root).diagonal(dim1=-2, dim2=-1), np.broadcast_to(noise**-2, f.shape), rtol=1e-5
    )


def test_samples_have_the_noise_of_their_points():
    """4000 draws: a standard error of 1.1 %; the largest of 18 exceeds 5 % once in 10,000 runs."""
    draws = varied().at(X).sample(torch.zeros(4000, 9, 2).double(), torch.Generator().manual_seed(0)).detach()
    np.testing.assert_allclose(draws.std(0), noise_of_numpy(X), rtol=0.05)


def test_the_geometric_mean_over_the_training_inputs_is_the_noise():
    np.testing.assert_allclose(varied().noise_at(X).log().mean(0).exp().detach(), [0.3, 0.7], rtol=1e-6)


def test_an_upper_bound_holds_everywhere():
    noise = varied(max_noise=0.8).noise_at(10 * X).detach()
    assert float(noise.max()) < 0.8
    assert float(noise.std(0).min()) > 0


def test_one_noise_is_itself_at_all_points():
    one = bnnp.Gaussian(0.1)
    assert one.at(X) is one
    assert not one.varies
    assert set(one.state_dict()) == {"raw"}


def test_states_and_files_keep_the_noise(model, tmp_path):
    again = bnnp.load(model.save(tmp_path / "model.bnnp"))
    x, y = data(5)
    posts = [own.condition(x, y, num_samples=5, seed=0).predict(x) for own in (model, again)]
    np.testing.assert_array_equal(posts[0].std, posts[1].std)
    one = bnnp.BNNP(1, 2, hidden=(4,), last_layer="likelihood", dtype=torch.float64, seed=0)
    state = one.state_dict()
    one.load_state_dict(model.state_dict())
    assert torch.equal(coefficients(one), coefficients(model))
    one.load_state_dict(state)
    assert not one.likelihood.varies


def test_training_adapts_the_coefficients(model):
    tasks = bnnp.tasks.from_arrays([data(8, seed) for seed in range(4)])
    own = bnnp.BNNP(1, 2, hidden=(4,), likelihood=varied(), seed=0)
    before = coefficients(own)
    bnnp.fit(own, tasks, steps=2, progress=False)
    assert bool((coefficients(own) != before).all())


def test_the_posterior_is_that_of_a_dense_gaussian():
    """A linear model: its predictive density, against conditioning in function space with one noise per point."""
    linear = bnnp.BNNP(1, 2, hidden=(), likelihood=varied(), last_layer="likelihood", dtype=torch.float64)
    (x, y), (new, y_new) = data(6), data(4, seed=1)
    found = linear.condition(x, y, num_samples=1).predict(new).joint_log_prob(y_new)
    prior, everything = linear.prior.layer(0, []), np.concatenate([x, new])
    phi = np.concatenate([everything, np.ones_like(everything)], 1)
    expected = 0.0
    for output in range(2):
        factor = prior.factor.detach()[output].numpy()
        root = phi @ (np.diag(factor) if factor.ndim == 1 else factor)
        noise = linear.noise_at(torch.from_numpy(everything))[:, output].detach().numpy()
        covariance = root @ root.T + np.diag(noise**2)
        values = np.concatenate([y, y_new])[:, output]
        parts = [stats.multivariate_normal(np.zeros(n), covariance[:n, :n]) for n in (6, 10)]  # pyright: ignore
        joint = [part.logpdf(values[: part.dim]) for part in parts]
        expected += joint[1] - joint[0]
    assert found == pytest.approx(expected, rel=1e-9)


def test_samples_of_all_layers_give_the_same_spread(model):
    """The second route: the last layer sampled instead of integrated. 4000 samples: about 2 % of error."""
    x, y = data(6)
    post = model.condition(x, y, num_samples=4000, seed=0)
    new = np.linspace(-1.5, 2.5, 5)[:, None]
    np.testing.assert_allclose(post.predict_by_samples(new).std, post.predict(new).std, rtol=0.1)


def test_methods_of_inference_have_the_noise_of_each_point(model):
    x, y = data(6)
    target = Target.of(model.prior, model.network, [(x, y)], model.likelihood)
    position = target.draw_prior(3, torch.Generator().manual_seed(0))
    value, gradient = target.value_and_gradient(position)
    leaf = position.clone().requires_grad_()
    torch.testing.assert_close(value.detach(), target.log_density(leaf).detach())
    torch.testing.assert_close(gradient.detach(), torch.autograd.grad(target.log_density(leaf).sum(), leaf)[0])
    outputs = model.network(target.weights(position), target.data.x.unsqueeze(1))[0].detach().numpy()
    noise = noise_of_numpy(target.data.x[0])
    expected = stats.norm.logpdf(target.data.y[0].numpy(), outputs, noise).sum(-1)
    np.testing.assert_allclose(target.log_likelihood(position)[0].detach(), expected, rtol=1e-5)


@pytest.mark.parametrize("method", ["ensemble", "laplace"])
def test_methods_run(model, method):
    found = bnnp.infer(model, *data(6), method=method, num_samples=3, steps=3)
    assert np.isfinite(found.predict([[0.0]]).std).all()


def test_models_that_cannot_have_a_varying_noise_refuse_it(model):
    with pytest.raises(ValueError, match="varies with the inputs"):
        bnnp.neural_processes.CNP(1, 2, likelihood=varied())
    with pytest.raises(ValueError, match="its noise varies with the inputs"):
        packed("own", model)
