"""Meta-training: it is reproducible and changes no global state."""

import random
from typing import Any

import numpy as np
import pytest
import torch

import bnnp
from bnnp.objectives import PPAVI, Terms
from bnnp.tasks import SplitBatch
from bnnp.tasks.task import TaskBatch
from support.training import fit, model, records, same, small_sawtooth, state


def test_training_improves_the_objective():
    result = fit(model(hidden=(8,)), steps=80, batch_size=4, record_every=20)
    objective = result.history.to_frame()["objective"].to_numpy()
    assert objective[-1] > objective[0] + 50
    assert not result.interrupted


def test_the_same_seed_gives_the_same_numbers_and_another_does_not():
    first, again, other = fit(seed=1), fit(seed=1), fit(seed=2)
    assert same(state(first.model), state(again.model))
    assert records(first.history) == records(again.history)
    assert not same(state(first.model), state(other.model))


def test_a_generator_is_a_seed():
    first, again = (fit(seed=torch.Generator().manual_seed(5)) for _ in range(2))
    assert same(state(first.model), state(again.model))


def test_the_model_is_trained_in_place():
    start = model()
    assert fit(start).model is start


def test_global_state_is_left_alone():
    def draw() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(()))]  # noqa: NPY002

    def seed() -> None:
        random.seed(11)
        np.random.seed(11)  # noqa: NPY002
        torch.manual_seed(11)

    seed()
    expected = draw()
    seed()
    before = (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled())
    trained = fit(model(dtype=torch.float64)).model
    trained.condition([[0.0]], [[1.0]], num_samples=2).predict([[0.5]]).observations()
    trained.prior.sample(2)
    bnnp.evaluate(trained, small_sawtooth(), num_samples=2, num_tasks=2)
    assert draw() == expected
    assert (torch.get_default_dtype(), torch.get_num_threads(), torch.is_grad_enabled()) == before


def test_the_progress_bar_keeps_standard_output_clean(capsys):
    fit(progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "training" in shown.err
    fit(progress=False)
    assert capsys.readouterr() == ("", "")


def test_the_objective_sees_data_in_the_units_of_the_model():
    seen: list[TaskBatch] = []

    class Spy(PPAVI):
        def __call__(self, model: Any, batch: SplitBatch, generator: torch.Generator) -> Terms:
            seen.append(batch.target)
            return super().__call__(model, batch, generator)

    tasks = bnnp.tasks.from_arrays([(np.arange(20.0) + 500, 1000 + 50 * np.sin(np.arange(20.0)))])
    fit(tasks=tasks, objective=Spy(2), context_share=bnnp.tasks.ContextCount(0, 0))
    x = seen[0].x[seen[0].mask]
    assert abs(x.mean()) < 1e-3
    assert x.std().item() == pytest.approx(1, rel=0.03)
