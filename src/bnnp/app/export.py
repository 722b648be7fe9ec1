"""The page as one file that needs no server: the model is in it, and the browser conditions."""

import base64
import json
from typing import Any

import numpy as np
import torch

from bnnp._core.shapes import Tensor
from bnnp.app import pictures
from bnnp.app.gallery import Gallery
from bnnp.app.pages import ENGINE, asset, joined
from bnnp.inference_nets.pointwise import PointEncoder
from bnnp.inference_nets.pseudo import AmortisedLinear
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.amortised import AmortisedModel
from bnnp.models.sums import can_be_cut
from bnnp.tasks.source import Collection

MOST_SUBJECTS = 40
"""Data sets that a page holds."""
LIKELIHOODS = ("gaussian", "bernoulli", "categorical")


def export(gallery: Gallery) -> str:
    """The page of a gallery as one HTML file: models, data sets and their calibration are in it.

    Args:
        gallery: Models and data sets.

    Returns:
        The file's text.

    Raises:
        ValueError: If the browser cannot condition a model.

    Example:
        >>> from bnnp.app import Gallery, export
        >>> export(Gallery({"small": model}))[:15]
        '<!doctype html>'
    """
    content = json.dumps(contents(gallery), allow_nan=False).replace("</", "<\\/")
    style, script, engine = asset("page.css"), asset("page.js"), joined(ENGINE)
    parts = {
        '<link rel="stylesheet" href="page.css">': f"<style>\n{style}</style>",
        '<script type="module" src="page.js"></script>': (
            f'<script type="application/json" id="content">{content}</script>\n'
            f'<script type="text/plain" id="engine">\n{engine}</script>\n'
            f'<script type="module">\n{script}</script>'
        ),
    }
    page = asset("page.html")
    for link, text in parts.items():
        page = page.replace(link, text)
    return page


def contents(gallery: Gallery) -> dict[str, Any]:
    """All that a page without a server knows, as plain values.

    Raises:
        ValueError: If the browser cannot condition a model.
    """
    subjects = _subjects(gallery)
    names = [subject["name"] or f"drawn with seed {i}" for i, subject in enumerate(subjects)]
    of_subjects = {"count": len(subjects), "names": names} if subjects else None
    return {
        "hello": {**gallery.describe(), "methods": [], "oracle": False, "subjects": of_subjects},
        "models": [packed(name, model) for name, model in gallery.models.items()],
        "subjects": subjects,
        "calibration": [
            pictures.calibration(gallery, {"model": number, "seed": 0}) for number in range(len(gallery.models))
        ]
        if subjects
        else [],
    }


def _subjects(gallery: Gallery) -> list[dict[str, Any]]:
    if gallery.tasks is None:
        return []
    count = min(MOST_SUBJECTS, len(gallery.tasks)) if isinstance(gallery.tasks, Collection) else MOST_SUBJECTS
    return [pictures.subject(gallery, {"number": number}) for number in range(count)]


def packed(name: str, model: AmortisedModel) -> dict[str, Any]:
    """A model as plain values, with its numbers in float32 as one text of base64.

    Raises:
        ValueError: If the browser cannot condition it.
    """
    _check(name, model)
    numbers = _Numbers()
    with torch.no_grad():
        priors = [model.prior.layer(index, []) for index in range(model.network.num_layers)]
        layers = [layer for layer in model.layers if isinstance(layer, AmortisedLinear)]
        prior = [
            {"mean": numbers.add(p.mean), "factor": numbers.add(p.factor), "diagonal": p.is_diagonal} for p in priors
        ]
        encoders = [
            {"weights": [numbers.add(w) for w in layer.encoder.weights], "true_outputs": layer.true_outputs}
            for layer in layers
            if isinstance(layer.encoder, PointEncoder)
        ]
    return {
        "sizes": list(model.network.sizes),
        "activation": model.network.activation,
        "min_noise": model.inference.min_pseudo_noise,
        "sees_hidden": model.inference.sees_hidden,
        "columns": {part: values.tolist() for part, values in model.columns.named_buffers()},
        "likelihood": {**model.likelihood.config(), **_noise(model)},
        "prior": prior,
        "encoders": encoders,
        "numbers": numbers.text(),
    }


class _Numbers:
    """Tensors one after the other in one array."""

    def __init__(self):
        self.parts: list[np.ndarray] = []
        self.count = 0

    def add(self, values: Tensor) -> tuple[int, int]:
        """Add a tensor; returns where it starts and how many numbers it has."""
        place = self.count, values.numel()
        self.parts.append(values.flatten().to(torch.float32).numpy())
        self.count += values.numel()
        return place

    def text(self) -> str:
        return base64.b64encode(np.concatenate(self.parts).astype("<f4").tobytes()).decode()


def _noise(model: AmortisedModel) -> dict[str, list[float]]:
    return {"noise": model.likelihood.noise.tolist()} if isinstance(model.likelihood, Gaussian) else {}


def _check(name: str, model: AmortisedModel) -> None:
    likelihood = model.likelihood.config()["name"]
    reasons = {
        "points of a context see each other": not can_be_cut(model),
        "its prior correlates the weights of several units": model.prior.couples_outputs,
        "its likelihood is not Gaussian, Bernoulli or categorical": likelihood not in LIKELIHOODS,
        "its outputs are positive, on a log scale": model.columns.positive,
        "its noise varies with the inputs": isinstance(model.likelihood, Gaussian) and model.likelihood.varies,
        "its activation is a function of your own": not isinstance(model.network.activation, str),
        "it is in float64": model.dtype != torch.float32,
    }
    for reason, applies in reasons.items():
        if applies:
            raise ValueError(f"export: the browser cannot condition {name}: {reason}; serve the page instead")
