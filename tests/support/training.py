"""Shared by tests: helpers of test_training."""

import torch

import bnnp
from bnnp.models import AmortisedModel
from bnnp.objectives import PPAVI

FEW = PPAVI(num_samples=2)


def model(seed: int = 0, **options) -> AmortisedModel:
    return bnnp.BNNP(1, 1, **{"hidden": (3,), "seed": seed, **options})


def small_sawtooth():
    return bnnp.tasks.sawtooth(points=(6, 9))


def fit(start: AmortisedModel | None = None, **options) -> bnnp.FitResult:
    arguments = {"objective": FEW, "steps": 7, "batch_size": 2, "progress": False, **options}
    tasks = arguments.pop("tasks", None) or small_sawtooth()
    return bnnp.fit(start if start is not None else model(), tasks, **arguments)


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
