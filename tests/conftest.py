"""Shapes of all tensors that go in and out of the library's functions are checked while the tests run.

Switched on by `--jaxtyping-packages=bnnp,conftest.check_shapes`. Other types are left to pyright, so that tests can
hand wrong ones to the doors that refuse them.
"""

import functools
import random
import typing

from beartype import beartype
from jaxtyping import AbstractArray


def check_shapes(function):
    hints = {name: hint for name, hint in function.__annotations__.items() if has_shape(hint)}
    if not hints:
        return function
    function.__annotations__ = hints
    checked = beartype(function)

    @functools.wraps(function)
    def with_random_state_restored(*args, **kwargs):  # beartype looks at a random item of each list
        state = random.getstate()
        try:
            return checked(*args, **kwargs)
        finally:
            random.setstate(state)

    return with_random_state_restored


def has_shape(hint) -> bool:
    if isinstance(hint, str):
        return "Float[" in hint or "Bool[" in hint
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(has_shape(part) for part in typing.get_args(hint))
