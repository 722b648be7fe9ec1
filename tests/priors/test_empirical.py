"""The start that is fitted to the tasks in closed form."""

import numpy as np
import pytest
import torch

import bnnp
from bnnp.networks.perceptron import Network
from bnnp.priors import PRIORS
from bnnp.priors.starts.features import Shape, hidden_weights

NOISE = 0.1


@pytest.fixture
def few_choices(monkeypatch):
    """Let the start try few shapes of features and few freedoms, where a test is about something else."""
    monkeypatch.setattr("bnnp.priors.starts.search.SLOPES", (1.0, 4.0))
    monkeypatch.setattr("bnnp.priors.starts.search.DENSITIES", (0.0,))
    monkeypatch.setattr("bnnp.priors.starts.freedom.BRANCHES", ())


def curves(count: int, points: int = 12, seed: int = 0, outputs: int = 1) -> bnnp.tasks.Collection:
    """Sines with a common shape and sizes of their own, at unequal numbers of points."""
    random = np.random.default_rng(seed)
    pairs = []
    for task in range(count):
        x = random.uniform(0, 10, (points + task % 4, 1))
        size, level = random.normal(2, 0.5, outputs), random.normal(0, 1, outputs)
        y = 5 + size * np.sin(x) + level + NOISE * random.normal(size=(len(x), outputs))
        pairs.append((x, y))
    return bnnp.tasks.from_arrays(pairs)


def started(tasks, **options) -> bnnp.BNNP:
    choices = {"hidden": (16, 16), "activation": "silu", "last_layer": "likelihood", **options}
    model = bnnp.BNNP(tasks.in_size, tasks.out_size, **choices)
    bnnp.start_prior(model, tasks, "empirical", seed=0)
    return model


@pytest.mark.parametrize("outputs", [1, 2])
def test_it_predicts_new_tasks_without_training(outputs):
    model = started(curves(30, outputs=outputs), hidden=(24, 24))
    scores = bnnp.evaluate(model, curves(20, seed=1, outputs=outputs), seed=0)
    best = -np.log(NOISE) - 0.5 * np.log(2 * np.pi) - 0.5  # per point, if functions were known
    assert scores["marginal_lppd"] / outputs > best - 0.7
    assert 0.8 < scores["coverage_90"] < 0.98
    assert isinstance(model.likelihood, bnnp.Gaussian)
    noise = model.likelihood.noise.detach() * model.columns.y_scale
    assert noise.tolist() == pytest.approx([NOISE] * outputs, rel=0.3)


def kinetics(count: int, random: np.random.Generator) -> bnnp.tasks.Collection:
    """Concentrations after a dose, at about ten times, which are fewer than the features that fit them."""
    pairs, hours = [], np.array([0.25, 0.5, 1, 2, 3.5, 5, 7, 9, 12, 16, 24])
    for _ in range(count):
        uptake, elimination = np.exp(random.normal([0.45, -2.3], [0.4, 0.25]))
        amount = random.uniform(8, 14) * uptake / (uptake - elimination)
        time = hours + random.normal(0, 0.03, len(hours))
        clean = amount * (np.exp(-elimination * time) - np.exp(-uptake * time))
        y = clean + random.normal(0, 0.3, len(hours))
        kept = random.random(len(hours)) > 0.1
        pairs.append((time[kept], y[kept]))
    return bnnp.tasks.from_arrays(pairs)


def test_a_free_covariance_does_not_take_noise_for_structure(monkeypatch):
    monkeypatch.setattr("bnnp.priors.starts.search.SLOPES", (2.0,))
    monkeypatch.setattr("bnnp.priors.starts.search.DENSITIES", (1.0,))
    random = np.random.default_rng(0)
    model = started(kinetics(40, random), hidden=(64, 64), dtype=torch.float64)
    assert isinstance(model.likelihood, bnnp.Gaussian)
    noise = model.likelihood.noise.detach() * model.columns.y_scale
    assert noise.tolist() == pytest.approx([0.3], rel=0.3)
    scores = bnnp.evaluate(model, kinetics(20, random), num_samples=4, seed=0)
    assert 0.84 < scores["coverage_90"] < 0.98


