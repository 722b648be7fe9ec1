"""Choices of a training run, and how bad ones are refused."""

import dataclasses
import inspect

import numpy as np
import pytest
import torch

import bnnp
from support.training import Stop, fit, model, started


def test_the_learning_rate_falls_on_a_line():
    rates = fit(steps=5, record_every=1, learning_rate=(5e-3, 1e-3)).history.to_frame()["learning_rate"]
    np.testing.assert_allclose(rates, [5e-3, 4e-3, 3e-3, 2e-3, 1e-3])
    assert fit(steps=1, learning_rate=(5e-3, 1e-3)).history.steps[0]["learning_rate"] == 5e-3


def test_the_prior_learns_faster_by_its_own_rate():
    def step_of_prior(multiplier: float) -> torch.Tensor:
        start = started(model(), "spread")
        before = torch.cat([p.detach().flatten().clone() for p in start.prior.parameters()])
        fit(start, steps=1, optimiser=torch.optim.SGD, learning_rate=1e-3, prior_lr_multiplier=multiplier)
        return torch.cat([p.detach().flatten() for p in start.prior.parameters()]) - before

    torch.testing.assert_close(step_of_prior(3.0), 3 * step_of_prior(1.0), rtol=1e-3, atol=1e-6)


def test_clip_norm_bounds_the_step():
    start = started(model(), "spread")
    before = torch.cat([p.detach().flatten().clone() for p in start.parameters()])
    fit(start, steps=1, optimiser=torch.optim.SGD, learning_rate=(1.0, 1.0), clip_norm=0.01)
    after = torch.cat([p.detach().flatten() for p in start.parameters()])
    assert (after - before).norm().item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps: got 0, expected a positive whole number"),
        ({"steps": 2.5}, "steps: got 2.5"),
        ({"batch_size": -1}, "batch_size: got -1"),
        ({"record_every": 0}, "record_every: got 0"),
        (
            {"evaluation": Stop(), "evaluate_every": 0},
            "every: got 0, expected a positive whole number of steps, as in E",
        ),
        ({"evaluation": 5}, "function: got 5, expected a function of the model"),
        ({"checkpoint": "run", "checkpoint_every": 0}, "every: got 0, expected .*, as in Checkpointing"),
        ({"checkpoint": 5}, "checkpoint: got 5, expected the name of a file or folder"),
        ({"chunk_size": 0}, "chunk_size: got 0, expected a positive number of points, as in 512, or None"),
        ({"optimiser": "adam"}, "optimiser: got 'adam', expected a function of the parameters, as torch.optim.Adam"),
        ({"learning_rate": (1e-3,)}, r"learning_rate: got \(0.001,\), expected a number, as in 1e-3, or its first and"),
        ({"learning_rate": "fast"}, "learning_rate: got 'fast', expected a number"),
        ({"prior_lr_multiplier": 0}, r"prior_lr_multiplier: got 0, expected a positive .*set_prior_learnability\(0\)"),
        ({"prior_lr_multiplier": -1.0}, "prior_lr_multiplier: got -1.0"),
        ({"learning_rate": (1e-3, float("nan"))}, "learning_rate"),
        ({"learning_rate": (-1e-3, 0.0)}, "learning_rate"),
        ({"clip_norm": 0.0}, "clip_norm: got 0.0"),
        ({"context_share": 2.0}, "context_share"),
        ({"context_share": "half"}, "context_share: got 'half', expected a number or a range"),
        (
            {"prior_start": "random"},
            "prior_start: got 'random', expected one of empirical, spread, standard, or an object",
        ),
        ({"prior_start": bnnp.starts.Spread}, "prior_start: got <class .*, expected one of empirical"),
        ({"seed": "one"}, "seed: got 'one', expected an int or a torch.Generator"),
        ({"tasks": [1, 2]}, r"tasks: got list, expected a task source; make one with bnnp.tasks.from_arrays"),
        (
            {"start": model(likelihood=bnnp.Bernoulli()), "tasks": bnnp.tasks.from_arrays([([1, 2], [3, 4])])},
            r"\[0, 1\]",
        ),
        ({"start": bnnp.BNNP(2, 1, hidden=(3,))}, "tasks: got 1 input and 1 output columns, expected 2 and 1"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, message):
    with pytest.raises(ValueError, match=message):
        fit(**arguments)


def test_one_learning_rate_is_that_of_all_steps():
    assert fit(steps=3, record_every=1, learning_rate=2e-3).history.to_frame()["learning_rate"].tolist() == [2e-3] * 3


def test_a_run_takes_a_record_of_settings_and_nothing_else():
    with pytest.raises(ValueError, match=r"settings: got \{.*\}, expected a record, as bnnp.FitSettings\("):
        fit(settings={"learning_rate": 1e-3})  # pyright: ignore
    with pytest.raises(ValueError, match=r"evaluation: got .*, expected a record, as bnnp.Evaluation\("):
        bnnp.FitSettings(evaluation=Stop())  # pyright: ignore


def test_fit_and_its_settings_have_at_most_eight_choices():
    choices = [p for p in inspect.signature(bnnp.fit).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert len(choices) == len(dataclasses.fields(bnnp.FitSettings)) == 8


def test_settings_cannot_be_changed_behind_the_back_of_a_run():
    with pytest.raises(dataclasses.FrozenInstanceError):
        bnnp.FitSettings().clip_norm = 1.0  # pyright: ignore
