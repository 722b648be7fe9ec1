"""Bad values of every kind of argument."""

import math
from typing import Any

import numpy as np
import pandas as pd
import torch

COUNTS: list[Any] = [0, -1, 2.5, "3", True, math.nan]
POSITIVE: list[Any] = [0, -1.0, math.nan, math.inf, "0.1", True]
NAMES: list[Any] = ["nonsense", 7, ""]
SEEDS: list[Any] = [1.5, "0", None, True, 2**64, -(2**63) - 1]
FLAGS: list[Any] = ["yes", 2, None]
KINDS: list[Any] = ["gaussian", 3, object]
NO_PATHS: list[Any] = ["", " ", None, 3, b"run", ["run"], "run\0", math.nan]
SHARES: list[Any] = [-0.1, 1.1, math.nan, "half"]
MATRICES: dict[str, Any] = {
    "a number": 3.0,
    "text": ["a", "b", "c"],
    "numbers as text": ["1", "2", "3"],
    "nothing": None,
    "NaN": [0.0, math.nan, 1.0],
    "infinity": [0.0, math.inf, 1.0],
    "ragged": [[1.0], [1.0, 2.0], [3.0]],
    "too many columns": np.zeros((3, 2)),
    "three axes": np.zeros((3, 1, 1)),
    "masked": np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False]),
    "dates": np.array(["2020-01-01", "2020-01-02", "2020-01-03"], dtype="M8[D]"),
    "durations": np.array([1, 2, 3], dtype="m8[h]"),
    "complex": np.array([1.0, 2j, 3.0]),
    "a complex tensor": torch.tensor([1.0, 2j, 3.0]),
    "objects": np.array([object(), object(), object()]),
    "text among objects": np.array([1.0, "2", 3.0], dtype=object),
    "none among objects": np.array([1.0, None, 3.0], dtype=object),
    "a frame of text": pd.DataFrame({"a": ["p", "q", "r"]}),
    "a frame of dates": pd.DataFrame({"a": pd.to_datetime(["2020-01-01"] * 3)}),
    "a frame with a missing cell": pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64")}),
    "a dict": {"x": 1},
    "a set": {1.0, 2.0, 3.0},
    "huge": [0.0, 1e300, 1.0],
    "larger than any float": [0.0, 10**400, 1.0],
}