@pytest.mark.parametrize(
    ("prior", "hidden"),
    [*((prior, (10,)) for prior in PRIORS), ("unitwise", ()), ("unitwise", (8, 8, 6))],
)
@pytest.mark.usefixtures("few_choices")
def test_every_prior_and_depth_starts_better_than_the_standard_one(prior, hidden):
    tasks, tests = curves(5, points=8), curves(6, seed=1)
    model = started(tasks, prior=prior, hidden=hidden)
    standard = bnnp.BNNP(1, 1, hidden=hidden, activation="silu", prior=prior, last_layer="likelihood")
    bnnp.start_prior(standard, tasks, "standard")
    scores = [bnnp.evaluate(one, tests, num_samples=50, seed=0)["marginal_lppd"] for one in (model, standard)]
    assert scores[0] > scores[1]


@pytest.mark.parametrize("activation", ["relu", "tanh", "softplus", "identity"])
def test_every_activation_gives_finite_predictions(activation, monkeypatch):
    monkeypatch.setattr("bnnp.priors.starts.freedom.BRANCHES", ())
    model = started(curves(3), activation=activation)
    assert np.isfinite(model.condition([[1.0], [2.0]], [[5.0], [6.0]], num_samples=4).predict([[3.0]]).std).all()


def with_columns(*columns, count: int = 6) -> bnnp.tasks.Collection:
    """The curves with more input columns, each a function of a task's number and its inputs."""
    pairs = []
    for task, one in enumerate(curves(count).tasks):
        x = one.x.numpy()
        pairs.append((np.hstack([x, *(column(task, x) for column in columns)]), one.y.numpy()))
    return bnnp.tasks.from_arrays(pairs)


@pytest.mark.parametrize(
    "columns",
    [
        [lambda task, x: 3 * x - 1],
        [lambda task, x: np.full_like(x, task)],
        [lambda task, x, k=k: np.full_like(x, (task * k) % 11) for k in range(1, 11)],
    ],
    ids=["collinear", "constant within tasks", "many"],
)
@pytest.mark.usefixtures("few_choices")
def test_the_start_copes_with_inputs_of_every_kind(columns):
    tasks = with_columns(*columns)
    model = started(tasks)
    scores = bnnp.evaluate(model, tasks, seed=0)
    assert scores["marginal_lppd"] > -1.8  # a normal density with the outputs' own variance has about -1.9


@pytest.mark.usefixtures("few_choices")
def test_an_input_that_says_nothing_of_new_tasks_is_not_learned_by_heart():
    """A number per task, by which few tasks could be told apart: predictions barely depend on it."""
    random = np.random.default_rng(5).normal(size=40)
    tasks = with_columns(lambda task, x: np.full_like(x, random[task]), count=9)
    model = started(tasks)
    context, other = tasks[0], tasks[0].x.numpy().copy()
    other[:, 1] = 2.0
    predictions = [
        model.condition(x[:4], context.y[:4], num_samples=20).predict(x[4:]).mean for x in (context.x.numpy(), other)
    ]
    assert np.abs(predictions[0] - predictions[1]).max() < 0.5 * float(
        torch.cat([task.y for task in tasks.tasks]).std()
    )


@pytest.mark.parametrize(("count", "least"), [(1, -8), (2, -4), (3, -4)])
@pytest.mark.usefixtures("few_choices")
def test_the_start_predicts_well_after_a_few_tasks(count, least):
    scores = bnnp.evaluate(started(curves(count)), curves(10, seed=1), seed=0)
    assert scores["marginal_lppd"] > least


@pytest.mark.parametrize(("likelihood", "outputs"), [(bnnp.Bernoulli(), 1), (bnnp.Categorical(3), 3)])
@pytest.mark.usefixtures("few_choices")
def test_labels(likelihood, outputs):
    random = np.random.default_rng(0)
    pairs = []
    for _ in range(12):
        x = random.uniform(-3, 3, (30, 1))
        pairs.append((x, (x + random.normal() > 0).astype(float) * (outputs - 1 or 1)))
    tasks = bnnp.tasks.from_arrays(pairs)
    model = bnnp.BNNP(1, outputs, hidden=(16, 16), likelihood=likelihood)
    bnnp.start_prior(model, tasks, "empirical")
    x = np.linspace(-3, 3, 200)[:, None]
    draws = np.stack([f(x) for f in model.prior.functions(200, seed=0)])
    low, high = (draws[:, part, -1].mean() for part in (x[:, 0] < -2, x[:, 0] > 2))
    assert high > low + 0.2


def test_a_fixed_noise_is_not_changed():
    model = started(curves(3), likelihood=bnnp.Gaussian(0.2, learnable=False))
    assert isinstance(model.likelihood, bnnp.Gaussian)
    assert model.likelihood.noise.tolist() == pytest.approx([0.2])


