"""The command line, called within the test's own process."""

import sys

from bnnp.cli import main


def run(monkeypatch, capsys, *words) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    monkeypatch.setattr(sys, "argv", ["bnnp", *map(str, words)])
    code = 0
    try:
        main()
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err
