"""A run that was stopped continues to the same numbers, to the last bit; another run is refused."""

from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

import bnnp
from bnnp._core.tensor_files import read_tensors, write_tensors
from bnnp.training.checkpoint import FILE_NAME
from bnnp.training.history import FALLBACKS
from bnnp.training.optimiser import AveragedAdam
from support.training import RUN, Stop, fit, model, records, same, small_sawtooth, state


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
def test_a_run_on_a_collection_in_odd_units_continues_to_the_same_numbers(options, tmp_path):
    tasks = bnnp.tasks.from_arrays([(np.arange(9.0) + i, 1000 + 50 * np.sin(np.arange(9.0))) for i in range(4)])
    whole = fit(model(**options), tasks=tasks, evaluation=Stop(), **RUN)
    fit(model(**options), tasks=tasks, evaluation=Stop(KeyboardInterrupt, 2), checkpoint=tmp_path, **RUN)
    resumed = fit(model(**options), tasks=tasks, evaluation=Stop(), checkpoint=tmp_path, **RUN)
    assert same(state(resumed.model), state(whole.model))
    assert records(resumed.history) == records(whole.history)


def test_a_run_with_a_partly_fixed_prior_continues_to_the_same_numbers(tmp_path):
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


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"steps": 8}, "steps=7"),
        ({"batch_size": 3}, "batch_size=2"),
        ({"seed": 1}, "seed=0"),
        ({"context_share": 0.3}, "context="),
        ({"context_share": bnnp.tasks.ContextCount(3, 3)}, "context="),
        ({"learning_rate": (1e-3, 1e-4)}, "learning_rate="),
        ({"objective": bnnp.objectives.AVI(num_samples=2)}, r"objective='PPAVI\(num_samples=2"),
        ({"optimiser": torch.optim.SGD}, 'optimiser="AveragedAdam'),
        ({"optimiser": partial(AveragedAdam, decay=0.9)}, "optimiser="),
        ({"optimiser": torch.optim.Adam}, 'optimiser="AveragedAdam'),
        ({"prior_lr_multiplier": 2.0}, "prior_lr_multiplier=1.0"),
        ({"clip_norm": 1.0}, "clip_norm=200.0"),
        ({"prior_start": "standard"}, r"prior_start='Spread\(slope=4.0"),
        ({"prior_start": bnnp.starts.Spread(slope=8.0)}, r"prior_start='Spread\(slope=4.0"),
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


def test_a_checkpoint_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot write"):
        fit(checkpoint=cast(Path, tmp_path / "file" / "run"))


def rewrite(path: Path, **changes: Any) -> None:
    """Change the choices that a checkpoint was written with; None takes one out."""
    tensors, header = read_tensors(path, "checkpoint")
    kept = {key: value for key, value in {**header["settings"], **changes}.items() if value is not None}
    recent = [{k: v for k, v in one.items() if k not in FALLBACKS} for one in header["recent"]]
    write_tensors(path, "checkpoint", tensors, {**header, "settings": kept, "recent": recent})


def test_a_checkpoint_of_an_earlier_version_goes_on(tmp_path):
    """It calls the prior's rate otherwise, has starts by name, and no counts of fallbacks."""
    whole = fit(evaluation=Stop(), prior_start="empirical", **RUN)
    fit(evaluation=Stop(KeyboardInterrupt, 2), checkpoint=tmp_path, prior_start="empirical", **RUN)
    rewrite(tmp_path / FILE_NAME, prior_lr_multiplier=None, prior_rate=1.0, prior_start="empirical")
    resumed = fit(evaluation=Stop(), checkpoint=tmp_path, prior_start="empirical", **RUN)
    assert same(state(resumed.model), state(whole.model))
    assert records(resumed.history) == records(whole.history)


@pytest.mark.parametrize(
    ("was", "named"),
    [
        ({"prior_rate": 3.0}, r"prior_lr_multiplier=3.0, but got prior_lr_multiplier=1.0"),
        ({"prior_rate": 1.0, "prior_start": "empirical"}, r"prior_start='Empirical\(\)', but got .*='Spread\("),
        ({"prior_rate": 0.0}, r"prior_rate=0, which held the prior.*set_prior_learnability\(0\).*another folder"),
    ],
)
def test_a_checkpoint_of_another_run_of_an_earlier_version_is_refused(was, named, tmp_path):
    fit(checkpoint=tmp_path)
    rewrite(tmp_path / FILE_NAME, prior_lr_multiplier=None, **{"prior_start": "spread"} | was)
    with pytest.raises(ValueError, match=f"is of a run with {named}"):
        fit(checkpoint=tmp_path)


def test_checkpointing_says_how_often_the_folder_is_written_to(tmp_path):
    runs = {every: bnnp.Checkpointing(tmp_path / str(every), every=every) for every in (2, 5)}
    for every, checkpoint in runs.items():
        settings = bnnp.FitSettings(optimiser=FailingAdam)
        with pytest.raises(RuntimeError, match="the seventh"):
            bnnp.fit(model(), small_sawtooth(), steps=9, settings=settings, checkpoint=checkpoint, progress=False)
        _, header = read_tensors(tmp_path / str(every) / FILE_NAME, "checkpoint")
        assert header["step"] == {2: 6, 5: 5}[every]


class FailingAdam(AveragedAdam):
    """Fails in its seventh step."""

    taken = 0

    def step(self, closure=None):
        self.taken += 1
        if self.taken == 7:
            raise RuntimeError("the seventh")
        return super().step(closure)
