"""The door is light: heavy packages are imported where they are used, and every public name is there nevertheless."""

import ast
import resource
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

import bnnp

HEAVY = (
    "arviz_stats",
    "h5py",
    "joblib",
    "matplotlib",
    "pandas",
    "pyarrow",
    "rich",
    "scoringrules",
    "sklearn",
    "typer",
    "xarray",
)
COMPILERS = ("numba", "llvmlite", "scipy")
"""What the compiled loops bring along, when they are first called."""
FIRST_USE = "bnnp.BNNP(1, 1, (4,)); bnnp.fit; bnnp.tasks.sawtooth(); bnnp.infer; bnnp.evaluate; bnnp.plots.functions"
ROUNDS = 7
ALLOWED_RATIO = 1.5
ALLOWED_SECONDS_OF_HELP = 2.0


def imported_after(code: str) -> set[str]:
    """The modules, by their first name, that a fresh process has imported after running some code."""
    words = f"import sys; {code}; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    return set(subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_library_imports_nothing_heavy():
    assert not imported_after("import bnnp") & {*HEAVY, *COMPILERS, "torch"}


def test_nor_does_the_first_use_of_its_parts():
    found = imported_after(f"import bnnp; {FIRST_USE}")
    assert "torch" in found
    assert not found & {*HEAVY, *COMPILERS}


def test_the_help_of_the_command_line_needs_neither_figures_nor_tables():
    found = imported_after("import bnnp.cli.entry")
    assert not found & (set(HEAVY) - {"typer", "rich"})


def test_nothing_that_only_unix_has_is_imported_with_the_library():
    hidden = "import sys; sys.modules.update(dict.fromkeys(('fcntl', 'grp', 'pwd', 'resource', 'termios')))"
    imported_after(f"{hidden}; import bnnp; {FIRST_USE}; import bnnp.cli.entry")


def test_every_public_name_is_there_and_the_type_checkers_list_is_the_same():
    for name in bnnp.__all__:
        assert getattr(bnnp, name) is not None
    assert set(bnnp.__all__) <= set(dir(bnnp))
    tree = ast.parse(Path(str(bnnp.__file__)).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    listed = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }
    wanted = {name: "bnnp" if place == f"bnnp.{name}" else place for name, place in bnnp._PLACES.items()}
    assert listed == wanted


def test_a_name_that_does_not_exist_is_refused_as_usual():
    with pytest.raises(AttributeError, match="module 'bnnp' has no attribute 'nonsense'"):
        bnnp.nonsense  # noqa: B018 # pyright: ignore


def seconds(code: str) -> float:
    """Of the processor, for a fresh process: what else the machine does counts little."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.slow
def test_the_door_and_the_help_against_torch():
    """Medians of fresh processes taken in turns, so that the noise of the machine cancels."""
    codes = {
        "torch": "import torch",
        "import": "import bnnp",
        "use": f"import bnnp; {FIRST_USE}",
        "help": "import sys; sys.argv = ['bnnp', '--help']; from bnnp.cli import main; main()",
    }
    for code in codes.values():
        seconds(code)
    times = {name: [] for name in codes}
    for _ in range(ROUNDS):
        for name, code in codes.items():
            times[name].append(seconds(code))
    found = {name: statistics.median(values) for name, values in times.items()}
    print(" ".join(f"{name} {value:.2f} s" for name, value in found.items()))
    assert found["import"] <= ALLOWED_RATIO * found["torch"], found
    assert found["use"] <= ALLOWED_RATIO * found["torch"], found
    assert found["help"] <= found["torch"] + ALLOWED_SECONDS_OF_HELP, found
