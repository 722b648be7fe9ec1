"""The methods of inference by name, and what the settings say of each."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from bnnp.inference import GIVI, HMC, SGHMC, SGLD, SWAG, Ensemble, GaussianVI, Laplace, Method, SingleTaskBNNP

KINDS: dict[str, Any] = {
    "swag": SWAG,
    "mfvi": partial(GaussianVI, "mfvi"),
    "lmc": HMC,
    "sgld": SGLD,
    "givi": GIVI,
    "bnnp": SingleTaskBNNP,
    "bnnp_new": SingleTaskBNNP,
    "hmc": HMC,
    "sghmc": SGHMC,
    "laplace": Laplace,
    "ensemble": Ensemble,
}
LABELS = {name: name.upper() for name in KINDS}
LABELS |= {"bnnp_new": "BNNP, new inference networks", "laplace": "Laplace", "ensemble": "ensemble"}
NEW = "bnnp_new"
"""As the text has it; "bnnp" is fine-tuned from the trained inference networks, as in the authors' runs."""


def methods_of(choices: Mapping[str, Any], prior: str) -> dict[str, dict[str, Any]]:
    """Under a prior, for every method: choices of its `record` and of `Effort`, `samples` and `whitened`.

    Under the standard prior there are no trained inference networks, so that all are new. `learned_methods` are changes
    for learned priors.
    """
    plain = {"record": {}, "whitened": True}
    found = {name: plain | choice for name, choice in choices["methods"].items()}
    if prior == "standard":
        return found
    changes = choices.get("learned_methods", {})
    found = {name: choice | changes.get(name, {}) for name, choice in found.items()}
    return found | ({NEW: found["bnnp"]} if "bnnp" in found else {})


def record(method: str, choices: Mapping[str, Any]) -> Method:
    return KINDS[method](**choices)
