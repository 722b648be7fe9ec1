"""The processes of the experiment, and the models whose priors are used."""

from pathlib import Path

import bnnp
from common import model_file

ACTIVATIONS = {"gp": "silu", "heaviside": "tanh", "sawtooth": "relu", "climate": "relu"}
SOURCES = {"gp": bnnp.tasks.gp, "heaviside": bnnp.tasks.heaviside, "sawtooth": bnnp.tasks.sawtooth}
PRIORS = ("standard", "learned")
HIDDEN = {
    "smoke": {"gp": (6, 6), "climate": (6, 6)},
    "small": {"gp": (48, 48), "heaviside": (48, 48), "sawtooth": (48, 48), "climate": (64, 64, 64)},
}
HIDDEN["paper"] = HIDDEN["small"]


def learned_model(process: str, folder: Path) -> bnnp.BNNP:
    """The model trained here; where none was, the one that ships."""
    own = model_file(folder, process)
    return bnnp.load(own if own.is_file() or process not in SOURCES else f"zoo:{process}")


def standard_model(process: str, scale: str) -> bnnp.BNNP:
    """A model whose prior is the standard one."""
    in_size = 3 if process == "climate" else 1
    return bnnp.BNNP(in_size, 1, HIDDEN[scale][process], ACTIVATIONS[process], "factorised", seed=0)
