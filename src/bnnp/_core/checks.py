"""Checks of what users give. Every public function calls these, so that a wrong argument is refused where it enters.

Every message says what it got, what was expected, and how to cure it.
"""

import math
from collections.abc import Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import torch


def is_number(value: Any) -> bool:
    """Whether a user's choice is a finite number."""
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return real and bool(abs(value) < math.inf)


def is_whole(value: Any) -> bool:
    """Whether a user's choice is a whole number, written without a decimal point."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_count(name: str, value: Any, expected: str) -> None:
    """Refuse a value that is not a positive whole number.

    Args:
        name: The argument's name, for the error.
        value: What the user gave.
        expected: What it should count, with an example, for the error.

    Raises:
        ValueError: If the value is not a positive whole number.
    """
    if not is_whole(value) or value < 1:
        raise ValueError(f"{name}: got {value!r}, expected a positive {expected}")


def check_fields(record: Any, **least: int) -> None:
    """Refuse a record of choices in which a field is not of the kind of its default.

    Where the default is a whole number, a field is a positive whole number; where it is a fraction, a positive number;
    where it is True or False, one of these. Other fields are not looked at.

    Args:
        record: A dataclass.
        **least: The smallest value of fields that may be 0, by name.

    Raises:
        ValueError: If a field is of another kind.
    """
    for field in fields(record):
        value, default = getattr(record, field.name), field.default
        if isinstance(default, bool):
            check_flag(field.name, value)
        elif isinstance(default, int) and not (is_whole(value) and value >= least.get(field.name, 1)):
            raise ValueError(
                f"{field.name}: got {value!r}, expected a whole number, at least {least.get(field.name, 1)}, as in "
                f"{default or 10}"
            )
        elif isinstance(default, float):
            check_positive(field.name, value, f"as in {default:g}")


def check_samples(num_samples: Any) -> None:
    """Refuse a number of samples that is not a positive whole number."""
    check_count("num_samples", num_samples, "whole number of samples, as in 1000")


def check_sizes(name: str, values: Any) -> tuple[int, ...]:
    """The sizes of layers as a tuple.

    Raises:
        ValueError: If these are not positive whole numbers.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ValueError(f"{name}: got {values!r}, expected the units of every hidden layer, as in (64, 64)")
    sizes = tuple(values)
    if not all(is_whole(size) and size >= 1 for size in sizes):
        raise ValueError(f"{name}: got {values!r}, expected positive whole numbers of units, as in (64, 64)")
    return tuple(int(size) for size in sizes)


def check_positive(name: str, value: Any, example: str) -> None:
    """Refuse a value that is not a positive finite number."""
    if not (is_number(value) and value > 0):
        raise ValueError(f"{name}: got {value!r}, expected a positive number, {example}")


def check_flag(name: str, value: Any) -> None:
    """Refuse a value that is neither True nor False."""
    if not isinstance(value, bool | np.bool_):
        raise ValueError(f"{name}: got {value!r}, expected True or False")


def check_dtype(dtype: Any) -> torch.dtype:
    """The precision of a model, if it is one that models can have."""
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype: got {dtype!r}, expected torch.float32 or torch.float64")
    return dtype


def check_choice(name: str, value: Any, choices: Iterable[str]) -> None:
    """Refuse a value that is not one of the names."""
    known = list(choices)
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name}: got {value!r}, expected one of {', '.join(known)}")


def check_kind(name: str, value: Any, kind: Any, expected: str) -> None:
    """Refuse an object of another class.

    Args:
        name: The argument's name, for the error.
        value: What the user gave.
        kind: The class or classes that it may have.
        expected: What it should be, with an example, for the error.
    """
    if not isinstance(value, kind):
        raise ValueError(f"{name}: got {value!r}, expected {expected}")
