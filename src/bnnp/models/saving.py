"""Models read from disk, whatever version of the library wrote them; `MetaLearner.save` writes them."""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

from bnnp import likelihoods
from bnnp._core.bounded import AtMost
from bnnp._core.files import as_path
from bnnp._core.shapes import Tensor
from bnnp._core.tensor_files import read_tensors
from bnnp.inference_nets import choices
from bnnp.models.base import MetaLearner, model_header
from bnnp.models.bnam import BNAM, Transformer
from bnnp.models.bnnp import BNNP, AttBNNP
from bnnp.models.posterior import SUMS, WeightPosterior
from bnnp.numerics.gaussian import NaturalParameters
from bnnp.priors.learnable import GaussianUnits

__all__ = ["CLASSES", "load", "load_posterior", "model_header", "rebuild", "todays_header", "zoo_names"]

ZOO = "zoo:"
CLASSES: dict[str, Callable[..., MetaLearner]] = {"BNNP": BNNP, "AttBNNP": AttBNNP, "BNAM": BNAM}
"""The classes of models that a file may hold, by name. Modules of `MORE_CLASSES` add their own on import."""
MORE_CLASSES = ("bnnp.neural_processes",)
FEW = 1000
"""A model may need tensors with so many numbers more than its file holds."""
NAMES_BEFORE = {"prior.standardiser.": "columns.", "units.": "columns.", "prior.blocks.": "prior.gaussians."}
"""How the names of tensors began in files of earlier versions, and how they begin today."""
DAMAGES = (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError, OverflowError)
"""What is raised where the header and the tensors of a file do not fit together."""


def load(path: str | Path) -> Any:
    """Read a model from a file.

    The model gives the same numbers as the one that was saved, to the last bit. Nothing in the file is executed.

    Args:
        path: A file that `model.save` wrote, a folder that `bnnp train` wrote, or `zoo:` and the name of a model that
            ships with the package (`bnnp.zoo_names()` lists them).

    Returns:
        The model, of the class that was saved.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not a model file, is damaged, or there is no model of that name.

    Example:
        >>> saved = model.save("model.bnnp")
        >>> bnnp.load(saved).network.sizes
        (1, 8, 8, 1)
        >>> type(bnnp.load("zoo:sawtooth")).__name__
        'BNNP'
    """
    tensors, header = read_tensors(_resolve(str(as_path(path))), "model")
    return rebuild(tensors, header, str(path))


def zoo_names() -> list[str]:
    """List the models that ship with the package.

    Returns:
        Their names, in alphabetical order; `bnnp.load("zoo:" + name)` reads one.

    Example:
        >>> "sawtooth" in bnnp.zoo_names()
        True
    """
    return sorted(
        file.name.removesuffix(".bnnp") for file in files("bnnp.zoo").iterdir() if file.name.endswith(".bnnp")
    )


def load_posterior(path: str | Path) -> WeightPosterior:
    """Read a posterior from a file.

    The posterior predicts and can be updated like the one that was saved.

    Args:
        path: A file that `post.save` wrote.

    Returns:
        The posterior, with its model.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not a posterior file, or is damaged.

    Example:
        >>> again = bnnp.load_posterior(post.save("posterior.bnnp"))
        >>> np.array_equal(again.predict(x_new).mean, post.predict(x_new).mean)
        True
    """
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
            last = NaturalParameters(**{part: tensors[f"last.{name}"] for name, part in SUMS.items()})
        seed, points = int(header["seed"]), int(header["points"])
    except DAMAGES as error:
        raise ValueError(f"{path}: the posterior file is damaged ({error})") from None
    return WeightPosterior(model, weights, kl, density, seed, points, None, last)


