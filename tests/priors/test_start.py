"""Where a learnable prior starts."""

import numpy as np
import pytest
import torch

import bnnp
from bnnp.networks.base import features_of_layer
from bnnp.priors import PRIORS
from bnnp.priors.learnable import GaussianUnits
from bnnp.priors.starts import STARTS, Examples, Fitted, Floor, Needs, Place, Spread, Switch
from bnnp.priors.starts.spread import FIRST_SCALE, Deciding


def started(prior: str, in_size: int = 1, share: float = 1.0, hidden=(6, 5)) -> tuple[bnnp.BNNP, torch.Tensor]:
    model = bnnp.BNNP(in_size, 2, hidden, prior=prior).set_prior_learnability(share)
    generator = torch.Generator().manual_seed(0)
    x = 3 + 2 * torch.rand(400, in_size, generator=generator)
    Spread().set(model.prior, Examples([x], [], torch.tensor([0.5, 4.0])), generator)
    return model, x


def mean_weights(model: bnnp.BNNP) -> list[torch.Tensor]:
    """Every layer's mean; with no correlation between layers the whitened weights before it do not matter."""
    zeros, means = [], []
    for layer in range(model.network.num_layers):
        means.append(model.prior.from_units(layer, model.prior.layer(layer, zeros).mean)[0, 0].detach())
        zeros.append(torch.zeros(1, 1, *model.prior.unit_shape(layer)))
    return means


def entries(model: bnnp.BNNP, name: str) -> torch.Tensor:
    """The parameters of one kind of all weights, in the order of the weights."""
    blocks = [block for block in model.prior.blocks if isinstance(block, GaussianUnits)]
    return torch.cat([getattr(block, name)().flatten() for block in blocks]).detach()


