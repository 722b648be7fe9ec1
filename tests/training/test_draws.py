"""Draws of a model's prior as tasks."""

import numpy as np
import pytest
import torch

import bnnp
from bnnp._core.random import child
from bnnp.training.draws import DrawsOfPrior

X = np.linspace(-2.0, 3.0, 6)[:, None]


def model_and_tasks(count: int = 3) -> tuple[bnnp.BNNP, bnnp.tasks.Collection]:
    random = np.random.default_rng(0)
    shifts = random.normal(size=(count, 1, 2))
    tasks = bnnp.tasks.from_arrays([(X, 50 + 8 * (np.sin(X) + shift)) for shift in shifts])
    likelihood = bnnp.Gaussian([3.0, 0.02])
    model = bnnp.BNNP(1, 2, (5,), "tanh", last_layer="likelihood", likelihood=likelihood, dtype=torch.float64, seed=0)
    bnnp.start_prior(model, tasks, "standard", seed=0)
    return model, tasks


def test_draws_have_the_moments_of_the_prior_and_its_noise_in_the_users_units():
    model, tasks = model_and_tasks()
    drawn = DrawsOfPrior(model, tasks).draw(1000, child(1))
    y = np.stack([task.y.numpy() for task in drawn])
    functions = np.stack([f(X) for f in model.prior.functions(1000, seed=2)])  # in the user's units already
    assert isinstance(model.likelihood, bnnp.Gaussian)
    noise = (model.likelihood.noise * model.columns.y_scale).detach().numpy()
    wanted = functions.var(0) + noise**2
    # standard errors of a variance are about 9 % (kurtosis below 10), of the mean 3 % of a standard deviation
    assert np.abs(y.var(0) / wanted - 1).max() < 0.5
    assert (np.abs(y.mean(0) - functions.mean(0)) / wanted**0.5).max() < 0.2
    assert all(torch.equal(task.x, tasks[0].x) for task in drawn)


def test_draws_depend_on_the_generator_alone_and_follow_the_model():
    model, tasks = model_and_tasks()
    source = DrawsOfPrior(model, tasks)
    (one,), (same,), (other,) = (source.draw(1, child(seed)) for seed in (3, 3, 4))
    assert one.y.equal(same.y)
    assert not one.y.equal(other.y)
    assert isinstance(model.likelihood, bnnp.Gaussian)
    model.likelihood.set_noise(torch.tensor([1e-3, 1e-3]))
    (calm,) = source.draw(1, child(3))
    assert not calm.y.equal(one.y)
    assert (source.in_size, source.out_size) == (1, 2)
    assert repr(source).startswith("draws of the prior at the inputs of Collection")


def test_training_goes_on_from_a_checkpoint_of_draws(tmp_path):
    found = []
    for folder in (None, tmp_path, tmp_path):
        model, tasks = model_and_tasks()
        model.set_prior_learnability(0)
        source = DrawsOfPrior(model, tasks)
        found.append(bnnp.fit(model, source, steps=4, checkpoint=folder, progress=False).history.steps[-1]["objective"])
    assert found[0] == found[1] == found[2]


def test_draws_at_other_tasks_are_another_run(tmp_path):
    model, tasks = model_and_tasks()
    bnnp.fit(model, DrawsOfPrior(model, tasks), steps=2, checkpoint=tmp_path, progress=False)
    other, more = model_and_tasks(4)
    with pytest.raises(ValueError, match="draws of the prior, at the inputs of 3 tasks"):
        bnnp.fit(other, DrawsOfPrior(other, more), steps=2, checkpoint=tmp_path, progress=False)
