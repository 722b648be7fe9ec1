"""Checks of numbers that a user gives."""

import math
from typing import Any

import numpy as np


def is_number(value: Any) -> bool:
    """Whether a user's choice is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_count(name: str, value: Any, expected: str) -> None:
    """Refuse what is not a positive whole number.

    Raises:
        ValueError: If it is not; `expected` says what it is a number of, and gives an example.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name}: got {value!r}, expected a positive {expected}")
