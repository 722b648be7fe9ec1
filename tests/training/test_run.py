"""A run that is stopped by hand, or diverges, leaves a good model."""

import signal
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

import bnnp
from bnnp._core.tensor_files import read_tensors
from bnnp.objectives import PPAVI, Terms
from bnnp.tasks import SplitBatch
from bnnp.training.checkpoint import FILE_NAME
from support.training import RUN, Stop, fit, model, records, same, state


def test_ctrl_c_keeps_the_last_state_without_a_checkpoint_too():
    result = fit(evaluation=Stop(KeyboardInterrupt, 2), **RUN)
    assert result.interrupted
    assert [record["step"] for record in result.history.steps] == [4]
    assert [record["step"] for record in result.history.evaluations] == [3]
    assert not same(state(result.model), state(model()))


class InterruptedAdam(torch.optim.Adam):
    """Ctrl-C arrives while the fourth step changes the parameters."""

    steps_taken = 0

    def step(self, closure=None):
        self.steps_taken += 1
        if self.steps_taken == 4:
            signal.raise_signal(signal.SIGINT)
        return super().step(closure)


@pytest.fixture
def ctrl_c_interrupts():
    """As in a terminal: tests that run in the background may have been started with Ctrl-C switched off."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_in_the_middle_of_a_step_waits_for_its_end(ctrl_c_interrupts):
    handler = signal.getsignal(signal.SIGINT)
    result = fit(optimiser=InterruptedAdam, record_every=1)
    assert result.interrupted
    assert signal.getsignal(signal.SIGINT) is handler
    reference = fit(optimiser=torch.optim.Adam, record_every=1)
    assert records(result.history)["steps"] == records(reference.history)["steps"][:4]
    after_four = fit(optimiser=torch.optim.Adam, evaluation=Stop(KeyboardInterrupt, 1), evaluate_every=4)
    assert same(state(result.model), state(after_four.model))


@dataclass(frozen=True)
class Broken(PPAVI):
    """PP-AVI that goes wrong for one task of the batch at one step."""

    num_samples: int = 2
    step: int = field(default=3, repr=False)
    task: int = 1
    gradient_only: bool = field(default=False, repr=False)
    calls: list[int] = field(default_factory=list, repr=False)

    def __call__(self, model: Any, batch: SplitBatch, generator: torch.Generator) -> Terms:
        terms = super().__call__(model, batch, generator)
        self.calls.append(1)
        if len(self.calls) < self.step:
            return terms
        zero = (model.likelihood.raw - model.likelihood.raw.detach()).sum()
        bad = 1e30 * (1e30 * zero) if self.gradient_only else torch.tensor(torch.nan)
        values = [bad if task == self.task else torch.tensor(0.0) for task in range(len(batch))]
        return Terms({**terms.by_name, "bad": torch.stack(values)})


@pytest.mark.parametrize("gradient_only", [False, True])
def test_a_value_that_is_not_finite_stops_training_and_names_step_and_task(gradient_only, tmp_path):
    good = fit(steps=2, learning_rate=(1e-3, 1e-3)).model
    start = model()
    options = {"learning_rate": (1e-3, 1e-3), "checkpoint": tmp_path, "checkpoint_every": 2}
    with pytest.raises(bnnp.TrainingDiverged, match=r"step 3, task 1 of the batch: the .* not finite") as caught:
        fit(start, objective=Broken(gradient_only=gradient_only), **options)
    assert (caught.value.step, caught.value.task) == (3, 1)
    assert same(state(start), state(good))
    # the checkpoint holds the same state, and a run that is well from there on ends well
    resumed = fit(objective=Broken(step=100), **options)
    assert same(state(resumed.model), state(fit(learning_rate=(1e-3, 1e-3)).model))


def test_a_gradient_that_is_not_finite_for_all_tasks_names_none():
    class Everywhere(PPAVI):
        def __call__(self, model: Any, batch: SplitBatch, generator: torch.Generator) -> Terms:
            zero = (model.likelihood.raw - model.likelihood.raw.detach()).square().sum()
            return Terms({"bad": zero.sqrt().expand(len(batch))})

    with pytest.raises(bnnp.TrainingDiverged, match="step 1: the gradient is not finite") as caught:
        fit(objective=Everywhere())
    assert caught.value.task is None


def test_divergence_before_any_checkpoint_gives_back_the_model_as_it_was():
    start = fit(steps=1).model
    before = state(start)
    with pytest.raises(bnnp.TrainingDiverged):
        fit(start, objective=Broken())
    assert same(state(start), before)


def test_a_partly_fixed_prior_comes_back_from_divergence():
    start = model().set_prior_learnability(0.4)
    with pytest.raises(bnnp.TrainingDiverged, match="step 3, task 1"):
        fit(start, objective=Broken())


def test_parameters_that_are_not_finite_never_reach_the_checkpoint(tmp_path):
    options = {"optimiser": torch.optim.SGD, "checkpoint": tmp_path, "checkpoint_every": 1}
    start = model()
    with pytest.raises(bnnp.TrainingDiverged, match=r"step 2: .* is not finite"):
        fit(start, learning_rate=(1e-6, 1e38), **options)
    tensors, header = read_tensors(tmp_path / FILE_NAME, "checkpoint")
    assert header["step"] == 1
    assert same(state(start), {name.removeprefix("model/"): tensor for name, tensor in tensors.items()})


def test_a_last_step_that_breaks_the_model_is_an_error():
    start = model()
    with pytest.raises(bnnp.TrainingDiverged, match=r"step 1: .* is not finite") as caught:
        fit(start, steps=1, optimiser=torch.optim.SGD, learning_rate=(1e38, 1e38))
    assert caught.value.task is None
    assert all(bool(torch.isfinite(tensor).all()) for tensor in start.state_dict().values())


def test_a_factorisation_that_fails_is_a_divergence_too():
    class Failing(PPAVI):
        def __call__(self, model: Any, batch: SplitBatch, generator: torch.Generator) -> Terms:
            raise bnnp.FactorisationError("no factor", 1)

    with pytest.raises(bnnp.TrainingDiverged, match="step 1, task 1 of the batch: no factor"):
        fit(objective=Failing())
