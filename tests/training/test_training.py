"""Meta-training: reproducible, resumable to the last bit, and safe when it is stopped or goes wrong."""

import json
import random
import signal
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import bnnp
from bnnp._core.files import read_tensors
from bnnp.models import AmortisedModel
from bnnp.objectives import PPAVI, Terms
from bnnp.tasks import SplitBatch
from bnnp.tasks.task import TaskBatch
from bnnp.training.checkpoint import FILE_NAME
from bnnp.training.optimiser import AveragedAdam, averaged, set_gradients
from support.training import Stop, fit, model, records, same, small_sawtooth, state

# --- history ---------------------------------------------------------------------------------------------------------


def test_the_history_holds_a_record_every_few_steps_and_at_the_end():
    history = fit(steps=7, record_every=3).history
    frame = history.to_frame()
    assert frame["step"].tolist() == [3, 6, 7]
    assert {"seconds", "learning_rate", "objective", "predictive", "likelihood", "kl"} == set(frame.columns) - {"step"}
    np.testing.assert_allclose(frame["objective"], frame["predictive"] + frame["likelihood"] + frame["kl"], rtol=1e-5)
    assert frame["seconds"].is_monotonic_increasing


def test_records_are_means_since_the_one_before():
    coarse, fine = (fit(record_every=every).history.to_frame()["objective"].to_numpy() for every in (3, 1))
    np.testing.assert_allclose(coarse, [fine[:3].mean(), fine[3:6].mean(), fine[6]])


def test_the_learning_rate_falls_on_a_line():
    rates = fit(steps=5, record_every=1, learning_rate=(5e-3, 1e-3)).history.to_frame()["learning_rate"]
    np.testing.assert_allclose(rates, [5e-3, 4e-3, 3e-3, 2e-3, 1e-3])
    assert fit(steps=1, learning_rate=(5e-3, 1e-3)).history.steps[0]["learning_rate"] == 5e-3


def test_evaluations_are_plain_numbers_every_few_steps_and_at_the_end(tmp_path):
    scores = [{"mae": np.float32(0.5)}, {"mae": torch.tensor(0.25)}, {"mae": 1}]
    history = fit(steps=5, evaluate_every=2, evaluation=lambda _: scores.pop(0), checkpoint=tmp_path).history
    assert [(record["step"], record["mae"]) for record in history.evaluations] == [(2, 0.5), (4, 0.25), (5, 1.0)]
    assert all(type(record["mae"]) is float for record in history.evaluations)


def test_a_history_is_written_as_json(tmp_path):
    history = fit(record_every=2).history
    assert json.loads(history.save(tmp_path / "h.json").read_text()) == history.to_dict()


def test_training_improves_the_objective():
    result = fit(model(hidden=(8,)), steps=80, batch_size=4, record_every=20)
    objective = result.history.to_frame()["objective"].to_numpy()
    assert objective[-1] > objective[0] + 50
    assert not result.interrupted


# --- seeds -----------------------------------------------------------------------------------------------------------


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


RUN: dict[str, Any] = {"steps": 9, "record_every": 4, "evaluate_every": 3, "checkpoint_every": 2}


@pytest.mark.parametrize("optimiser", [torch.optim.Adam, torch.optim.SGD, partial(torch.optim.SGD, momentum=0.9)])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_stopped_run_goes_on_as_if_it_had_never_stopped(error, call, optimiser, tmp_path):
    whole = fit(optimiser=optimiser, evaluation=Stop(), **RUN)
    stopped = partial(fit, optimiser=optimiser, evaluation=Stop(error, call), checkpoint=tmp_path, **RUN)
    if error is KeyboardInterrupt:
        assert stopped().interrupted
    else:
        with pytest.raises(RuntimeError):
            stopped()
    resumed = fit(optimiser=optimiser, evaluation=Stop(), checkpoint=tmp_path, **RUN)
    assert not resumed.interrupted
    assert same(state(resumed.model), state(whole.model))
    assert records(resumed.history) == records(whole.history)


