"""Models on disk."""

from collections.abc import Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from bnnp import likelihoods
from bnnp._core.files import read_tensors, write_tensors
from bnnp._core.shapes import Tensor
from bnnp.models.base import MetaLearner
from bnnp.models.bnam import BNAM
from bnnp.models.bnnp import BNNP
from bnnp.models.posterior import WeightPosterior
from bnnp.numerics.gaussian import NaturalParameters

ZOO = "zoo:"
CLASSES: dict[str, Callable[..., MetaLearner]] = {"BNNP": BNNP, "BNAM": BNAM}
"""What a file may hold, by name. Models that stand right of this file add themselves."""
_SUMS = ("precision", "shift", "noise", "square")


def save(model: MetaLearner, path: str | Path) -> Path:
    """Write a model to one file: safetensors with a JSON header."""
    return write_tensors(path, "model", model.state_dict(), model_header(model))


def load(path: str | Path) -> Any:
    """Read a model from a file, from the folder that `bnnp train` wrote, or by the name of one that ships with the
    package, as in `bnnp.load("zoo:sawtooth")`.

    The model gives the same numbers as the one that was saved, to the last bit. Nothing in the file is executed.
    """
    tensors, header = read_tensors(_resolve(str(path)), "model")
    return rebuild(tensors, header, str(path))


def zoo_names() -> list[str]:
    """Names of the models that ship with the package."""
    return sorted(
        file.name.removesuffix(".bnnp") for file in files("bnnp.zoo").iterdir() if file.name.endswith(".bnnp")
    )


def save_posterior(post: WeightPosterior, path: str | Path) -> Path:
    """Write a posterior and its model to one file, without the points it was conditioned on.

    The last layer's sums are in it, for predictions and for later updates.
    """
    kept = post.forgetting_context()
    tensors = {f"model.{name}": tensor for name, tensor in kept.model.state_dict().items()}
    for layer, values in enumerate(zip(kept.weights, kept.layer_kl, kept.layer_log_density, strict=True)):
        tensors |= dict(zip((f"weights.{layer}", f"kl.{layer}", f"density.{layer}"), values, strict=True))
    if kept.last is not None:
        tensors |= {f"last.{name}": getattr(kept.last, name) for name in _SUMS}
    header = {"model": model_header(kept.model), "seed": kept.seed, "points": kept.points}
    return write_tensors(path, "posterior", tensors, header)


def load_posterior(path: str | Path) -> WeightPosterior:
    """Read what `post.save(path)` wrote: a posterior that predicts and can be updated like the one that was saved."""
    tensors, header = read_tensors(path, "posterior")
    try:
        own = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
        model = rebuild(own, header["model"], str(path))
        layers = range(model.network.num_layers)
        weights, kl, density = (
            [tensors[f"{name}.{layer}"] for layer in layers] for name in ("weights", "kl", "density")
        )
        found = [tuple(w.shape[1:]) for w in weights]
        if found != model.network.weight_shapes:
            raise ValueError(f"weights have shapes {found}, expected {model.network.weight_shapes}")
        last = None
        if "last.shift" in tensors:  # files of an earlier version lack it for some models
            last = NaturalParameters(*(tensors[f"last.{name}"] for name in _SUMS))
        seed, points = int(header["seed"]), int(header["points"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: the posterior file is damaged ({error})") from None
    return WeightPosterior(model, weights, kl, density, seed, points, None, last)


def model_header(model: MetaLearner) -> dict[str, Any]:
    config = model.config()
    if not isinstance(config["activation"], str):
        raise ValueError(
            "activation: a model with an activation given as a function cannot be saved; use a name instead"
        )
    header = {
        "class": type(model).__name__,
        "config": config,
        "dtype": str(model.dtype).removeprefix("torch."),
        "columns": {"x": model.columns.x_names, "y": model.columns.y_names},
    }
    if model.weight_prior is not None:
        header["prior_learnability"] = model.weight_prior.learnability
    return header


def rebuild(tensors: Mapping[str, Tensor], header: Mapping[str, Any], path: str) -> Any:
    """The model that a header and tensors describe, or `ValueError` where they do not fit together."""
    try:
        if header["class"] not in CLASSES:
            raise ValueError(f"unknown kind of model {header['class']!r}")
        dtype = {"float32": torch.float32, "float64": torch.float64}[header["dtype"]]
        choices = dict(header["config"])
        likelihood = likelihoods.from_config(choices.pop("likelihood"))
        model = CLASSES[header["class"]](**choices, likelihood=likelihood, dtype=dtype)
        if model.weight_prior is not None:
            model.weight_prior.set_learnability(header["prior_learnability"])
        columns = {role: [str(name) for name in header["columns"][role]] for role in ("x", "y")}
        if {role: len(names) for role, names in columns.items()} != {"x": model.in_size, "y": model.y_size}:
            raise ValueError("names of columns do not fit the model")
        model.columns.x_names, model.columns.y_names = columns["x"], columns["y"]
        tensors = _with_todays_names(tensors)
        expected = {name: (tensor.shape, tensor.dtype) for name, tensor in model.state_dict().items()}
        found = {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}
        if expected != found:
            odd = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
            raise ValueError(f"tensors do not fit the model: {', '.join(odd[:3])}")
        bad = [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]
        if bad:
            raise ValueError(f"values that are not finite in {', '.join(bad[:3])}")
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{path}: the model file is damaged ({error})") from None
    model.load_state_dict(dict(tensors))
    return model


def _with_todays_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under the names that they have now, whatever version of the library wrote them."""

    def renamed(name: str) -> str:
        for before in ("prior.standardiser.", "units."):
            if name.startswith(before):
                return "columns." + name.removeprefix(before)
        return name

    return {renamed(name): tensor for name, tensor in tensors.items()}


def _resolve(path: str) -> Path:
    if not path.startswith(ZOO):
        return Path(path) / "model.bnnp" if Path(path).is_dir() else Path(path)
    name = path.removeprefix(ZOO)
    if name not in zoo_names():
        raise ValueError(f"zoo model: got {name!r}, expected one of {', '.join(zoo_names()) or '(none are installed)'}")
    return Path(str(files("bnnp.zoo") / f"{name}.bnnp"))
