"""The whole state of a training run in one file, so that it can go on as if it had never stopped."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bnnp._core.files import read_tensors, write_tensors
from bnnp._core.shapes import Tensor
from bnnp.models.base import MetaLearner
from bnnp.models.saving import model_header, rebuild, todays_header
from bnnp.training.history import History

FILE_NAME = "checkpoint.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """step: steps done;  settings: the run's arguments, which must be the same when it goes on;  recent: terms of the
    steps since the last record of the history."""

    step: int
    seconds: float
    settings: dict[str, Any]
    history: History
    recent: list[dict[str, float]]

    def save(self, folder: str | Path, model: MetaLearner, optimiser: torch.optim.Optimizer) -> Path:
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
            "settings": self.settings,
            "history": self.history.to_dict(),
            "recent": self.recent,
        }
        return write_tensors(Path(folder) / FILE_NAME, "checkpoint", tensors, header)


def restore(
    folder: str | Path, model: MetaLearner, optimiser: torch.optim.Optimizer, settings: dict[str, Any]
) -> Checkpoint | None:
    """Bring model and optimiser to the state in `folder`, or do nothing where there is none."""
    path = Path(folder) / FILE_NAME
    if not path.exists():
        return None
    tensors, header = read_tensors(path, "checkpoint")
    missing = [key for key in ("model", "step", "seconds", "settings", "history", "recent") if key not in header]
    if missing:
        raise ValueError(f"{path}: the header of this file is damaged ({missing[0]} is missing)")
    written = {**header["settings"], "model": todays_header(header["settings"]["model"])}
    different = [key for key in settings if written.get(key) != settings[key]]
    if different:
        was = ", ".join(f"{key}={written.get(key)!r}" for key in different)
        now = ", ".join(f"{key}={settings[key]!r}" for key in different)
        raise ValueError(
            f"checkpoint: {path} is of a run with {was}, but got {now}; use the same arguments to go on with it, "
            "or another folder to start anew"
        )
    saved = rebuild(_with_prefix(tensors, "model/"), header["model"], str(path))
    model.load_state_dict(saved.state_dict())
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in _with_prefix(tensors, "optimiser/").items():
        index, slot = name.split("/", 1)
        state.setdefault(int(index), {})[slot] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    history = History(**header["history"])
    return Checkpoint(header["step"], header["seconds"], header["settings"], history, header["recent"])


def comparable(model: MetaLearner) -> dict[str, Any]:
    """What must agree between a model and a checkpoint's: all that is known before training."""
    header = model_header(model)
    likelihood = {key: value for key, value in header["config"]["likelihood"].items() if key != "noise"}
    return {**header, "config": {**header["config"], "likelihood": likelihood}}


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
