"""Checks of numbers that a user gives."""

import math
from typing import Any

import numpy as np


def is_number(value: Any) -> bool:
    """Whether a user's choice is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def check_count(name: str, value: Any, expected: str) -> None:
    """Refuse a value that is not a positive whole number.

    Args:
        name: The argument's name, for the error.
        value: What the user gave.
        expected: What it should count, with an example, for the error.

    Raises:
        ValueError: If the value is not a positive whole number.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name}: got {value!r}, expected a positive {expected}")