@pytest.mark.parametrize("prior", PRIORS)
def test_first_layer_bends_at_quantiles_of_the_inputs(prior):
    model, x = started(prior)
    slope, bias = mean_weights(model)[0]
    bends = -bias / slope
    levels = (torch.arange(6) + 0.5) / 6
    torch.testing.assert_close(bends, torch.quantile(x[:, 0], levels), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(slope.abs(), torch.full((6,), Spread().slope) / x.std())
    assert slope.sign().tolist() == [1, -1, 1, -1, 1, -1]


@pytest.mark.parametrize("prior", PRIORS)
def test_every_prior_starts_at_the_same_means_and_scales(prior):
    model, _ = started(prior)
    reference, _ = started("factorised")
    for mine, expected in zip(mean_weights(model), mean_weights(reference), strict=True):
        torch.testing.assert_close(mine, expected)
    torch.testing.assert_close(entries(model, "log_scale"), entries(reference, "log_scale"))
    assert float(entries(model, "log_scale")[0].exp()) == pytest.approx(FIRST_SCALE)


def test_hidden_activations_have_unit_size():
    model, x = started("unitwise", in_size=3, hidden=(20, 15, 10))
    weights = mean_weights(model)
    for layer in (1, 2):
        h = features_of_layer(model.network.program(x), weights[:layer]) @ weights[layer]
        assert float(h.std()) == pytest.approx(1, abs=1e-3)


def test_functions_have_the_scale_of_the_data():
    model, x = started("unitwise", hidden=(40, 40))
    values = model.prior.functions(500, seed=1)
    spread_of_outputs = torch.from_numpy(np.stack([f(x[:50]) for f in values])).std((0, 1))
    # 500 functions: a standard error of a standard deviation is 3 %; the scales differ by a factor of 8
    torch.testing.assert_close(spread_of_outputs.float(), torch.tensor([0.5, 4.0]), rtol=0.2, atol=0)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_fixed_entries_stay_as_they_are(prior, share):
    model, _ = started(prior, share=share)
    count = round(share * model.network.num_weights)
    mean, scale = entries(model, "mean"), entries(model, "log_scale")
    standard = entries(bnnp.BNNP(1, 2, (6, 5), prior=prior), "log_scale")
    assert not mean[count:].any()
    assert torch.equal(scale[count:], standard[count:])
    assert mean[:count].all()


def draws_of(model: bnnp.BNNP, x: torch.Tensor, count: int = 300) -> np.ndarray:
    return np.stack([f(x.numpy()) for f in model.prior.functions(count, seed=1)])


def examples(source, count: int, *more) -> Examples:
    """Tasks of one source, or of several with the same inputs as several outputs."""
    x, y = [], []
    for task in source.draw(count, torch.Generator().manual_seed(0)):
        outputs = [task.y, *(torch.from_numpy(np.asarray(other(task.x))) for other in more)]
        x.append(task.x.float())
        y.append(torch.cat(outputs, 1).float())
    return Examples(x, y, torch.cat(y).std(0))


def test_a_switch_makes_functions_of_two_levels_that_jump_as_often_as_those_of_the_tasks():
    model = bnnp.BNNP(1, 2, (40, 20), "tanh")
    random = torch.Generator().manual_seed(5)
    slower = bnnp.tasks.heaviside(length_scale=3.0)
    seen = examples(bnnp.tasks.heaviside(), 128, lambda x: 3 * slower.values(x, random))
    Switch().set(model.prior, seen, torch.Generator().manual_seed(0))
    x = torch.linspace(-5, 5, 300)[:, None]
    values = draws_of(model, x)
    near = np.abs(np.abs(values) / seen.output_scale.numpy() - 1) < 0.3
    assert near.mean() > 0.85
    assert 0.4 < (values > 0).mean() < 0.6  # both levels, about equally
    # 300 functions with a standard deviation of about 1.5 jumps: three standard errors are 0.26
    jumps = (np.diff(np.sign(values), axis=1) != 0).sum(1).mean(0)
    real = bnnp.tasks.heaviside().values, slower.values
    expected = [
        np.mean([(np.diff(np.sign(f(x.double(), random).numpy()[:, 0])) != 0).sum() for _ in range(300)]) for f in real
    ]
    assert expected[0] - expected[1] > 1.5  # so that the same number for both would not do
    np.testing.assert_allclose(jumps, expected, atol=0.7)


@pytest.mark.filterwarnings("ignore::bnnp.training.FallbackWarning")  # its one step is done in float64
@pytest.mark.parametrize("kind", [bnnp.BNNP, bnnp.AttBNNP])
def test_a_switch_starts_inference_on_its_scale(kind):
    """Pseudo-observations of the deciding units are 20 times as large, and so is their noise; others stay."""
    source = bnnp.tasks.heaviside()
    models = [kind(1, 1, (8, 8), "tanh", seed=0) for _ in range(2)]
    settings = bnnp.FitSettings(learning_rate=0.0, prior_start="switch")
    bnnp.fit(models[0], source, steps=1, settings=settings, progress=False)
    x = torch.linspace(-2, 2, 7)[None, None, :, None]
    point = torch.cat([x, x.sign()], -1)
    mask = torch.ones(1, 7, dtype=torch.bool)
    mine, plain = (model.layers[1](point, point[:, 0, :, 1:], mask) for model in models)
    torch.testing.assert_close(mine.y[:, :, 0], 20 * plain.y[:, :, 0])
    torch.testing.assert_close(mine.y[:, :, 1:], plain.y[:, :, 1:])
    ratio = mine.inverse_noise / plain.inverse_noise
    torch.testing.assert_close(ratio[:, :, 0], torch.full((1, 1, 7), 0.05), rtol=0.02, atol=0)
    torch.testing.assert_close(ratio[:, :, 1:], torch.ones_like(ratio[:, :, 1:]))


def test_fitted_functions_have_the_covariance_of_the_tasks():
    source = bnnp.tasks.gp(low=-2, high=2, points=(30, 60))
    model = bnnp.BNNP(1, 2, (30, 25), "silu")
    Fitted().set(
        model.prior, examples(source, 256, lambda x: 5 + 3 * torch.sin(2 * x)), torch.Generator().manual_seed(0)
    )
    x = torch.linspace(-1.9, 1.9, 12)[:, None]
    values = draws_of(model, x, 1000)
    wanted = source.covariance(x.double(), x.double()).numpy()
    # a covariance of 1000 draws has a standard error of at most sqrt(2/1000) = 0.045, one of 256 tasks of 0.09
    assert np.abs(np.cov(values[..., 0].T) - wanted).max() < 0.3
    assert np.abs(values[..., 0].mean(0)).max() < 0.3
    np.testing.assert_allclose(values[..., 1].mean(0), 5 + 3 * np.sin(2 * x[:, 0].numpy()), atol=0.15)
    assert values[..., 1].std(0).max() < 0.3  # the second output is the same in all tasks


def test_the_spread_start_does_not_have_the_covariance_of_the_tasks():
    """So that the test above can fail."""
    source = bnnp.tasks.gp(low=-2, high=2, points=(30, 60))
    model = bnnp.BNNP(1, 1, (30, 25), "silu")
    Spread().set(model.prior, examples(source, 256), torch.Generator().manual_seed(0))
    x = torch.linspace(-1.9, 1.9, 12)[:, None]
    wanted = source.covariance(x.double(), x.double()).numpy()
    assert np.abs(np.cov(draws_of(model, x, 1000)[..., 0].T) - wanted).max() > 0.4


def bump(x: torch.Tensor) -> torch.Tensor:
    """A shape that is not symmetric: a hill of height 1 at 0 and a valley after it."""
    return torch.exp(-8 * x.square()) - 0.5 * torch.exp(-8 * (x - 0.8).square())


@pytest.mark.parametrize(("hidden", "error", "agreement"), [((30, 40), 0.02, 0.9), ((8, 40, 40), 0.05, 0.5)])
def test_a_place_makes_one_shape_at_random_places(hidden, error, agreement):
    random = torch.Generator().manual_seed(0)
    x, y = [], []
    for _ in range(40):
        at = 3 * torch.rand(60, 1, generator=random) * 2 - 3
        moved = at - (2 * torch.rand(1, generator=random) - 1.2)
        x.append(at)
        y.append(torch.cat([bump(moved), 2 - 3 * bump(moved)], 1))
    model = bnnp.BNNP(1, 2, hidden, "tanh")
    Place().set(model.prior, Examples(x, y, torch.cat(y).std(0)), torch.Generator().manual_seed(0))
    grid = torch.linspace(-3, 3, 241)[:, None]
    first, second = np.moveaxis(draws_of(model, grid, 100), -1, 0)
    tops = grid[first.argmax(1), 0].numpy()
    assert -0.5 < tops.mean() < 0.1  # places are uniform on [-1.2, 0.8]: mean -0.2, standard deviation 0.58
    assert 0.4 < tops.std() < 0.8
    errors = [np.abs(f - bump(grid[:, 0] - float(top)).numpy()).mean() for f, top in zip(first, tops, strict=True)]
    assert np.mean(errors) < error  # the shape itself has a mean absolute value of 0.15
    lowest = grid[second.argmin(1), 0].numpy()
    assert np.mean(np.abs(tops - lowest) < 0.1) > agreement  # both outputs are at the same place


def test_places_that_are_all_the_same_and_tasks_in_which_nothing_happens():
    x = torch.linspace(-3, 3, 50)[:, None]
    seen = Examples([x] * 6, [bump(x)] * 5 + [torch.zeros_like(x)], bump(x).std(0))
    model = bnnp.BNNP(1, 1, (10, 30), "tanh")
    Place().set(model.prior, seen, torch.Generator().manual_seed(0))
    assert all(bool(torch.isfinite(value).all()) for value in model.prior.state_dict().values())
    with pytest.raises(ValueError, match="got one task, expected more"):
        Place().set(model.prior, Examples([x], [bump(x)], bump(x).std(0)), torch.Generator().manual_seed(0))


@pytest.mark.parametrize("prior", PRIORS)
def test_one_unit_is_assigned_and_no_other(prior):
    model = bnnp.BNNP(2, 3, (4,), prior=prior).double()
    before = model.prior.sample(2000, seed=0)
    mean, root = torch.arange(5.0).double(), torch.randn(5, 5, generator=torch.Generator().manual_seed(0)).double()
    covariance = root @ root.mT + torch.eye(5)
    model.prior.assign_unit(1, 1, mean, covariance)
    after = model.prior.sample(2000, seed=0)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1][..., [0, 2]], after[1][..., [0, 2]])
    wanted = covariance.diagonal().diag() if prior == "factorised" else covariance
    # 2000 draws: a standard error of a covariance is at most sqrt(2/2000) = 3 % of the product of scales
    size = covariance.diagonal().sqrt()
    found = after[1][..., 1]
    assert float(((found.mean(0) - mean) / size).abs().max()) < 5 / 2000**0.5
    assert float(((found.T.cov() - wanted) / size / size[:, None]).abs().max()) < 0.15


