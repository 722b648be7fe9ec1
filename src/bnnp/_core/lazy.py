"""Public names that are imported when they are first used (PEP 562), so that `import bnnp` itself costs little."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazily(package: str, places: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make `__getattr__` and `__dir__` of a package whose names are defined in other modules.

    Args:
        package: The package's `__name__`.
        places: For each name, the module that defines it; for a submodule, the submodule itself.

    Returns:
        What the package assigns to `__getattr__` and `__dir__`.

    Example:
        `__getattr__, __dir__ = lazily(__name__, {"tasks": "bnnp.tasks", "BNNP": "bnnp.models"})`
    """

    def look_up(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = importlib.import_module(places[name])
        value = found if places[name] == f"{package}.{name}" else getattr(found, name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return look_up, names


def later(place: str, name: str) -> Any:
    """A function of a room further right on the arrow, looked up when a method that stands for it is called.

    Args:
        place: The module that defines it.
        name: Its name.

    Example:
        `later("bnnp.evaluation.trust", "check")(post)`
    """
    return getattr(importlib.import_module(place), name)
