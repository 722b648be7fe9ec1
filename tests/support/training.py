"""Shared by tests: helpers of test_training."""

from dataclasses import fields
from typing import Any

import torch

import bnnp
from bnnp.models import AmortisedModel
from bnnp.objectives import PPAVI

FEW = PPAVI(num_samples=2)
RUN: dict[str, Any] = {"steps": 9, "record_every": 4, "evaluate_every": 3, "checkpoint_every": 2}


def model(seed: int = 0, **options) -> AmortisedModel:
    return bnnp.BNNP(1, 1, **{"hidden": (3,), "seed": seed, **options})


def small_sawtooth():
    return bnnp.tasks.sawtooth(points=(6, 9))


def fit(start: AmortisedModel | None = None, **options) -> bnnp.FitResult:
    """`bnnp.fit` with small defaults. Its settings may be given by name, too, as in `in_records`."""
    arguments = in_records({"objective": FEW, "steps": 7, "batch_size": 2, "progress": False, **options})
    tasks = arguments.pop("tasks", None) or small_sawtooth()
    return bnnp.fit(start if start is not None else model(), tasks, **arguments)


def in_records(options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `bnnp.fit` from flat ones: the fields of its records by name, where they are given."""
    left = dict(options)
    for name, record, every in (("evaluation", bnnp.Evaluation, 1000), ("checkpoint", bnnp.Checkpointing, 500)):
        every = left.pop({"evaluation": "evaluate_every", "checkpoint": "checkpoint_every"}[name], every)
        if name in left:
            left[name] = record(left[name], every)
    chosen = {field.name: left.pop(field.name) for field in fields(bnnp.FitSettings) if field.name in left}
    return {"settings": bnnp.FitSettings(**chosen), **left}


def started(start: AmortisedModel, prior_start: bnnp.starts.Start | str) -> AmortisedModel:
    """The model after a step that moves nothing, so that only the start shows."""
    return fit(start, steps=1, learning_rate=0.0, prior_start=prior_start).model


def state(of: AmortisedModel) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in of.state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def records(history: bnnp.History) -> dict[str, list[dict[str, float]]]:
    """The history without the clock."""
    return {
        kind: [{key: value for key, value in record.items() if key != "seconds"} for record in rows]
        for kind, rows in history.to_dict().items()
    }


# --- stopping and going on -------------------------------------------------------------------------------------------


class Stop:
    """An evaluation that raises the first time it sees a step."""

    def __init__(self, error: type[BaseException] | None = None, call: int = 0):
        self.error, self.call, self.calls = error, call, 0

    def __call__(self, trained: AmortisedModel) -> dict[str, float]:
        self.calls += 1
        if self.error is not None and self.calls == self.call:
            raise self.error
        return {"raw": float(trained.state_dict()["likelihood.raw"].sum())}
