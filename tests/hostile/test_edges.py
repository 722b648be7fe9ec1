"""Extreme data: empty contexts, padding far from the data, repeated points at tiny noise, collinear inputs, chunks."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

import bnnp
from bnnp.evaluation import tempering
from bnnp.tasks.task import Split, SplitBatch, Task, TaskBatch

X = np.linspace(-1, 1, 9)[:, None]
Y = np.sin(3 * X)
KINDS = {
    "bnnp": lambda **options: bnnp.BNNP(1, 1, (8, 8), seed=0, **options),
    "networkwise": lambda **options: bnnp.BNNP(1, 1, (4,), prior="networkwise", seed=0, **options),
    "attentive": lambda **options: bnnp.AttBNNP(1, 1, (8,), seed=0, **options),
    "machine": lambda **options: bnnp.BNAM(1, 1, seed=0, **options),
    "cnp": lambda **options: bnnp.neural_processes.CNP(1, 1, (8,), seed=0, **options),
    "tnp": lambda **options: bnnp.neural_processes.TNP(1, 1, (8,), seed=0, **options),
}

# --- empty contexts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", [bnnp.Gaussian(0.1, learnable=False), bnnp.Bernoulli()])
@pytest.mark.parametrize("context", [bnnp.tasks.ContextCount(0, 0), bnnp.tasks.ContextCount(0, 1)])
def test_a_fixed_prior_trains_on_batches_of_empty_contexts(context, likelihood):
    """Nothing that is learned has a part in such a batch. Those with points train the inference networks."""
    tasks = bnnp.tasks.from_arrays([(X, 1.0 * (Y > 0)), (X + 1, 1.0 * (Y < 0))])
    model = bnnp.BNNP(1, 1, (4,), likelihood=likelihood).set_prior_learnability(0)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items() if name.startswith("layers")}
    found = bnnp.fit(model, tasks, steps=8, batch_size=1, context_share=context, progress=False, seed=1)
    assert math.isfinite(found.history.steps[-1]["objective"])
    moved = any(not torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())
    assert moved == (context.high > 0)


# --- padding ---------------------------------------------------------------------------------------------------------


def test_padding_is_a_point_of_the_data():
    few, many, none = (Task.of(1.7e9 + np.arange(n), np.arange(n)) for n in (1, 3, 0))
    batch = TaskBatch.of([few, many, none])
    assert batch.x[..., 0].tolist() == [[1.7e9] * 3, [1.7e9, 1.7e9 + 1, 1.7e9 + 2], [1.7e9] * 3]
    assert batch.mask.sum(1).tolist() == [1, 3, 0]
    assert TaskBatch.of([none, none]).x.shape == (2, 0, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_has_no_effect_where_zero_is_far_from_the_data(kind):
    """Times in seconds that vary by a thousandth of one: zero is 10^12 standard deviations away."""
    random = np.random.default_rng(0)
    x = [1.7e9 + 1e-3 * random.normal(size=(n, 1)) for n in (3, 9)]
    model = KINDS[kind](dtype=torch.float64)
    bnnp.start_prior(model, bnnp.tasks.from_arrays([(one, np.sin(1e3 * (one - 1.7e9))) for one in x]), "standard")
    splits = [Split(Task.of(one[:2], one[:2] - 1.7e9), Task.of(one[2:], one[2:] - 1.7e9)) for one in x]
    objective = bnnp.objectives.NPML(4, integrate=False) if "np" in kind else bnnp.objectives.NPML(4)

    def values(some: list[Split]) -> torch.Tensor:
        batch = SplitBatch.of(some)
        prepared = SplitBatch(model.prepare(batch.context), model.prepare(batch.target))
        return objective(model, prepared, torch.Generator().manual_seed(0)).total()

    together = values([splits[0], splits[1]])
    assert bool(torch.isfinite(together).all())
    torch.testing.assert_close(together[0], values([splits[0], splits[0]])[0], rtol=1e-6, atol=1e-6)


# --- repeated points at tiny noise -----------------------------------------------------------------------------------


def exact_mean(x: np.ndarray, y: np.ndarray, noise: float, x_new: np.ndarray) -> np.ndarray:
    """The posterior mean of a linear model under its standard prior, in rational numbers."""
    size = x.shape[1] + 1

    def rows(values: np.ndarray) -> list[list[Fraction]]:
        return [[*map(Fraction, row), Fraction(1)] for row in values.tolist()]

    phi, new = rows(x), rows(x_new)
    variance, square = Fraction(1 / size), Fraction(noise) ** 2
    kernel = [[variance * sum(a * b for a, b in zip(p, q, strict=True)) for q in phi] for p in phi]
    matrix = [
        [value + (square if i == j else 0) for j, value in enumerate(row)] + [Fraction(float(y[i, 0]))]
        for i, row in enumerate(kernel)
    ]
    for i in range(len(phi)):  # Gauss and Jordan; the matrix is positive definite
        matrix[i] = [value / matrix[i][i] for value in matrix[i]]
        for j in range(len(phi)):
            if j != i:
                factor = matrix[j][i]
                matrix[j] = [a - factor * b for a, b in zip(matrix[j], matrix[i], strict=True)]
    dual = [row[-1] for row in matrix]
    found = []
    for row in new:
        k = [variance * sum(a * b for a, b in zip(row, p, strict=True)) for p in phi]
        found.append(float(sum(a * b for a, b in zip(k, dual, strict=True))))
    return np.array(found)


@pytest.mark.parametrize("noise", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-8])
@pytest.mark.parametrize(("inputs", "points", "different"), [(1, 6, 3), (5, 4, 2), (5, 4, 4), (12, 8, 4), (12, 30, 15)])
def test_repeated_points_at_tiny_noise_are_right_or_an_error_with_a_cure(inputs, points, different, noise):
    random = np.random.default_rng(points)
    x, y = random.normal(size=(points, inputs)), random.normal(size=(points, 1))
    x[different:], y[different:] = x[: points - different], y[: points - different]
    x_new = np.concatenate([x[:2], random.normal(size=(2, inputs))])
    likelihood = bnnp.Gaussian(noise)
    model = bnnp.BNNP(inputs, 1, (), likelihood=likelihood, last_layer="likelihood", dtype=torch.float64)
    try:
        predictive = model.condition(x, y, num_samples=8).predict(x_new)
    except bnnp.FactorisationError as error:
        assert noise <= 1e-4, error  # noqa: PT017
        assert "use a larger noise" in str(error)  # noqa: PT017
        return
    off = np.abs(predictive.mean[:, 0] - exact_mean(x, y, likelihood.noise.item(), x_new))
    assert (off / predictive.std[:, 0]).max() < 0.01


def test_collinear_inputs_are_predicted_as_one_input_is():
    """Three copies of an input are one input with a prior three times as wide."""
    x = np.linspace(-1, 1, 7)[:, None]
    several = bnnp.BNNP(3, 1, (), likelihood=bnnp.Gaussian(1e-3), last_layer="likelihood", dtype=torch.float64)
    found = several.condition(np.hstack([x, x, x]), Y[:7], num_samples=8).predict(np.hstack([X, X, X])).mean
    expected = exact_mean(np.hstack([x, x, x]), Y[:7], 1e-3, np.hstack([X, X, X]))
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-6)


# --- chunks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.3, 1e-2, 1e-4])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("prior", ["unitwise", "factorised", "layerwise", "networkwise"])
def test_chunks_give_what_the_whole_gives(prior, scale, noise):
    model = bnnp.BNNP(1, 1, (4, 4), prior=prior, likelihood=bnnp.Gaussian(noise), dtype=torch.float64, seed=1)
    tasks = bnnp.tasks.from_arrays([(scale * X, scale * Y), (scale * X, -scale * Y)])
    bnnp.start_prior(model, tasks)
    x, y = scale * np.repeat(X, 2, axis=0), scale * np.repeat(Y, 2, axis=0)
    whole = model.condition(x, y, num_samples=6, seed=3).predict(scale * X)
    cut = model.condition(x, y, num_samples=6, seed=3, chunk_size=5).predict(scale * X)
    np.testing.assert_allclose(cut.mean, whole.mean, rtol=1e-4, atol=1e-5 * scale)
    np.testing.assert_allclose(cut.std, whole.std, rtol=1e-3)


# --- the evidence ----------------------------------------------------------------------------------------------------


def test_the_effective_number_of_particles_is_counted():
    assert tempering.effective_of(torch.tensor([50.0, 50.0]), torch.tensor([3.0, 3.0])) == pytest.approx(100)
    one_found_it = tempering.effective_of(torch.tensor([50.0, 80.0]), torch.tensor([0.0, 100.0]))
    assert one_found_it == pytest.approx(80)
