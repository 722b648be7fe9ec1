"""The machine code of the loops is that of their sources, wherever it is kept, also if several processes compile."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, no_type_check

import pytest

import bnnp
from bnnp.numerics.backends.numba import compiled

LIBRARY = Path(bnnp.__file__).parent


def run(code: str, library: Path, cache: Path, **variables: str) -> Any:
    """A process of its own, with the library from a folder and a folder for the user's caches."""
    kept = {name: value for name, value in os.environ.items() if name not in ("NUMBA_CACHE_DIR", "PYTHONPATH")}
    environment = {**kept, "PYTHONPATH": str(library.parent), "XDG_CACHE_HOME": str(cache), **variables}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, text=True, **pipes)


def output(process) -> list[str]:
    text, _ = process.communicate()
    assert process.returncode == 0
    return text.split()


# --- what is kept ----------------------------------------------------------------------------------------------------


@no_type_check
def double(x):
    return x + x


@pytest.fixture
def places(monkeypatch, tmp_path) -> list[Path]:
    """Folders for machine code instead of the real ones."""
    folders = [tmp_path / "one", tmp_path / "two"]
    monkeypatch.setattr(compiled, "folders", lambda: folders)
    return folders


def hits_and_misses(*numbers: float) -> tuple[int, int]:
    """A new function, as in a new process, called with each number."""
    function: Callable = compiled.loop(double)
    assert [function(number) for number in numbers] == [2 * number for number in numbers]
    stats = function.stats
    return sum(stats.cache_hits.values()), sum(stats.cache_misses.values())


def test_machine_code_is_compiled_once_for_each_kind_of_number(places):
    assert hits_and_misses(1, 1.5) == (0, 2)
    assert hits_and_misses(1, 1.5) == (2, 0)
    assert len(list(places[0].iterdir())) == 2
    assert not places[1].exists()


@pytest.mark.parametrize("name", ["SOURCES", "VERSIONS"])
def test_another_source_or_version_is_compiled_anew(monkeypatch, places, name):
    hits_and_misses(1)
    monkeypatch.setattr(compiled, name, getattr(compiled, name) * 2)
    assert hits_and_misses(1) == (0, 1)
    assert len(list(places[0].iterdir())) == 2


def test_machine_code_of_changed_sources_is_deleted_beside_the_sources_alone(monkeypatch, places):
    for beside, other in (places, places[::-1]):
        monkeypatch.setattr(compiled, "BESIDE_SOURCES", beside)
        monkeypatch.setattr(compiled, "folders", lambda first=beside: [first])
        hits_and_misses(1)
        (other / "double-0123.machine").parent.mkdir(exist_ok=True)
        (other / "double-0123.machine").touch()
        (beside / "double-0123.machine").touch()
        monkeypatch.setattr(compiled, "SOURCES", compiled.SOURCES + b"changed")
        assert hits_and_misses(1, 1.5) == (0, 2)
        assert len(list(beside.iterdir())) == 2
        assert (other / "double-0123.machine").exists()


def test_sources_are_all_files_beside_the_loops():
    for name in ("simd", "moves", "tiles", "inverse", "function_space", "weight_space", "gradients", "compiled"):
        assert (compiled.FOLDER / f"{name}.py").read_bytes() in compiled.SOURCES


def test_a_damaged_file_is_replaced(places):
    hits_and_misses(1)
    (kept,) = places[0].iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-100])
    assert hits_and_misses(1) == (0, 1)
    assert hits_and_misses(1) == (1, 0)


def test_the_next_folder_is_taken_where_one_cannot_be_written_to(places):
    places[0].write_text("a file, where no folder can be")
    assert hits_and_misses(1) == (0, 1)
    assert hits_and_misses(1) == (1, 0)
    assert len(list(places[1].iterdir())) == 1


def test_without_a_folder_to_write_to_all_is_compiled_every_time(places):
    for place in places:
        place.write_text("a file, where no folder can be")
    assert hits_and_misses(1) == (0, 1)
    assert hits_and_misses(1) == (0, 1)