@pytest.mark.parametrize(
    "options", [{"prior": "networkwise", "dtype": torch.float64}, {"likelihood": bnnp.Gaussian(0.1, max_noise=0.5)}]
)
def test_a_collection_in_odd_units_goes_on_alike(options, tmp_path):
    tasks = bnnp.tasks.from_arrays([(np.arange(9.0) + i, 1000 + 50 * np.sin(np.arange(9.0))) for i in range(4)])
    whole = fit(model(**options), tasks=tasks, evaluation=Stop(), **RUN)
    fit(model(**options), tasks=tasks, evaluation=Stop(KeyboardInterrupt, 2), checkpoint=tmp_path, **RUN)
    resumed = fit(model(**options), tasks=tasks, evaluation=Stop(), checkpoint=tmp_path, **RUN)
    assert same(state(resumed.model), state(whole.model))
    assert records(resumed.history) == records(whole.history)


def test_a_partly_fixed_prior_goes_on_alike(tmp_path):
    whole = fit(model().set_prior_learnability(0.4), evaluation=Stop(), **RUN)
    start = model().set_prior_learnability(0.4)
    fit(start, evaluation=Stop(KeyboardInterrupt, 2), checkpoint=tmp_path, **RUN)
    resumed = fit(model().set_prior_learnability(0.4), evaluation=Stop(), checkpoint=tmp_path, **RUN)
    assert same(state(resumed.model), state(whole.model))


def test_the_interrupted_model_itself_may_go_on(tmp_path):
    start = model()
    fit(start, evaluation=Stop(KeyboardInterrupt, 1), checkpoint=tmp_path, **RUN)
    resumed = fit(start, evaluation=Stop(), checkpoint=tmp_path, **RUN)
    assert same(state(resumed.model), state(fit(evaluation=Stop(), **RUN).model))


def test_a_finished_run_is_given_back_as_it_was(tmp_path):
    finished = fit(checkpoint=tmp_path)
    content = (tmp_path / FILE_NAME).read_bytes()
    again = fit(checkpoint=tmp_path)
    assert same(state(again.model), state(finished.model))
    assert again.history == finished.history
    assert (tmp_path / FILE_NAME).read_bytes() == content


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


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"steps": 8}, "steps=7"),
        ({"batch_size": 3}, "batch_size=2"),
        ({"seed": 1}, "seed=0"),
        ({"context_share": 0.3}, "context="),
        ({"context_count": 3}, "context="),
        ({"learning_rate": (1e-3, 1e-4)}, "learning_rate="),
        ({"objective": bnnp.objectives.AVI(num_samples=2)}, r"objective='PPAVI\(num_samples=2"),
        ({"optimiser": torch.optim.SGD}, 'optimiser="AveragedAdam'),
        ({"optimiser": partial(AveragedAdam, decay=0.9)}, "optimiser="),
        ({"optimiser": torch.optim.Adam}, 'optimiser="AveragedAdam'),
        ({"prior_rate": 2.0}, "prior_rate=1.0"),
        ({"clip_norm": 1.0}, "clip_norm=200.0"),
        ({"prior_start": "standard"}, "prior_start='spread'"),
        ({"tasks": bnnp.tasks.sawtooth(points=(5, 9))}, "tasks='Sawtooth"),
        ({"start": model(hidden=(4,))}, "model="),
        ({"start": model(activation="tanh")}, "model="),
        ({"start": model(dtype=torch.float64)}, "model="),
        ({"start": model().set_prior_learnability(0.5)}, "model="),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(change, named, tmp_path):
    fit(checkpoint=tmp_path)
    before = (tmp_path / FILE_NAME).read_bytes()
    with pytest.raises(ValueError, match=f"checkpoint: .* is of a run with .*{named}.*but got .*another folder"):
        fit(checkpoint=tmp_path, **change)
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_checkpoint_of_other_data_is_refused(tmp_path):
    first, second = (bnnp.tasks.from_arrays([(np.arange(5.0), np.arange(5.0) + i**2)]) for i in (0, 1))
    fit(checkpoint=tmp_path, tasks=first)
    with pytest.raises(ValueError, match="is of a run with tasks="):
        fit(checkpoint=tmp_path, tasks=second)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    fit(checkpoint=tmp_path)
    content = (tmp_path / FILE_NAME).read_bytes()
    (tmp_path / FILE_NAME).write_bytes(content[:-10])
    with pytest.raises(ValueError, match="not a checkpoint file of bnnp, or one that was cut short"):
        fit(checkpoint=tmp_path)


def test_a_model_file_is_no_checkpoint(tmp_path):
    model().save(tmp_path / FILE_NAME)
    with pytest.raises(ValueError, match="got a model file, expected a checkpoint file"):
        fit(checkpoint=tmp_path)


