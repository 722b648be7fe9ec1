"""A command stands beside every table of measured numbers in a document, and kept results say what made them."""

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import typer

import harness
import results
from bnnp.cli import app
from records import record_file, settings_file

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


def plans() -> list[harness.Plan]:
    """All experiments at all scales at which there are records."""
    found = [
        harness.plan_of(EXPERIMENTS, name, scale)
        for name in harness.experiment_names(EXPERIMENTS)
        for scale in harness.SCALES
        if settings_file(EXPERIMENTS / name, scale).is_file()
    ]
    return [plan for plan in found if plan.kept().records]


def test_the_page_of_results_says_what_the_records_say():
    """Its statements follow from the records: one that they contradict cannot stand here."""
    assert (EXPERIMENTS / "RESULTS.md").read_text() == results.text(), "give python experiments/results.py"


def test_tables_are_what_the_records_say(tmp_path):
    for plan in plans():
        place = tmp_path / plan.experiment.name / plan.scale
        shutil.copytree(plan.place / "runs", place / "runs")
        tables = {
            file.name: file for file in harness.report_of(replace(plan, place=place)).files if file.suffix == ".md"
        }
        assert {file.name for file in plan.place.glob("*.md")} == set(tables), f"{plan.experiment.name}: report anew"
        for name, file in tables.items():
            assert file.read_text() == (plan.place / name).read_text(), f"{plan.experiment.name}: report anew"


def test_no_table_stands_without_records():
    """Records that were taken away, or are all stale, take their tables with them."""
    for name in harness.experiment_names(EXPERIMENTS):
        for table in (EXPERIMENTS / name).glob("results/*/*.md"):
            assert harness.plan_of(EXPERIMENTS, name, table.parent.name).kept().results(), f"{table}: delete it"


def test_a_record_that_says_otherwise_changes_the_page(tmp_path):
    (tmp_path / "toy" / "settings").mkdir(parents=True)
    settings_file(tmp_path / "toy", "small").write_text("{}")
    (tmp_path / "toy" / "run.py").write_text(TOY)
    plan = harness.plan_of(tmp_path, "toy", "small")
    assert "**not run**" in results.text(tmp_path)
    harness.perform(tmp_path, "toy", "small")
    before = results.text(tmp_path)
    assert "| 0.50 ± 0.10 | 4 | **holds** |" in before
    file = record_file(plan.place, "gain")
    record = json.loads(file.read_text())
    file.write_text(json.dumps(record | {"result": [-0.5, 0.1]}))
    assert "**does not hold**" in results.text(tmp_path)
    file.write_text(json.dumps(record | {"frozen": "0" * 12}))
    assert "**not run**" in results.text(tmp_path)
    assert "1 stale records are left out" in results.text(tmp_path)


TOY = """
from claims import Claim
from harness import Run
from score_tables import text_of

def runs(settings):
    return {"gain": Run(gain, {})}

def gain():
    return [0.5, 0.1]

def report(settings, results, folder):
    return []

def claims(settings, results):
    found = tuple(results.get("gain", (float("nan"), 0.0)))
    return [Claim("4.1", "ours is better", ours="", trivial=text_of(found), gain=found, seeds=4)]
"""


def test_settings_choose_what_their_search_found_best():
    for plan in plans():
        assert "not those" not in results.searched(plan), plan.experiment.name


@pytest.mark.parametrize("name", harness.experiment_names(EXPERIMENTS))
def test_a_readme_of_an_experiment_has_no_numbers_of_its_own(name):
    assert list(measured_tables((EXPERIMENTS / name / "README.md").read_text())) == []


@pytest.mark.parametrize("name", harness.experiment_names(EXPERIMENTS))
def test_kept_results_are_compact_and_say_what_made_them(name):
    for file in (EXPERIMENTS / name).glob("*/*/runs/*.json"):
        record = json.loads(file.read_text())
        assert re.match(r"[0-9a-f]{7,}$", record["made_by"]["commit"]), f"{file.name}: made by changed code"
        assert {"bnnp", "torch", "numpy", "numba"} <= set(record["made_by"])
        assert record["seconds"] >= 0
        assert file.read_text() == json.dumps(record, separators=(",", ":"))
