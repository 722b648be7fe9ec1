"""Every message that `docs/troubleshooting.md` quotes is one that the code can give."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUOTED = re.findall(r"^### `(.+)`$", (ROOT / "docs" / "troubleshooting.md").read_text(), flags=re.M)
VARIES = "\x00"


def text_of(node: ast.AST) -> str:
    """A string in the code, with one mark in the place of whatever is filled in; empty for other nodes."""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(part) or VARIES for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


@pytest.fixture(scope="module")
def messages() -> list[str]:
    """All strings of the library, docstrings and comments aside."""
    found = []
    for path in (ROOT / "src" / "bnnp").rglob("*.py"):
        tree = ast.parse(path.read_text())
        statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [text_of(node) for node in ast.walk(tree) if id(node) not in statements]
    return [text for text in found if text]


def is_given(quoted: str, messages: list[str]) -> bool:
    """Whether some message has all parts of the quoted one, in their order."""
    parts = [re.escape(part) for part in quoted.strip(". ").split("...") if part.strip(": ")]
    return any(re.search(".*".join(parts), text, flags=re.S) for text in messages)


@pytest.mark.parametrize("quoted", QUOTED)
def test_a_message_on_the_page_is_one_of_the_code(quoted, messages):
    assert is_given(quoted, messages)


def test_a_message_that_nobody_gives_is_found(messages):
    assert len(QUOTED) > 30
    assert not is_given("column ...: got ... columns of this name, expected two", messages)
    assert not is_given("Read what is beside the model.", messages)
