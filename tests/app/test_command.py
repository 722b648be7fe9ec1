"""`bnnp app` on the command line."""

import socket
import sys

import pytest

import bnnp
from support.command_line import run


@pytest.fixture
def saved(tmp_path):
    return bnnp.BNNP(1, 1, hidden=(4,)).save(tmp_path / "model.bnnp")


def test_it_writes_the_page_as_one_file(monkeypatch, capsys, tmp_path, saved):
    table = tmp_path / "table.csv"
    table.write_text("who,x0,y0\na,0,1\na,1,2\na,2,2\nb,0,3\nb,1,1\nb,2,0\n")
    out = tmp_path / "page.html"
    code, said, _ = run(monkeypatch, capsys, "app", saved, "--table", table, "--task", "who", "--export", out)
    assert code == 0
    assert said == f"wrote {out}\n"
    assert '"names": ["a", "b"]' in out.read_text()


@pytest.mark.parametrize(
    ("words", "reason"),
    [(("--table", "table.csv"), "--task"), (("--source", "nowhere"), "expected one of")],
)
def test_data_sets_that_are_not_there_are_refused(monkeypatch, capsys, saved, words, reason):
    code, _, complaint = run(monkeypatch, capsys, "app", saved, *words)
    assert code == 2
    assert reason in complaint


def test_a_port_that_is_taken_is_refused(monkeypatch, capsys, saved):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        code, _, complaint = run(monkeypatch, capsys, "app", saved, "--port", other.getsockname()[1])
    assert code == 2
    assert "another --port" in complaint


def test_without_the_extra_it_says_what_to_install(monkeypatch, capsys, saved):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, complaint = run(monkeypatch, capsys, "app", saved)
    assert code == 2
    assert "pip install 'bnnp[app]'" in complaint
