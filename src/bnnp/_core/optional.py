"""Packages that only some users need. They are imported when they are used."""

import importlib
from types import ModuleType


def optional_module(name: str, purpose: str, extra: str) -> ModuleType:
    """Import a module that not every user has installed.

    Args:
        name: The module.
        purpose: What it is for, for the error.
        extra: The extra of this package that brings it, as in "data".

    Raises:
        ImportError: If it is not installed; the message says how to install it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{purpose} needs {name.split('.')[0]} ({error}): pip install 'bnnp[{extra}]'") from error
