"""From a question of the page to the numbers of its picture, through the library's public functions alone."""

from collections.abc import Callable
from typing import Any

import numpy as np

import bnnp
from bnnp.app.gallery import Gallery
from bnnp.app.protocol import PICTURES, Question, question, whole
from bnnp.inference import METHODS
from bnnp.prediction.base import Predictive
from bnnp.tasks.source import Collection

LEVEL = 0.9
"""Probability of the band."""
CALIBRATED_AT_MOST = 200
"""Data sets that calibration looks at."""
EFFORT: dict[str, Any] = {"chains": 2, "warmup": 200}

Progress = Callable[[int, int], None]


def asked(gallery: Gallery, message: dict[str, Any]) -> Question:
    """The question in a message to this gallery."""
    model = gallery.model(0)
    return question(message, (model.in_size, model.y_size), len(gallery.models))


def picture(gallery: Gallery, message: dict[str, Any]) -> dict[str, Any]:
    """The picture that a message asks for.

    Args:
        gallery: Models and data sets.
        message: A message of the kind "picture".

    Raises:
        ValueError: If the message does not fit.
    """
    of = message.get("of")
    if of not in PICTURES:
        raise ValueError(f"of: got {str(of)[:40]}, expected one of {', '.join(PICTURES)}")
    asking = asked(gallery, message)
    return numbers(_posterior(gallery, of, asking).predict(asking.inputs), asking.functions)


def _posterior(gallery: Gallery, of: str, asking: Question) -> Any:
    model = gallery.model(asking.model, standard=of == "standard")
    choices: dict[str, Any] = {"num_samples": asking.samples, "seed": asking.seed}
    if of in ("prior", "standard"):
        return model.condition(asking.x[:0], asking.y[:0], **choices)
    if of == "online":
        post = model.condition(asking.x[: asking.first], asking.y[: asking.first], **choices)
        for i in range(asking.first, len(asking.x)):
            post = post.update(asking.x[i : i + 1], asking.y[i : i + 1])
        return post
    if of == "oracle":
        if gallery.oracle is None:
            raise ValueError("oracle: the source of these data sets does not know its exact posterior")
        return gallery.oracle.condition(asking.x, asking.y, **choices)
    return model.condition(asking.x, asking.y, **choices)


def inferred(gallery: Gallery, message: dict[str, Any], progress: Progress) -> dict[str, Any]:
    """The picture by another method of inference.

    Args:
        gallery: Models and data sets.
        message: A message of the kind "infer".
        progress: Called after every step; it may raise to end the work.

    Raises:
        ValueError: If the message does not fit.
    """
    method, asking = message.get("method"), asked(gallery, message)
    if method not in METHODS:
        raise ValueError(f"method: got {str(method)[:40]}, expected one of {', '.join(METHODS)}")
    model = gallery.model(asking.model, standard=message.get("of") == "standard")
    choices: dict[str, Any] = {"method": method, "num_samples": max(100, asking.samples), "seed": asking.seed, **EFFORT}
    post = bnnp.infer(model, asking.x, asking.y, progress=progress, **choices)
    return {**numbers(post.predict(asking.inputs), asking.functions), "warnings": list(post.diagnostics.warnings)}


def numbers(predictive: Predictive, functions: int) -> dict[str, Any]:
    """Mean, band and functions as plain lists, one list per output."""
    samples = predictive.samples
    if predictive.likelihood.real_valued:
        low, high = predictive.interval(LEVEL)
    else:  # probabilities, of which the band holds most functions
        low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    lines = {"mean": predictive.mean, "low": low, "high": high, "deviation": predictive.function_std}
    lists = {name: values.T.tolist() for name, values in lines.items()}
    return {**lists, "functions": samples[:functions].transpose(0, 2, 1).tolist()}


def subject(gallery: Gallery, message: dict[str, Any]) -> dict[str, Any]:
    """The points of one data set, and its true function where the source knows it."""
    number = whole(message, "number", 0, 2**31)
    task = gallery.subject(number)
    return {"name": task.name, "x": task.x.tolist(), "y": task.y.tolist(), "truth": gallery.function(number)}


def calibration(gallery: Gallery, message: dict[str, Any]) -> dict[str, Any]:
    """Scores over all data sets, each predicted from a part of its own points.

    Raises:
        ValueError: If there are no data sets.
    """
    if gallery.tasks is None:
        raise ValueError("calibration: there are no data sets; start the page with --table or --source")
    tasks = gallery.tasks
    if isinstance(tasks, Collection) and len(tasks) > CALIBRATED_AT_MOST:
        tasks = bnnp.tasks.from_arrays([(task.x, task.y) for task in tasks.tasks[:CALIBRATED_AT_MOST]])
    model = gallery.model(whole(message, "model", 0, len(gallery.models) - 1))
    scores = bnnp.evaluate(model, tasks, num_samples=32, seed=whole(message, "seed", 0, 2**31))
    return scores.to_dict()
