"""Every verb refuses bad commands with exit code 2 and a message in its own words, and writes nothing."""

import re

import pandas as pd
import pytest

import bnnp
from hostile.command_cases import cases
from hostile.tables import FILES, KNOWN, OTHERS
from support.command_line import run

CASES = list(cases())


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The files that commands name, and models of both kinds that were trained on them."""
    folder = tmp_path_factory.mktemp("inputs")
    found = {"folder": folder / "folder", "nowhere": folder / "nowhere.csv"}
    found["folder"].mkdir()
    for name, (file, content) in {**FILES, **OTHERS}.items():
        found[name] = folder / file
        found[name].write_bytes(content)
    tasks = bnnp.tasks.from_table(found["known"], task="subject", x="hour", y="level")
    for name, model in (
        ("model", bnnp.BNNP(1, 1, hidden=(4,))),
        ("peer", bnnp.neural_processes.CNP(1, 1, hidden=(4,))),
    ):
        bnnp.fit(model, tasks, steps=2, progress=False)
        found[name] = model.save(folder / f"{name}.bnnp")
    return found


@pytest.mark.parametrize(("words", "message"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_bad_command_is_refused(words, message, places, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "1000")
    before = {place: place.read_bytes() for place in places.values() if place.is_file()}
    code, out, err = run(monkeypatch, capsys, *(word.format_map(places) for word in words))
    assert code == 2, (out, err)
    assert re.search(message, err, re.DOTALL), err
    assert "should not happen" not in err
    assert "Traceback" not in err
    assert not list(tmp_path.rglob("*"))
    assert {place: place.read_bytes() for place in before} == before


def test_there_are_at_least_400_bad_commands():
    assert len(CASES) >= 400


def test_debug_shows_the_traceback(places, monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, "info", places["empty"], "--debug")
    assert code == 2
    assert "Traceback" in err
    assert "error: " in err


def test_an_error_of_any_kind_is_a_message(places, monkeypatch, capsys):
    monkeypatch.setattr("bnnp.load", lambda path: {}["nothing"])
    code, _, err = run(monkeypatch, capsys, "info", places["model"])
    assert code == 2
    assert "error: KeyError: 'nothing'; this should not happen: --debug shows where it did" in err
    assert "Traceback" not in err


def test_the_files_that_bad_commands_name_are_fine_by_themselves(places, monkeypatch, capsys, tmp_path):
    words = ["--context", places["known"], "--targets", places["wanted"], "--out", tmp_path / "p.csv"]
    code, _, err = run(monkeypatch, capsys, "predict", places["model"], *words, "--samples", 4)
    assert code == 0, err
    assert KNOWN.splitlines()[0].split(",")[0] in pd.read_csv(tmp_path / "p.csv").columns
