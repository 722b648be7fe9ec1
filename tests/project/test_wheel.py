"""The wheel: built from this tree, installed into an environment of its own, and used there, without a network.

The environment is empty but for the packages that the wheel needs, which it borrows from the one that runs the tests.
"""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

import bnnp
from bnnp.numerics.backends import numba

ROOT = Path(__file__).parents[2]
MUST_HAVE = ("py.typed", "zoo/sawtooth.bnnp", "data/paper_tests/sawtooth.csv", "cli/entry.py", "app/page/page.html")
MACHINE_CODE = Path(str(numba.__file__)).parent / "__pycache__"
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
def environment(wheel, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (site_packages(folder) / "borrowed.pth").write_text(sysconfig.get_path("purelib"))
    words = ["--python", str(program(folder, "python")), "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    return folder


def program(environment: Path, name: str) -> Path:
    return environment / ("Scripts" if os.name == "nt" else "bin") / name


def site_packages(environment: Path) -> Path:
    paths = {"base": str(environment), "platbase": str(environment)}
    return Path(sysconfig.get_path("purelib", vars=paths))


def run(environment: Path, name: str, *words: str) -> subprocess.CompletedProcess[str]:
    """A program of the environment, started in a folder where nothing of the repository is near."""
    hidden = ("BNNP_EXPERIMENTS", "PYTHONPATH", "PYTHONHOME")
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    variables["NUMBA_CACHE_DIR"] = str(MACHINE_CODE)  # else a minute goes into compiling the same loops
    command = [str(program(environment, name)), *words]
    return subprocess.run(command, cwd=environment, env=variables, capture_output=True, text=True, check=False)


def test_it_holds_the_package_and_nothing_else(wheel):
    package = ROOT / "src" / "bnnp"
    wanted = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    wanted = {name for name in wanted if "__pycache__" not in name}
    assert set(MUST_HAVE) <= wanted
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.removeprefix("bnnp/") for name in names if name.startswith("bnnp/")} == wanted
    rest = {name.split("/")[0] for name in names if not name.startswith("bnnp/")}
    assert rest == {f"bnnp-{bnnp.__version__}.dist-info"}


def test_its_metadata_say_what_it_is(environment):
    (folder,) = site_packages(environment).glob("bnnp-*.dist-info")
    found: Distribution = PathDistribution(folder)
    assert (found.metadata["Name"], found.version) == ("bnnp", bnnp.__version__)
    assert found.metadata["License-Expression"] == "MIT"
    assert found.metadata["Requires-Python"] == ">=3.11"
    assert {entry.name: entry.value for entry in found.entry_points} == {"bnnp": "bnnp.cli:main"}
    needed = [line for line in found.requires or [] if "extra" not in line]
    assert len(needed) >= 10
    assert all(">=" in line for line in needed)
    assert "bnnp" in Parser().parsestr((folder / "METADATA").read_text()).get_payload()


def test_it_loads_a_model_of_the_zoo_and_predicts(environment):
    done = run(environment, "python", "-c", USE)
    place = site_packages(environment) / "bnnp" / "__init__.py"
    assert done.stdout.split(maxsplit=1) == [str(place), "(4, 1)\n"], done.stderr


def test_its_command_works_without_the_repository(environment):
    done = run(environment, "bnnp", "--help")
    assert "predict" in done.stdout, done.stderr
    done = run(environment, "python", "-m", "bnnp", "experiment", "online")
    assert done.returncode == 2
    assert "go to a clone of the repository" in done.stderr