def test_a_model_that_cannot_be_saved_is_refused_before_the_first_step(tmp_path):
    seen = []
    with pytest.raises(ValueError, match=r"activation: .*cannot be saved"):
        fit(model(activation=torch.sin), checkpoint=tmp_path, evaluation=seen.append, evaluate_every=1)
    assert seen == []


# --- divergence ------------------------------------------------------------------------------------------------------


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


# --- the prior -------------------------------------------------------------------------------------------------------


def prior_moments(of: AmortisedModel) -> list[torch.Tensor]:
    with torch.no_grad():
        return [tensor.clone() for block in of.prior.blocks for tensor in (block.mean(), block.factor())]  # pyright: ignore


def moved(before: list[torch.Tensor], after: list[torch.Tensor]) -> list[bool]:
    return [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]


@pytest.mark.parametrize("optimiser", [torch.optim.Adam, partial(torch.optim.AdamW, weight_decay=0.5)])
def test_a_fixed_prior_does_not_move(optimiser):
    start = model().set_prior_learnability(0)
    before = prior_moments(start)
    fit(start, optimiser=optimiser)
    assert not any(moved(before, prior_moments(start)))


def test_only_the_learnable_share_of_a_prior_moves():
    start = model(prior="factorised").set_prior_learnability(6 / 10)  # the 6 weights of the first layer
    before = prior_moments(start)
    fit(start)
    assert moved(before, prior_moments(start)) == [True, True, False, False]


def started(start: AmortisedModel, prior_start: str) -> AmortisedModel:
    """The model after a step that moves nothing, so that only the start shows."""
    return fit(start, steps=1, learning_rate=(0.0, 0.0), prior_start=prior_start).model


def test_spread_moves_a_standard_learnable_prior():
    start = model()
    before = prior_moments(start)
    assert moved(before, prior_moments(started(start, "spread")))[0]


def test_standard_leaves_it():
    start = model()
    before = prior_moments(start)
    assert not any(moved(before, prior_moments(started(start, "standard"))))


def test_spread_leaves_fixed_and_trained_priors():
    fixed, trained = model().set_prior_learnability(0), fit().model
    for start in (fixed, trained):
        before = prior_moments(start)
        assert not any(moved(before, prior_moments(started(start, "spread"))))


def test_spread_is_the_same_for_the_same_seed_and_keeps_inference_networks():
    first, second = model(), model()
    networks = {name: tensor for name, tensor in state(first).items() if name.startswith("layers")}
    started(first, "spread")
    assert same(state(first), state(started(second, "spread")))
    assert all(torch.equal(first.state_dict()[name], tensor) for name, tensor in networks.items())


# --- options and bad arguments ---------------------------------------------------------------------------------------


def test_any_optimiser_by_argument():
    """One step of plain gradient ascent, against the gradient of the objective computed here."""
    start, reference = started(model(), "spread"), started(model(), "spread")
    seen: list[SplitBatch] = []

    class Spy(PPAVI):
        def __call__(self, model: Any, batch: SplitBatch, generator: torch.Generator) -> Terms:
            seen.append(batch)
            return super().__call__(model, batch, torch.Generator().manual_seed(0))

    rate = 1e-3
    fit(
        start,
        steps=1,
        objective=Spy(2),
        optimiser=torch.optim.SGD,
        learning_rate=(rate, rate),
        prior_rate=1,
        clip_norm=None,
    )
    PPAVI(2)(reference, seen[0], torch.Generator().manual_seed(0)).total().mean().backward()
    for parameter, moved_to in zip(reference.parameters(), start.parameters(), strict=True):
        step = torch.zeros_like(parameter) if parameter.grad is None else rate * parameter.grad
        torch.testing.assert_close(moved_to.detach(), parameter.detach() + step, rtol=1e-5, atol=1e-6)


def test_the_prior_learns_faster_by_its_own_rate():
    def step_of_prior(prior_rate: float) -> torch.Tensor:
        start = started(model(), "spread")
        before = torch.cat([p.detach().flatten().clone() for p in start.prior.parameters()])
        fit(start, steps=1, optimiser=torch.optim.SGD, learning_rate=(1e-3, 1e-3), prior_rate=prior_rate)
        return torch.cat([p.detach().flatten() for p in start.prior.parameters()]) - before

    torch.testing.assert_close(step_of_prior(3.0), 3 * step_of_prior(1.0), rtol=1e-3, atol=1e-6)
    assert not step_of_prior(0.0).any()


