"""The code stays small: its files, its functions, their arguments, and nothing is written twice.

`pytest -s tests/project/test_measures.py -k median` prints the numbers of today.
"""

import ast
import inspect
import re
import statistics
from collections.abc import Iterable, Iterator
from pathlib import Path

import bnnp
from support.examples import public_objects

SOURCE = Path(__file__).parents[2] / "src" / "bnnp"
FILES = sorted(path for path in SOURCE.rglob("*") if path.suffix in {".py", ".js", ".css", ".html"})
COMMANDS = SOURCE / "cli"
COMPILED = SOURCE / "numerics" / "backends" / "numba"
LINES_OF_A_FILE, LINES_OF_A_FUNCTION, LINES_OF_THE_MEDIAN = 300, 40, 10
PARAMETERS = 8
EQUAL_LINES = 6
IMPORT = re.compile(r"import |from .* import")
DATA = {"model", "tasks", "in_size", "out_size", "x_names", "y_names"}
"""Arguments that say what is learned from, its sizes and names included: all others are choices."""


def functions(file: Path) -> Iterator[tuple[str, int]]:
    """The functions of a file, each with its number of lines.

    Docstrings and decorators do not count, nor does the signature of a command: it has one line per option.
    """
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None and len(node.body) > 1 else node.body
            signature = 0 if file.parent == COMMANDS else node.body[0].lineno - node.lineno
            yield node.name, signature + (node.end_lineno or 0) - body[0].lineno + 1


def runs(files: Iterable[Path]) -> Iterator[tuple[tuple[str, ...], str]]:
    """All runs of `EQUAL_LINES` lines and where each begins, without indentation, imports and lines without a word."""
    for file in files:
        numbered = [(number, line.strip()) for number, line in enumerate(file.read_text().splitlines(), 1)]
        kept = [(number, line) for number, line in numbered if re.search(r"\w", line) and not IMPORT.match(line)]
        for start in range(len(kept) - EQUAL_LINES + 1):
            some = kept[start : start + EQUAL_LINES]
            yield tuple(line for _, line in some), f"{file.name}:{some[0][0]}"


def equal_runs(files: Iterable[Path]) -> list[list[str]]:
    """The places of runs of lines that stand in more than one place."""
    found: dict[tuple[str, ...], list[str]] = {}
    for lines, place in runs(files):
        found.setdefault(lines, []).append(place)
    return [places for places in found.values() if len(places) > 1]


def test_no_file_is_long():
    lengths = {path.name: len(path.read_text().splitlines()) for path in FILES}
    assert {name: length for name, length in lengths.items() if length > LINES_OF_A_FILE} == {}


def test_no_function_is_long_but_the_compiled_loops():
    files = [path for path in FILES if path.suffix == ".py" and COMPILED not in path.parents]
    found = [(path.name, *function) for path in files for function in functions(path)]
    assert [function for function in found if function[2] > LINES_OF_A_FUNCTION] == []


def test_the_median_function_is_short():
    lengths = [length for path in FILES if path.suffix == ".py" for _, length in functions(path)]
    print(f"{len(lengths)} functions in {len(FILES)} files, median {statistics.median(lengths)} lines")
    assert statistics.median(lengths) < LINES_OF_THE_MEDIAN


def test_fit_and_constructors_take_few_choices():
    classes = [found for found in public_objects() if inspect.isclass(found[1]) and not issubclass(found[1], Warning)]
    called = {"fit": bnnp.fit, **dict(classes)}
    assert len(called) > 50
    found = {name: set(inspect.signature(thing).parameters) - DATA for name, thing in called.items()}
    assert {name: len(choices) for name, choices in found.items() if len(choices) > PARAMETERS} == {}


def test_nothing_is_written_twice():
    assert equal_runs(path for path in FILES if path.suffix in {".py", ".js"}) == []


def test_what_is_written_twice_is_found(tmp_path):
    lines = [f"{name} = {name}()" for name in "abcdef"]
    for name, indent in {"one": "", "two": "    "}.items():
        (tmp_path / f"{name}.py").write_text("\n".join(indent + line for line in ["first", "", *lines]))
    (tmp_path / "three.py").write_text("\n".join(lines[:5]))
    (places,) = equal_runs(sorted(tmp_path.glob("*.py")))[-1:]
    assert places == ["one.py:3", "two.py:3"]


def test_the_length_of_a_function_is_that_of_its_code(tmp_path):
    (tmp_path / "a.py").write_text('@decorated\ndef f(\n    a\n):\n    """Says\n    so."""\n    return a\n')
    assert list(functions(tmp_path / "a.py")) == [("f", 4)]