def test_the_same_seed_gives_the_same_start_and_a_file_keeps_it(tmp_path):
    tasks = curves(3)
    one, other = started(tasks), started(tasks)
    again = bnnp.load(one.save(tmp_path / "model.bnnp"))
    for a, b, c in zip(*(model.prior.sample(5, seed=0) for model in (one, other, again)), strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


def test_a_basis_can_be_dropped_and_the_prior_stays():
    model = started(curves(3), dtype=torch.float64)
    before = [model.prior.layer(layer, []) for layer in range(3)]
    model.set_prior_learnability(0)
    for layer, was in enumerate(before):
        now = model.prior.layer(layer, [])
        torch.testing.assert_close(now.mean, was.mean, atol=1e-8, rtol=1e-8)
        torch.testing.assert_close(now.factor @ now.factor.mT, was.factor @ was.factor.mT, atol=1e-8, rtol=1e-8)


def test_units_bend_at_quantiles_and_are_steeper_where_inputs_are_dense():
    x = torch.cat([torch.linspace(-1, -0.8, 300), torch.linspace(-0.8, 3, 100)]).double()[:, None]
    even, dense = (hidden_weights(Network((1, 8, 1)), x, Shape(2.0, density, (1.0,)), 0)[0] for density in (0.0, 1.0))
    levels = (torch.arange(8).double() + 0.5) / 8
    torch.testing.assert_close(-even[1] / even[0], torch.quantile(x[:, 0], levels))
    torch.testing.assert_close(even[0].abs(), torch.full((8,), 2.0).double())
    assert float(dense[0].abs()[0]) > 3 * float(dense[0].abs()[-1])


def test_an_input_of_no_relevance_does_not_move_the_features():
    x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0)).double()
    weights = hidden_weights(Network((2, 20, 10, 1)), x, Shape(2.0, 0.0, (1.0, 0.0)), 0)
    other = x.clone()
    other[:, 1] = 7.0
    one, two = (torch.relu(torch.nn.functional.pad(v, (0, 1), value=1.0) @ weights[0]) for v in (x, other))
    torch.testing.assert_close(one @ weights[1][:-1], two @ weights[1][:-1])


def test_a_constant_input_is_ignored():
    x, y = (torch.cat([getattr(task, name) for task in curves(8).tasks]) for name in ("x", "y"))
    examples = bnnp.starts.Examples([torch.cat([x, torch.ones_like(x)], 1)], [y], y.std(0))
    model = bnnp.BNNP(2, 1, hidden=(16, 16), activation="silu", dtype=torch.float64)
    noise = bnnp.starts.Empirical().set(model.prior, examples, torch.Generator().manual_seed(0))
    assert noise is not None
    assert float(noise.noise) < float(y.std())


def test_a_noise_that_grows_along_the_input_is_found_in_the_units_of_the_model():
    """Thirty tasks of 8 points: the noise at the ends is known to about 15 %, its ratio over the range is 20."""
    rng = np.random.default_rng(0)
    x = rng.uniform(100, 104, (30, 8, 1))
    y = rng.normal(size=(30, 1, 1)) + np.sin(x) + 0.1 * np.exp(0.75 * (x - 102)) * rng.normal(size=x.shape)
    model = bnnp.BNNP(1, 1, hidden=(8,), activation="silu", last_layer="likelihood", dtype=torch.float64)
    bnnp.start_prior(model, bnnp.tasks.from_arrays(list(zip(x, 7 * y, strict=True))), "empirical")
    at = model.columns.standardise_x(torch.tensor([[100.2], [102.0], [103.8]]).double())
    found = (model.noise_at(at) * model.columns.y_scale)[:, 0].detach()
    np.testing.assert_allclose(found, 0.7 * np.exp(0.75 * np.array([-1.8, 0.0, 1.8])), rtol=0.4)


@pytest.mark.usefixtures("few_choices")
def test_inference_networks_that_have_learned_nothing_say_next_to_nothing():
    """Two models whose inference networks are different random ones agree, however many points are known."""
    random = torch.Generator().manual_seed(0)  # much noise: the start then leaves hidden weights uncertain
    noisy = [(task.x, task.y + 2 * torch.randn(task.y.shape, generator=random)) for task in curves(8).tasks]
    (x, y), *_ = [(task.x, task.y) for task in curves(1, points=400).tasks]
    found = [
        started(bnnp.tasks.from_arrays(noisy), seed=seed).condition(x, y, num_samples=50, seed=0).predict(x[:40])
        for seed in (1, 2)
    ]
    assert np.abs(found[0].mean - found[1].mean).max() < 0.1 * found[0].function_std.min()