@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_no_start_moves_fixed_entries(name, share):
    activation = (STARTS[name].needs or Needs()).activation or "silu"
    model = bnnp.BNNP(1, 1, (6, 5), activation).set_prior_learnability(share)
    before = {key: value.clone() for key, value in model.prior.state_dict().items()}
    STARTS[name].set(model.prior, examples(bnnp.tasks.sawtooth(), 20), torch.Generator().manual_seed(0))
    count = round(share * model.network.num_weights)
    standard = entries(bnnp.BNNP(1, 1, (6, 5), activation), "log_scale")
    assert not entries(model, "mean")[count:].any()
    assert torch.equal(entries(model, "log_scale")[count:], standard[count:])
    assert before.keys() == model.prior.state_dict().keys()


def test_a_floor_makes_functions_that_rest_at_the_lowest_value():
    model = bnnp.BNNP(2, 2, (30, 20), "relu")
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(300, 2, generator=generator)
    scale, lowest = torch.tensor([1.0, 3.0]), torch.tensor([-0.4, 2.0])
    Spread().set_with(Deciding(2.0, lowest), model.prior, Examples([x], [], scale), generator)
    values = np.stack([f(x.numpy()) for f in model.prior.functions(100, seed=0)])
    above = (values - lowest.numpy()) / scale.numpy()
    assert (above < -0.1).mean() < 0.02
    assert 0.3 < (np.abs(above) < 0.1).mean() < 0.7
    assert 0.5 < above.std() < 3


