"""Wheel and sdist: built from this tree, checked, installed into a folder of its own, and used from there."""

import os
import re
import subprocess
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
import yaml
from readme import without_figures

import bnnp
from project import package

ROOT = Path(__file__).parents[2]
USE = """
import bnnp
import numpy as np
model = bnnp.load("zoo:sawtooth")
found = model.condition(np.zeros((2, 1)), np.zeros((2, 1)), num_samples=3, seed=0).predict(np.zeros((4, 1)))
assert len(bnnp.tasks.sawtooth_tests()) == 16
print(bnnp.__file__, found.mean.shape)
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> tuple[Path, Path]:
    return package.build(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    words = ["install", "--quiet", "--no-deps", "--no-index", "--target", str(folder), str(built[0])]
    subprocess.run([sys.executable, "-m", "pip", *words], check=True)
    return folder


def run(installed: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Python in the folder above, where nothing of the repository is near; dependencies are this environment's."""
    environment = {name: value for name, value in os.environ.items() if name != "BNNP_EXPERIMENTS"}
    environment["PYTHONPATH"] = str(installed)
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=installed.parent, env=environment, capture_output=True, text=True, check=False)


def test_wheel_and_sdist_hold_what_they_should_and_are_small(built):
    package.check_wheel(built[0])
    package.check_sdist(built[1])
    package.check_size(*built)


def test_metadata_are_valid_and_an_index_can_show_the_readme(built):
    package.check_readme(package.check_metadata(built[0]))


def test_figures_are_left_out_of_the_readme_with_their_captions():
    assert without_figures('a\n\n<img src="b"> <img src="c">\n\n*d\ne*\n\nf `<img>`\n') == "a\n\nf `<img>`\n"


def test_the_wheel_of_the_sdist_is_that_of_the_tree(built, tmp_path):
    words = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(tmp_path)]
    subprocess.run([sys.executable, "-m", "pip", *words, str(built[1])], check=True)
    (again,) = tmp_path.glob("*.whl")
    package.check_wheel(again)
    package.check_metadata(again)


def test_it_has_one_command(installed):
    (folder,) = installed.glob("bnnp-*.dist-info")
    found = PathDistribution(folder)
    assert found.version == bnnp.__version__
    assert {entry.name: entry.value for entry in found.entry_points} == {"bnnp": "bnnp.cli:main"}


def test_it_loads_a_model_of_the_zoo_and_predicts(installed):
    done = run(installed, "-c", USE)
    assert done.stdout.split(maxsplit=1) == [str(installed / "bnnp" / "__init__.py"), "(4, 1)\n"], done.stderr


def test_its_command_line_works_without_the_repository(installed):
    done = run(installed, "-m", "bnnp", "--help")
    assert "predict" in done.stdout, done.stderr
    done = run(installed, "-m", "bnnp", "experiment", "online")
    assert done.returncode == 2
    assert "go to a clone of the repository" in done.stderr


def test_continuous_integration_calls_targets_that_there_are():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text())
    called = set()
    for job in workflow["jobs"].values():
        assert job["runs-on"] == "ubuntu-latest"
        versions = job.get("strategy", {}).get("matrix", {}).get("versions", [""])
        commands = [step["run"] for step in job["steps"] if "run" in step]
        called |= {command.replace("${{ matrix.versions }}", one) for command in commands for one in versions}
        assert all(re.fullmatch(r"actions/[\w-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)
    targets = re.findall(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(), flags=re.M)[0].split()
    assert {"make test", "make package", "make docs", "make lowest", "make newest"} <= called
    assert called <= {f"make {target}" for target in targets}


def test_templates_ask_for_what_there_is():
    template = (ROOT / ".github" / "ISSUE_TEMPLATE" / "problem.md").read_text()
    head = yaml.safe_load(template.split("---")[1])
    assert set(head) == {"name", "about"}
    request = (ROOT / ".github" / "pull_request_template.md").read_text()
    assert "`CHANGELOG.md`" in request
    assert "`make test`" in request
