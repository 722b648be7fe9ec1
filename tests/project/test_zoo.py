"""What is said of the models that ship is what their records say."""

import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ZOO = ROOT / "src" / "bnnp" / "zoo"
RECORDS = sorted(ZOO.glob("*.json"))


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.stem)
@pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="benchmarks are not in the sdist")
def test_the_readme_of_models_that_ship_says_what_their_records_say(file: Path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    for name in ("zoo", "processes"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    zoo = import_module("zoo")
    sections = [part.strip() for part in (ZOO / "README.md").read_text().split("\n## ")[1:]]
    assert zoo.section(json.loads(file.read_text())).strip() in sections


def test_models_of_the_one_recipe_have_records():
    assert {file.stem for file in RECORDS} == {file.stem for file in ZOO.glob("*.bnnp")} - {"heaviside"}
