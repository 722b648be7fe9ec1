"""The reference has every public name, and every public name has an example that runs."""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest

from bnnp.inference.mcmc.chains import Sampler
from support.examples import failures, namespace, public_objects
from support.inference import warns_of_short_chains

ROOT = Path(__file__).parents[2]
PUBLIC = dict(public_objects())
MOST_LINES = 12
NUMBERS = r"tensor\(|array\(|\[\d+ rows x"
"""What an object that shows all its numbers has in its text."""


@pytest.fixture(scope="module")
def names():
    return namespace()


def test_the_reference_has_every_public_name_once():
    pages = "\n".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    listed = re.findall(r"^::: (bnnp[\w.]+)$", pages, flags=re.M)
    assert sorted(listed) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_that_runs(name, names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    thing = PUBLIC[name]
    with warns_of_short_chains(inspect.isclass(thing) and issubclass(thing, Sampler)):
        count, wrong, made = failures(name, thing, names)
    assert count > 0, f"{name} has no example"
    assert not wrong, wrong
    shown = [repr(value) for value in made if type(value) in PUBLIC.values()]
    assert [text for text in shown if len(text.splitlines()) > MOST_LINES or re.search(NUMBERS, text)] == []


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if dataclasses.is_dataclass(thing)])
def test_comparing_records_never_compares_arrays(name):
    """Whose comparison gives an array, of which Python cannot say whether it is true."""
    record = PUBLIC[name]
    if record.__dataclass_params__.eq:
        kinds = [str(field.type) for field in dataclasses.fields(record)]
        assert not re.search(r"(Float|Bool|Int)\[|ndarray|DataFrame", " ".join(kinds))


def test_an_example_that_does_not_hold_is_found(names):
    def wrong():
        """A thing.

        Example:
            >>> 1 + 1
            3
        """

    assert failures("wrong", wrong, names)[1]