def rebuild(tensors: Mapping[str, Tensor], header: Mapping[str, Any], path: str) -> Any:
    """Make the model that a header and tensors describe.

    Args:
        tensors: The parameters and buffers by name.
        header: What `model_header` gave.
        path: The file, for the error message.

    Raises:
        ValueError: If the header and the tensors do not fit together.
    """
    try:
        header = todays_header(header)
        if header["class"] not in CLASSES:
            for module in MORE_CLASSES:
                import_module(module)
        if header["class"] not in CLASSES:
            raise ValueError(f"unknown kind of model {header['class']!r}")
        dtype = {"float32": torch.float32, "float64": torch.float64}[header["dtype"]]
        tensors = _with_todays_names(tensors)
        with AtMost(FEW + sum(tensor.numel() for tensor in tensors.values())):
            model = CLASSES[header["class"]](**_arguments(header["config"]), dtype=dtype)
        if model.weight_prior is not None:
            model.weight_prior.set_learnability(header["prior_learnability"])
        model.columns.take_record(header["columns"])
        _make_room(model, tensors)
        _check_fits(model, tensors)
        bad = [name for name, tensor in tensors.items() if not bool(torch.isfinite(tensor).all())]
        if bad:
            raise ValueError(f"values that are not finite in {', '.join(bad[:3])}")
    except DAMAGES as error:
        raise ValueError(f"{path}: the model file is damaged ({error})") from None
    model.load_state_dict(dict(tensors))
    return model


def _make_room(model: MetaLearner, tensors: Mapping[str, Tensor]) -> None:
    """Make room for the bases of units, which only some priors have, and for a noise that varies."""
    if isinstance(model.likelihood, likelihoods.Gaussian):
        model.likelihood.make_room(tensors, "likelihood.")
    for name, module in model.named_modules():
        if isinstance(module, GaussianUnits):
            own = f"{name}."
            module.load_bases({key.removeprefix(own): tensors[key] for key in tensors if key.startswith(own)})


def _check_fits(model: MetaLearner, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors with other names, shapes or precisions than those of a model."""
    both = model.state_dict(), tensors
    expected, found = ({name: (tensor.shape, tensor.dtype) for name, tensor in one.items()} for one in both)
    if expected != found:
        odd = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
        raise ValueError(f"tensors do not fit the model: {', '.join(odd[:3])}")


def _arguments(config: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor, from the plain values that a file holds."""
    made = {"likelihood": likelihoods.from_config, "inference": choices.from_config, "transformer": _transformer}
    return {name: made[name](value) if name in made else value for name, value in config.items()}


def _transformer(config: Mapping[str, Any]) -> Transformer:
    return Transformer(**config)


def todays_header(header: Mapping[str, Any]) -> dict[str, Any]:
    """The header of a model in today's form, whatever version of the library wrote it."""
    config = dict(header["config"])
    if "inference_hidden" not in config:
        return dict(header)
    name = config.pop("inference", "pointwise")
    config["inference"] = {
        "name": name,
        "hidden": config.pop("inference_hidden"),
        "sees_hidden": config.pop("inference_sees_hidden", False),
        "min_pseudo_noise": config.pop("min_pseudo_noise"),
        **({"heads": 4} if name == "attentive" else {}),
    }
    if header["class"] == "BNAM":
        config["transformer"] = {part: config.pop(part) for part in ("width", "blocks", "heads", "mlp")}
    return {**header, "class": "AttBNNP" if name == "attentive" else header["class"], "config": config}


def _with_todays_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under today's names, whatever version of the library wrote them."""

    def renamed(name: str) -> str:
        for before, today in NAMES_BEFORE.items():
            if name.startswith(before):
                return today + name.removeprefix(before)
        return name

    return {renamed(name): tensor for name, tensor in tensors.items()}


def _resolve(path: str) -> Path:
    if not path.startswith(ZOO):
        return Path(path) / "model.bnnp" if Path(path).is_dir() else Path(path)
    name = path.removeprefix(ZOO)
    if name not in zoo_names():
        raise ValueError(f"zoo model: got {name!r}, expected one of {', '.join(zoo_names()) or '(none are installed)'}")
    return Path(str(files("bnnp.zoo") / f"{name}.bnnp"))
