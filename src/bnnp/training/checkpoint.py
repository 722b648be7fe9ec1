"""The whole state of a training run in one file, from which it continues as if it had never stopped."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bnnp._core.checks import check_count, is_number
from bnnp._core.files import as_path
from bnnp._core.shapes import Tensor
from bnnp._core.tensor_files import read_tensors, write_tensors
from bnnp.models.base import MetaLearner
from bnnp.models.saving import DAMAGES, model_header, rebuild, todays_header
from bnnp.training.history import History
from bnnp.training.identity import comparable, differences

FILE_NAME = "checkpoint.safetensors"


@dataclass(frozen=True)
class Checkpointing:
    """Where to keep the state of a training run, and how often to write it.

    Args:
        folder: A folder for this run alone, which is created if needed. A run that finds its own state in the folder
            continues from it.
        every: Largest number of steps between two writes. The state after the last step is always written.
        seconds: Largest time between two writes; None for no such bound. A step is always finished first.

    Raises:
        ValueError: If the folder is not a path, `every` is not a positive whole number, or `seconds` is not positive.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8, 8), likelihood=bnnp.Gaussian(0.1))
        >>> checkpoint = bnnp.Checkpointing("run", every=100)
        >>> result = bnnp.fit(model, tasks, steps=2, checkpoint=checkpoint, progress=False)
        >>> import os
        >>> os.listdir("run")
        ['checkpoint.safetensors']
    """

    folder: str | Path
    every: int = 500
    seconds: float | None = 60.0

    def __post_init__(self):
        as_path(self.folder, "checkpoint")
        check_count("every", self.every, "whole number of steps, as in Checkpointing(folder, every=500)")
        if self.seconds is not None and not (is_number(self.seconds) and self.seconds > 0):
            raise ValueError(
                f"seconds: got {self.seconds!r}, expected a positive number, as in Checkpointing(folder, seconds=60), "
                "or None for no bound"
            )


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run beside its model and optimiser.

    Attributes:
        step: Number of steps done.
        seconds: Time that these steps took.
        identity: The choices of the run, which must be the same when it continues.
        history: The records so far.
        recent: Terms of the steps since the last record of the history.
    """

    step: int
    seconds: float
    identity: dict[str, Any]
    history: History
    recent: list[dict[str, float]]

    def save(self, folder: str | Path, model: MetaLearner, optimiser: torch.optim.Optimizer) -> Path:
        """Write the state to the folder. It replaces the state before.

        Args:
            folder: The folder of the run.
            model: The model in its present state.
            optimiser: The optimiser in its present state.

        Returns:
            The path of the file.
        """
        state = optimiser.state_dict()["state"]
        tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
        for index, slots in state.items():
            for slot, value in slots.items():
                if value is not None:
                    tensors[f"optimiser/{index}/{slot}"] = torch.as_tensor(value)
        header = {
            "model": model_header(model),
            "step": self.step,
            "seconds": self.seconds,
            "settings": self.identity,
            "history": self.history.to_dict(),
            "recent": self.recent,
        }
        return write_tensors(Path(folder) / FILE_NAME, "checkpoint", tensors, header)


def restore(
    folder: str | Path, model: MetaLearner, optimiser: torch.optim.Optimizer, identity: dict[str, Any]
) -> Checkpoint | None:
    """Set model and optimiser to the state that a folder holds.

    Args:
        folder: The folder of the run.
        model: The model, changed in place.
        optimiser: Its optimiser, changed in place.
        identity: The choices of the present run.

    Returns:
        The rest of the state; None if the folder holds no state.

    Raises:
        ValueError: If the file is damaged, or belongs to another run.
    """
    path = Path(folder) / FILE_NAME
    if not path.exists():
        return None
    tensors, header = read_tensors(path, "checkpoint")
    try:
        written = {**header["settings"], "model": comparable(todays_header(header["model"]))}
        history = History(**header["history"])
        state = Checkpoint(int(header["step"]), float(header["seconds"]), identity, history, list(header["recent"]))
    except DAMAGES as error:
        raise ValueError(f"{path}: the header of this file is damaged ({error!r})") from None
    different = differences(written, identity)
    if different is not None:
        raise ValueError(f"checkpoint: {path} {different}")
    saved = rebuild(_with_prefix(tensors, "model/"), header["model"], str(path))
    model.load_state_dict(saved.state_dict())
    _restore_optimiser(optimiser, _with_prefix(tensors, "optimiser/"))
    return state


def _restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        index, slot = name.split("/", 1)
        state.setdefault(int(index), {})[slot] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