def test_the_folders_are_those_of_the_user_and_of_the_library(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("numba.core.config.CACHE_DIR", "/chosen", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert compiled.folders() == [Path("/chosen"), compiled.FOLDER / "__pycache__", tmp_path / "bnnp" / "loops"]


AT_ONCE = """
import sys
import numpy as np
from bnnp.numerics.backends.numba import compiled

def double(x):
    return x + x

function, kinds = compiled.loop(double), [np.float32, np.float64, np.int64, np.complex64]
for _ in range(int(input())):  # waits until all processes are there; each begins with another kind
    kinds.append(kinds.pop(0))
assert [function(kind(3.3)) for kind in kinds] == [kind(3.3) + kind(3.3) for kind in kinds]
print(sum(function.stats.cache_hits.values()))
"""


def test_processes_may_compile_at_the_same_time(tmp_path):
    *processes, last = (run(AT_ONCE, LIBRARY, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "kept")) for _ in range(3))
    for number, process in enumerate(processes):
        process.stdin.write(f"{number}\n")
        process.stdin.flush()
    for process in processes:
        output(process)
    last.stdin.write("0\n")
    assert output(last) == ["4"]
    assert len(list((tmp_path / "kept").glob("double-*"))) == 4


# --- the loops themselves --------------------------------------------------------------------------------------------

GRAM = """
import torch
from bnnp.numerics.backends.numba import batched, binding

one, gram = torch.ones(1, 1, 1, dtype=torch.float64), torch.zeros(1, 1, 1, dtype=torch.float64)
binding.add_weighted_gram(slice(0, 1), one, 3 * one, gram)
stats = batched.add_weighted_gram.stats
print(gram.item(), sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def change(path: Path, old: str, new: str) -> None:
    """Change a file so that neither its size nor its date tells."""
    before, text = path.stat(), path.read_text()
    assert text.count(old) == 1
    assert len(old) == len(new)
    path.write_text(text.replace(old, new))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_changed_step_gives_new_machine_code(tmp_path):
    """In a library that cannot be written to, so that the user's cache serves it before and after the change."""
    library, cache = tmp_path / "bnnp", tmp_path / "cache"
    shutil.copytree(LIBRARY, library, ignore=shutil.ignore_patterns("__pycache__"))
    folder = library / "numerics" / "backends" / "numba"
    (folder / "__pycache__").write_text("a file, where no folder can be")
    assert output(run(GRAM, library, cache)) == ["9.0", "0", "1"]
    assert output(run(GRAM, library, cache)) == ["9.0", "1", "0"]
    change(folder / "tiles.py", "total + get(a, (t, i)) * get(b, (t, j))", "total - get(a, (t, i)) * get(b, (t, j))")
    assert output(run(GRAM, library, cache)) == ["-9.0", "0", "1"]


IMPORT = """
import sys, types
sys.modules["scoringrules"] = types.ModuleType("scoringrules")  # which imports numba
import bnnp
print("numba" in sys.modules or "llvmlite" in sys.modules)
"""


def test_numba_is_not_imported_with_the_library(tmp_path):
    assert output(run(IMPORT, LIBRARY, tmp_path)) == ["False"]


FIRST_USE = """
import sys, threading, torch
from bnnp.numerics.gaussian import Observations, UnitPrior, UpdateDraws, condition

def work():
    barrier.wait()
    points = torch.arange(5.0, dtype=torch.float64)
    seen = Observations(points.view(1, 1, 1, 5), torch.ones(1, 1, 1, 5, dtype=torch.float64))
    prior = UnitPrior(torch.zeros(1, 1, 1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
    draws = UpdateDraws(torch.zeros(1, 1, 1, 1, dtype=torch.float64), torch.zeros(1, 1, 1, 5, dtype=torch.float64))
    found.append(condition(prior, points.view(1, 1, 5, 1), seen, draws).centred.item())

found, barrier = [], threading.Barrier(8)
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(found), *set(found))
"""


def test_the_first_solve_may_come_from_several_threads_at_once(tmp_path):
    number, *values = output(run(FIRST_USE, LIBRARY, tmp_path))
    assert number == "8"
    assert [float(value) for value in values] == [pytest.approx(30 / 31)]
