"""The messages between the page and the server: JSON objects, one per message of a WebSocket.

The page sends, with a number `id` of its own that the answer repeats:

    {"kind": "picture", "of": "posterior", ...question}   predictions of the model; also of "prior", "standard" (the
                                                          prior that training starts from), "online" and "oracle"
    {"kind": "infer", "method": "nuts", "of": "learned", ...question}     the same by another method, in the background,
                                                          under the learned prior or the "standard" one
    {"kind": "calibration", "model": 0, "seed": 0}        coverage over all data sets, in the background
    {"kind": "subject", "number": 3}                      the points of one data set
    {"kind": "cancel"}                                    ends all other inference in the background

A question is

    {"model": 0, "x": [[0.5], ...], "y": [[1.2], ...], "seed": 0, "samples": 32, "functions": 20,
     "axes": [{"input": 0, "low": -2, "high": 2, "count": 200}], "fixed": [0], "first": 3}

with one axis for curves or two for maps, a value for every input in `fixed`, and in `first` how many points came before
online updates. The server sends, first, {"kind": "hello", ...} with what `Gallery.describe` gives, and then answers:
"picture", "subject", "calibration", "progress" (`done` of `steps`), or "error" with a `message`. A message that is
asked again before its turn replaces the one before, which is never answered.
"""

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

LARGEST_MESSAGE = 2**18
"""Bytes of a message; the server closes the connection over a larger one."""
MOST_POINTS, MOST_SAMPLES, MOST_FUNCTIONS, MOST_INPUTS = 1000, 512, 50, 4096
PICTURES = ("posterior", "prior", "standard", "online", "oracle")
KINDS = ("picture", "infer", "calibration", "subject", "cancel")


@dataclass(frozen=True, eq=False)
class Question:
    """What a picture is asked for.

    Attributes:
        model: Number of the model.
        x: Inputs of the points.
        y: Outputs of the points.
        seed: Seed of all draws.
        samples: Samples of the hidden layers.
        functions: Functions to show.
        inputs: Inputs to predict at.
        first: How many points came before online updates.
    """

    model: int
    x: np.ndarray
    y: np.ndarray
    seed: int
    samples: int
    functions: int
    inputs: np.ndarray
    first: int


def parse(text: str | bytes) -> dict[str, Any]:
    """A message of the page.

    Raises:
        ValueError: If it is not a JSON object of a known kind.
    """
    try:
        message = json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        raise ValueError("message: got something else than JSON, expected a JSON object") from None
    if not isinstance(message, dict) or message.get("kind") not in KINDS:
        raise ValueError(f"message: expected an object whose kind is one of {', '.join(KINDS)}")
    return message


def question(message: dict[str, Any], sizes: tuple[int, int], models: int) -> Question:
    """The question that a message holds.

    Args:
        message: The message.
        sizes: Input and output columns of the models.
        models: Number of models.

    Raises:
        ValueError: If a part is missing, of the wrong kind or too large.
    """
    x, y = (_matrix(message, name, columns) for name, columns in zip("xy", sizes, strict=True))
    if len(x) != len(y):
        raise ValueError(f"x and y: got {len(x)} and {len(y)} points, expected as many of each")
    return Question(
        model=whole(message, "model", 0, models - 1),
        x=x,
        y=y,
        seed=whole(message, "seed", 0, 2**31),
        samples=whole(message, "samples", 2, MOST_SAMPLES),
        functions=whole(message, "functions", 0, MOST_FUNCTIONS),
        inputs=_grid(message, sizes[0]),
        first=whole({"first": len(x), **message}, "first", 0, len(x)),
    )


def whole(message: dict[str, Any], name: str, least: int, most: int) -> int:
    """A whole number of a message, within bounds."""
    value = message.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name}: got {str(value)[:40]}, expected a whole number from {least} to {most}")
    return value


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name}: got {str(value)[:40]}, expected a finite number")
    return float(value)


def _matrix(message: dict[str, Any], name: str, columns: int) -> np.ndarray:
    rows = message.get(name)
    if not isinstance(rows, list) or len(rows) > MOST_POINTS:
        raise ValueError(f"{name}: expected a list of at most {MOST_POINTS} points")
    if not all(isinstance(row, list) and len(row) == columns for row in rows):
        raise ValueError(f"{name}: expected a list of {columns} numbers for every point")
    return np.array([[_number(value, name) for value in row] for row in rows]).reshape(len(rows), columns)


def _grid(message: dict[str, Any], columns: int) -> np.ndarray:
    """Inputs to predict at: a line along one axis, or all pairs of two; the other inputs are fixed."""
    axes, fixed = message.get("axes"), message.get("fixed")
    if not isinstance(axes, list) or len(axes) not in (1, 2) or not all(isinstance(axis, dict) for axis in axes):
        raise ValueError("axes: expected one axis or two")
    if not isinstance(fixed, list) or len(fixed) != columns:
        raise ValueError(f"fixed: expected {columns} numbers, one for each input")
    lines = [_line(axis) for axis in axes]
    if math.prod(map(len, lines)) > MOST_INPUTS:
        raise ValueError(f"axes: expected at most {MOST_INPUTS} inputs to predict at")
    inputs = np.tile([_number(value, "fixed") for value in fixed], (math.prod(map(len, lines)), 1))
    for axis, values in zip(axes, np.meshgrid(*lines, indexing="ij"), strict=True):
        inputs[:, whole(axis, "input", 0, columns - 1)] = values.ravel()
    return inputs


def _line(axis: dict[str, Any]) -> np.ndarray:
    low, high = (_number(axis.get(end), end) for end in ("low", "high"))
    return np.linspace(low, high, whole(axis, "count", 1, MOST_INPUTS))
