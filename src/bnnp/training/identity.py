"""The identity of a training run: the choices that a checkpoint must share with the run that continues from it."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import torch

from bnnp.models.base import MetaLearner
from bnnp.models.saving import model_header
from bnnp.objectives import Objective
from bnnp.priors.starts import STARTS, as_start
from bnnp.tasks.source import Collection
from bnnp.tasks.stream import TaskStream
from bnnp.training.draws import DrawsOfPrior
from bnnp.training.schedule import as_rate
from bnnp.training.settings import FitSettings


def identity_of(
    model: MetaLearner,
    stream: TaskStream,
    objective: Objective,
    steps: int,
    optimiser: torch.optim.Optimizer,
    settings: FitSettings,
    seed: int,
) -> dict[str, Any]:
    """All choices that change the numbers of a run, as plain values that are the same in every process.

    Args:
        model: The model before its first step.
        stream: The batches of tasks.
        objective: What is maximised.
        steps: Number of training steps.
        optimiser: The optimiser before its first step.
        settings: All other choices.
        seed: Seed of the run.

    Returns:
        The choices by name.
    """
    rate = as_rate(settings.learning_rate)
    return {
        "objective": _described(objective),
        "tasks": _described(stream.source),
        "steps": steps,
        "batch_size": stream.batch_size,
        "context": repr(stream.size),
        "chunk_size": settings.chunk_size,
        "learning_rate": [rate.first, rate.last],
        "prior_lr_multiplier": settings.prior_lr_multiplier,
        "optimiser": _described(optimiser),
        "clip_norm": settings.clip_norm,
        "prior_start": _described(as_start(settings.prior_start)),
        "seed": seed,
        "model": comparable(model_header(model)),
    }


def differences(was: dict[str, Any], now: dict[str, Any]) -> str | None:
    """How two runs differ, as the end of a sentence for an error.

    Args:
        was: Identity of the run that wrote the file.
        now: Identity of the present run.

    Returns:
        The text; None if the two do not differ.
    """
    if was.get("prior_rate") == 0:
        return (
            "is of a run with prior_rate=0, which held the prior by a rate; that is no longer there. Hold it by "
            "model.set_prior_learnability(0), and use another folder to start anew"
        )
    was = _with_present_names(was)
    different = [key for key in now if was.get(key) != now[key]]
    if not different:
        return None
    before, after = (", ".join(f"{key}={one.get(key)!r}" for key in different) for one in (was, now))
    return (
        f"is of a run with {before}, but got {after}; use the same arguments to go on with it, or another folder to "
        "start anew"
    )


def _with_present_names(was: dict[str, Any]) -> dict[str, Any]:
    """The choices in a file of an earlier version, under their present names."""
    named = {{"prior_rate": "prior_lr_multiplier"}.get(key, key): value for key, value in was.items()}
    if named.get("prior_start") in STARTS:
        named["prior_start"] = _described(STARTS[named["prior_start"]])
    return named


def _described(choice: Any) -> str:
    """A text that tells one choice from another, and is the same in every process."""
    if isinstance(choice, Collection):
        digest = hashlib.sha256()
        for task in choice.tasks:
            digest.update(task.x.numpy().tobytes() + task.y.numpy().tobytes())
        points = "" if choice.points_share == 1 else f", {choice.points_share:g} of the points"
        names = ", ".join((*choice.x_names, *choice.y_names))
        return f"{len(choice)} tasks of {names}{points}: {digest.hexdigest()[:16]}"
    if isinstance(choice, DrawsOfPrior):
        return f"draws of the prior, at the inputs of {_described(choice.tasks)}"
    if isinstance(choice, torch.optim.Optimizer):
        groups = [
            {k: v for k, v in group.items() if k not in ("params", "lr") and v is not None}
            for group in choice.param_groups
        ]
        return f"{type(choice).__name__} {groups}"
    return re.sub(r" at 0x[0-9a-f]+", "", repr(choice))


def comparable(header: Mapping[str, Any]) -> dict[str, Any]:
    """What of a model's header two runs must share: all that is known before training."""
    return {**header, "columns": {which: header["columns"][which] for which in ("x", "y")}}
