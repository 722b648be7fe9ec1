"""A command stands beside every table of measured numbers in a document, and kept results say what made them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import harness
from bnnp.cli import app

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
DOCUMENTS = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "src").rglob("*.md")),
    EXPERIMENTS / "RESULTS.md",
    *sorted(EXPERIMENTS.glob("*/README.md")),
]
EACH_DOCUMENT = pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
CODE = re.compile(r"```\w*\n(.*?)```|`((?:[^`\n]|\n(?!\n))+)`|^    ([^\n]+)$", flags=re.M | re.S)
COMMAND = re.compile(r"(?:^|\s)(bnnp|make|python|pytest)\s+(\S+)")
VERBS = set(typer.main.get_command(app).commands)  # pyright: ignore
OLDER = "with starts that have since been removed; they will be made again"
"""What the README of an experiment says if its settings have changed since its records were made."""
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.M))


def sections(document: Path) -> list[str]:
    """From one heading to the next. The README of an experiment, or a model card, has one command for all of it."""
    text = document.read_text()
    whole = EXPERIMENTS in document.parents or document.parent.name == "cards"
    return [text] if whole else re.split(r"^(?=#+ )", text, flags=re.M)


def measured_tables(section: str) -> Iterator[str]:
    """Tables of which more than a quarter of the cells, those of the first column aside, hold decimal numbers."""
    for table in re.findall(r"(?:^\|.*\n)+", section, flags=re.M):
        cells = [cell for row in table.splitlines()[2:] for cell in row.strip("|").split("|")[1:]]
        if 4 * sum(bool(re.search(r"\d\.\d", cell)) for cell in cells) > len(cells):
            yield table


def commands(section: str) -> list[tuple[str, str]]:
    """The commands that a section shows as code, each with its first argument."""
    return [found for code in CODE.findall(section) for found in COMMAND.findall(max(code))]


def exists(program: str, argument: str) -> bool:
    if program == "bnnp":
        return argument in VERBS
    return argument in TARGETS if program == "make" else argument.startswith("-") or (ROOT / argument).is_file()


def without_command(section: str) -> list[str]:
    """The first lines of the tables in a section for which it shows no command that can be given."""
    if any(exists(*command) for command in commands(section)):
        return []
    return [table.splitlines()[0] for table in measured_tables(section)]


@EACH_DOCUMENT
def test_a_command_stands_beside_every_table_of_measured_numbers(document):
    assert [first for section in sections(document) for first in without_command(section)] == []


@EACH_DOCUMENT
def test_scripts_and_targets_that_documents_tell_to_run_exist(document):
    named = commands(document.read_text())
    assert [words for words in named if words[0] == "make" or words[1].endswith(".py") if not exists(*words)] == []


def test_a_table_without_a_command_is_found():
    table = "| data | error |\n|---|---|\n| a | 0.1 |\n"
    assert without_command(table) == ["| data | error |"]
    assert without_command(f"We make up numbers.\n\n{table}") == ["| data | error |"]
    assert without_command(f"`python benchmarks/nowhere.py`:\n\n{table}") == ["| data | error |"]
    assert without_command(f"`OMP_NUM_THREADS=1 python benchmarks/growth.py`:\n\n{table}") == []
    assert without_command(f"    bnnp bench --repeats 3\n\n{table}") == []
    assert without_command(table.replace("0.1", "tenth")) == []


@pytest.mark.parametrize("name", harness.experiment_names(EXPERIMENTS))
def test_kept_results_are_of_todays_settings_or_their_readme_says_that_they_are_older(name):
    """So the experiment's command makes its tables from them again, without doing a run."""
    planned = harness._module(EXPERIMENTS / name).runs("small")
    place = EXPERIMENTS / name / "results" / "small"
    assert {path.stem for path in (place / "runs").glob("*.json")} == set(planned)
    other = [key for key in planned if harness._done(place, key, planned) is None]
    readme = " ".join((EXPERIMENTS / name / "README.md").read_text().split())
    assert bool(other) == (OLDER in readme), other


@pytest.mark.parametrize("name", harness.experiment_names(EXPERIMENTS))
def test_kept_results_are_compact_and_say_what_made_them(name):
    for file in (EXPERIMENTS / name / "results" / "small" / "runs").glob("*.json"):
        record = json.loads(file.read_text())
        assert re.match(r"[0-9a-f]{7,}", record["made_by"]["commit"])
        assert {"bnnp", "torch", "numpy", "numba"} <= set(record["made_by"])
        assert file.read_text() == json.dumps(record, separators=(",", ":"))
