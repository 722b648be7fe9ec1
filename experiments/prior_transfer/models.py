"""The processes of the experiment, and the models whose priors are used."""

from pathlib import Path

import bnnp
from common import model_file

NAMES = {"gp": "GP", "heaviside": "Heaviside", "sawtooth": "sawtooth", "climate": "ERA5-Land"}
ACTIVATIONS = {"gp": "silu", "heaviside": "tanh", "sawtooth": "relu", "climate": "relu"}
SOURCES = {"gp": bnnp.tasks.gp, "heaviside": bnnp.tasks.heaviside, "sawtooth": bnnp.tasks.sawtooth}
LEARNED = {"recipe": "learned by the one recipe", "paper": "learned in the paper's way"}
PRIORS = ("standard", *LEARNED)


def name_of(process: str, prior: str, seed: int) -> str:
    return f"{process}-{prior}-{seed}"


def learned_model(process: str, prior: str, seed: int, folder: Path) -> bnnp.BNNP:
    return bnnp.load(model_file(folder, name_of(process, prior, seed)))


def standard_model(process: str, hidden: tuple[int, ...]) -> bnnp.BNNP:
    """A model whose prior is the standard one."""
    return bnnp.BNNP(3 if process == "climate" else 1, 1, hidden, ACTIVATIONS[process], "factorised", seed=0)