def test_a_fitted_floor_is_left_where_and_as_often_as_tasks_leave_it():
    """Two outputs: one wet on the left of most tasks, with another amount in each; one that mostly rests."""
    random = np.random.default_rng(0)
    x, y = [], []
    for task in range(60):
        x.append(torch.from_numpy(random.uniform(-1, 1, (20 + task % 7, 2))).float())
        amount = random.normal(size=2) + np.array([0.5, -0.7])
        slopes = torch.tensor([-1.5, 0.0])
        latent = x[-1][:, :1] * slopes + torch.from_numpy(amount).float()
        y.append(torch.tensor([1.0, 3.0]) * latent.clamp(min=0) + torch.tensor([-0.4, 2.0]))
    scale, lowest = torch.cat(y).std(0), torch.tensor([-0.4, 2.0])
    model = bnnp.BNNP(2, 2, (30, 20), "relu")
    Floor().set(model.prior, Examples(x, y, scale), torch.Generator().manual_seed(0))
    at = torch.cat(x)
    values = torch.from_numpy(np.stack([f(at.numpy()) for f in model.prior.functions(300, seed=0)]))
    above = (values - lowest) / scale
    assert float((above < -0.05).double().mean()) < 0.01
    rests = (above < 0.05).double().mean((0, 1))
    wanted = ((torch.cat(y) - lowest) / scale < 0.05).double().mean(0)
    assert torch.allclose(rests, wanted, atol=0.1)
    assert above.std((0, 1)).tolist() == pytest.approx([1.0, 1.0], rel=0.3)
    left = at[:, 0] < 0
    assert float(above[:, left, 0].mean()) > 1.5 * float(above[:, ~left, 0].mean())


@pytest.mark.parametrize(
    ("start", "model", "message"),
    [
        ("switch", bnnp.BNNP(1, 2, (6, 5), "relu"), "got a Network with activation 'relu', expected .* 'tanh'"),
        ("floor", bnnp.BNNP(1, 2, (6, 5), "tanh"), "got a Network with activation 'tanh', expected .* 'relu'"),
        (
            "switch",
            bnnp.BNNP(1, 2, (6, 1), "tanh"),
            r"got sizes \(1, 6, 1, 2\), expected at least 1 hidden layer, t",
        ),
        ("switch", bnnp.BNNP(1, 1, (), "tanh"), "expected at least 1 hidden layer"),
        ("place", bnnp.BNNP(1, 1, (6,), "tanh"), "expected at least 2 hidden layers"),
        ("place", bnnp.BNNP(2, 1, (6, 5), "tanh"), "got 2 input columns, expected 1"),
        ("fitted", bnnp.BNAM(1, 1, bnnp.Transformer(8, 1, 2)), "got a AttentionNetwork"),
        ("switch", bnnp.BNAM(1, 1, bnnp.Transformer(8, 1, 2), activation="tanh"), "got a AttentionNetwork"),
        ("floor", bnnp.BNNP(1, 1, (6, 5), "relu", likelihood=bnnp.Bernoulli()), "expected one of real values"),
        ("flat", bnnp.BNNP(1, 1, (6, 5)), "prior_start: got 'flat', expected one of spread, fitted, switch, floor, p"),
    ],
    ids=["not tanh", "not relu", "narrow", "linear", "shallow", "inputs", "attention", "BNAM", "labels", "unknown"],
)
def test_a_start_that_does_not_suit_the_model_is_refused(start, model, message):
    tasks = bnnp.tasks.from_arrays([(np.ones((5, model.in_size)), np.ones((5, model.network.sizes[-1])))])
    with pytest.raises(ValueError, match=message):
        bnnp.fit(model, tasks, steps=1, settings=bnnp.FitSettings(prior_start=start), progress=False)
    assert model.prior.is_standard()
    assert model.columns.is_identity()
