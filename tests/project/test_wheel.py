"""The wheel: built from this tree, installed into a folder of its own, and used from there, without a network."""

import os
import subprocess
import sys
import zipfile
from email.parser import Parser
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

import bnnp

ROOT = Path(__file__).parents[2]
MUST_HAVE = ("py.typed", "zoo/sawtooth.bnnp", "data/paper_tests/sawtooth.csv", "cli/entry.py", "app/page/page.html")
USE = """
import bnnp
import numpy as np
model = bnnp.load("zoo:sawtooth")
found = model.condition(np.zeros((2, 1)), np.zeros((2, 1)), num_samples=3, seed=0).predict(np.zeros((4, 1)))
assert len(bnnp.tasks.sawtooth_tests()) == 16
print(bnnp.__file__, found.mean.shape)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    words = [
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    words = ["install", "--quiet", "--no-deps", "--no-index", "--target", str(folder), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    return folder


def run(installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python in the folder above, where nothing of the repository is near; dependencies are this environment's."""
    environment = {name: value for name, value in os.environ.items() if name != "BNNP_EXPERIMENTS"}
    environment["PYTHONPATH"] = str(installed)
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=installed.parent, env=environment, capture_output=True, text=True, check=False)


def test_it_holds_the_package_and_nothing_else(wheel):
    package = ROOT / "src" / "bnnp"
    wanted = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    wanted = {name for name in wanted if "__pycache__" not in name}
    assert set(MUST_HAVE) <= wanted
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.removeprefix("bnnp/") for name in names if name.startswith("bnnp/")} == wanted
    rest = {name.split("/")[0] for name in names if not name.startswith("bnnp/")}
    assert rest == {f"bnnp-{bnnp.__version__}.dist-info"}


def test_its_metadata_say_what_it_is(installed):
    (folder,) = installed.glob("bnnp-*.dist-info")
    found: Distribution = PathDistribution(folder)
    assert (found.metadata["Name"], found.version) == ("bnnp", bnnp.__version__)
    assert found.metadata["License-Expression"] == "MIT"
    assert found.metadata["Requires-Python"] == ">=3.11"
    assert {entry.name: entry.value for entry in found.entry_points} == {"bnnp": "bnnp.cli:main"}
    needed = [line for line in found.requires or [] if "extra" not in line]
    assert len(needed) >= 10
    assert all(">=" in line for line in needed)
    assert "bnnp" in Parser().parsestr((folder / "METADATA").read_text()).get_payload()


def test_it_loads_a_model_of_the_zoo_and_predicts(installed):
    done = run(installed, "-c", USE)
    assert done.stdout.split(maxsplit=1) == [str(installed / "bnnp" / "__init__.py"), "(4, 1)\n"], done.stderr


def test_its_command_line_works_without_the_repository(installed):
    done = run(installed, "-m", "bnnp", "--help")
    assert "predict" in done.stdout, done.stderr
    done = run(installed, "-m", "bnnp", "experiment", "online")
    assert done.returncode == 2
    assert "go to a clone of the repository" in done.stderr
