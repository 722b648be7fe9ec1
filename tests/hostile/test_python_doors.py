"""Every public function refuses bad arguments where they enter, by a message that names them, and writes nothing."""

import pytest

from hostile.python_cases import INSTEAD, cases

CASES = list(cases())


@pytest.mark.parametrize(("call", "argument"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_bad_argument_is_refused(call, argument, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (name,) = argument
    with pytest.raises((ValueError, FileNotFoundError), match=f"{name}|{INSTEAD}") as refused:
        call(**argument)
    assert any(word in str(refused.value) for word in ("got", "expected", "no such"))
    assert not list(tmp_path.iterdir())


def test_there_are_at_least_400_bad_arguments():
    assert len(CASES) >= 400
