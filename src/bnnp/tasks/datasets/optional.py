"""Packages that only some data sets need: imported when they are used."""

import importlib
from types import ModuleType


def optional_module(name: str, purpose: str, extra: str) -> ModuleType:
    """A module by its name, or an error that says what it is for and how to install it.

    extra: the extra of this package that brings it, as in "data".
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{purpose} needs {name.split('.')[0]} ({error}): pip install 'bnnp[{extra}]'") from error
