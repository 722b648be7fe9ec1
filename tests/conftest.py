"""Shapes of all tensors that go in and out of the library's functions are checked while the tests run.

Switched on by `--jaxtyping-packages=bnnp,conftest.check_shapes`. Other types are left to pyright, so that tests can
hand wrong ones to the doors that refuse them.
"""

import functools
import io
import random
import typing
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch
from beartype import beartype
from jaxtyping import AbstractArray

torch.set_warn_always(True)  # not only once in a process: else it would depend on the order of tests which one fails


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


def real_data(name: str) -> Path:
    """The folder of real data, of BNNP_DATA or beside the repository. Skips a test where it does not hold `name`."""
    from bnnp.tasks.datasets.folder import (
        chosen_folder,  # not above: shapes are checked in what is imported after this file
    )

    home = chosen_folder() or Path(__file__).parent.parent.parent / "shared" / "data"
    if not (home / name).is_file():
        pytest.skip(f"the real data are not there: set BNNP_DATA to a folder that holds {name}")
    return home


@pytest.fixture
def web(monkeypatch, tmp_path):
    """A cache of its own, no BNNP_DATA, and a web of one's making: a mapping from addresses to content."""
    pages: dict[str, bytes] = {}

    class Reply(io.BytesIO):
        headers: dict[str, str] = {}  # noqa: RUF012 (never changed)

    def urlopen(url: str, timeout: float) -> Reply:
        if url not in pages:
            raise urllib.error.URLError("no route to host")
        return Reply(pages[url])

    from bnnp.tasks.datasets import folder

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    monkeypatch.setattr(folder, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("BNNP_DATA", raising=False)
    return pages