def test_the_average_is_the_moving_average_of_the_steps():
    parameter = torch.nn.Parameter(torch.tensor([1.0]))
    optimiser = AveragedAdam([parameter], lr=0.1, decay=0.8)
    expected = None
    for step in range(1, 61):
        parameter.grad = torch.tensor([float(step % 3) - 0.5])
        optimiser.step()
        value = parameter.item()
        decay = min(0.8, step / (step + 10))
        expected = value if expected is None else decay * expected + (1 - decay) * value
    last = parameter.item()
    with averaged(optimiser):
        assert parameter.item() == pytest.approx(expected, rel=1e-5)
    assert parameter.item() == last
    optimiser.adopt()
    assert parameter.item() == pytest.approx(expected, rel=1e-5)


def test_evaluations_see_the_averaged_model_and_training_goes_on_from_the_last_step():
    seen = []
    result = fit(steps=6, evaluation=lambda m: seen.append(state(m)) or {"score": 0.0}, evaluate_every=3)
    assert same(seen[-1], state(result.model))
    assert same(state(fit(steps=6).model), state(result.model))


def test_clip_norm_bounds_the_step():
    start = started(model(), "spread")
    before = torch.cat([p.detach().flatten().clone() for p in start.parameters()])
    fit(start, steps=1, optimiser=torch.optim.SGD, learning_rate=(1.0, 1.0), prior_rate=1.0, clip_norm=0.01)
    after = torch.cat([p.detach().flatten() for p in start.parameters()])
    assert (after - before).norm().item() == pytest.approx(0.01, rel=1e-3)


def test_the_objective_sees_data_in_the_units_of_the_model():
    seen: list[TaskBatch] = []

    class Spy(PPAVI):
        def __call__(self, model: Any, batch: SplitBatch, generator: torch.Generator) -> Terms:
            seen.append(batch.target)
            return super().__call__(model, batch, generator)

    tasks = bnnp.tasks.from_arrays([(np.arange(20.0) + 500, 1000 + 50 * np.sin(np.arange(20.0)))])
    fit(tasks=tasks, objective=Spy(2), context_count=0)
    x = seen[0].x[seen[0].mask]
    assert abs(x.mean()) < 1e-3
    assert x.std().item() == pytest.approx(1, rel=0.03)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps: got 0, expected a positive whole number"),
        ({"steps": 2.5}, "steps: got 2.5"),
        ({"batch_size": -1}, "batch_size: got -1"),
        ({"record_every": 0}, "record_every: got 0"),
        ({"evaluate_every": 0}, "evaluate_every: got 0"),
        ({"checkpoint_every": 0}, "checkpoint_every: got 0"),
        ({"learning_rate": 1e-3}, r"learning_rate: got 0.001, expected the first and the last value, as in \(3e-3"),
        ({"learning_rate": (1e-3, float("nan"))}, "learning_rate"),
        ({"learning_rate": (-1e-3, 0.0)}, "learning_rate"),
        ({"clip_norm": 0.0}, "clip_norm: got 0.0"),
        ({"context_share": 2.0}, "context_share"),
        ({"context_count": -2}, "context_count"),
        (
            {"prior_start": "random"},
            "prior_start: got 'random', expected one of spread, fitted, switch, floor, place, standard",
        ),
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


def test_a_checkpoint_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot write"):
        fit(checkpoint=cast(Path, tmp_path / "file" / "run"))


def test_gradients_move_their_own_elements_whatever_their_layout():
    """Fused Adam pairs numbers by their place in memory; a transposed gradient must be laid out anew."""
    for kind in (AveragedAdam, partial(torch.optim.Adam, fused=True)):
        gradient = torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.0, -1.0]])
        moved = []
        for given in (gradient, gradient.mT.contiguous().mT):
            parameter = torch.nn.Parameter(torch.zeros(2, 3))
            set_gradients([parameter], [given])
            kind([parameter], lr=0.1).step()
            moved.append(parameter.detach().sign())
        assert torch.equal(moved[0], -gradient)
        assert torch.equal(moved[1], moved[0])
