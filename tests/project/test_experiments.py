"""Experiments: independent runs that are kept, resumed and reported; each of the paper's at its smallest scale."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import bnnp
import harness
from bnnp.cli import app
from bnnp.cli.experiment import FOLDER_VARIABLE, experiments_folder
from bnnp.evaluation import lppd, with_noise
from common import fixed_tests, model_file, score_sets, train
from harness import experiment_names
from score_tables import cell, markdown_table, mean_and_error

REAL = Path(__file__).parents[2] / "experiments"


def perform(*arguments, **choices) -> harness.Outcome:
    return harness.perform(experiments_folder(), *arguments, **choices)


TOY = """
from pathlib import Path
from harness import Run
from bnnp._core.files import write_atomically

def runs(scale):
    return {f"run-{i}": Run(square, {"number": i, "log": LOG}) for i in range(3)}

def square(number, log):
    with open(log, "a") as file:
        file.write(f"{number}\\n")
    if Path(log).with_name(f"break-{number}").exists():
        raise ValueError(f"number {number} is broken")
    return number**2

def report(scale, results, folder):
    text = scale + " " + " ".join(str(results[key]) for key in sorted(results))
    return [write_atomically(folder / "table.md", text)]
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A folder with one experiment; gives the file in which its runs leave a trace."""
    log = tmp_path / "log.txt"
    (tmp_path / "experiments" / "toy").mkdir(parents=True)
    (tmp_path / "experiments" / "harness.py").symlink_to(REAL / "harness.py")
    (tmp_path / "experiments" / "toy" / "run.py").write_text(TOY.replace("LOG", repr(str(log))))
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "experiments"))
    return log


def test_runs_are_done_once_and_reported(toy, tmp_path):
    outcome = perform("toy", "smoke")
    assert outcome.results == {"run-0": 0, "run-1": 1, "run-2": 4}
    assert outcome.failed == {}
    assert outcome.files == [tmp_path / "experiments" / "toy" / "results" / "smoke" / "table.md"]
    assert outcome.files[0].read_text() == "smoke 0 1 4"
    perform("toy", "smoke")
    assert toy.read_text().split() == ["0", "1", "2"]


def test_one_that_fails_loses_only_itself_and_is_tried_again(toy, tmp_path):
    broken = toy.with_name("break-1")
    broken.touch()
    outcome = perform("toy", "smoke", tmp_path / "out")
    assert outcome.results == {"run-0": 0, "run-2": 4}
    assert outcome.failed == {"run-1": "ValueError: number 1 is broken"}
    assert outcome.files[0].read_text() == "smoke 0 4"
    broken.unlink()
    outcome = perform("toy", "smoke", tmp_path / "out")
    assert outcome.failed == {}
    assert outcome.results["run-1"] == 1
    assert toy.read_text().split() == ["0", "1", "2", "1"]


def test_other_arguments_are_another_run(toy, tmp_path):
    perform("toy", "smoke", tmp_path / "out")
    path = tmp_path / "out" / "runs" / "run-2.json"
    record = json.loads(path.read_text())
    assert record["seconds"] >= 0
    assert record["made_by"] == harness.made_by()
    assert record["made_by"]["torch"] == torch.__version__
    assert path.read_text() == json.dumps(record, separators=(",", ":"))
    record["arguments"]["number"] = 7
    path.write_text(json.dumps(record))
    assert perform("toy", "smoke", tmp_path / "out").results["run-2"] == 4
    assert toy.read_text().split() == ["0", "1", "2", "2"]


def test_several_at_once_and_only_some(toy, tmp_path):
    assert perform("toy", "small", tmp_path / "some", only="-1").results == {"run-1": 1}
    assert perform("toy", "small", tmp_path / "all", workers=2).results == {"run-0": 0, "run-1": 1, "run-2": 4}


def test_the_command_line_prints_the_table_and_tells_what_failed(toy, tmp_path):
    done = CliRunner().invoke(app, ["experiment", "toy", "--scale", "smoke", "--quiet", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0
    assert "smoke 0 1 4" in done.output
    toy.with_name("break-0").touch()
    again = CliRunner().invoke(
        app, ["experiment", "toy", "--scale", "small", "--quiet", "--out", str(tmp_path / "two")]
    )
    assert again.exit_code == 1
    assert "failed: run-0: ValueError: number 0 is broken" in again.output


def test_the_command_by_itself_runs_several_at_once(toy, tmp_path):
    """In a process that has not put the experiments on its path: the command does, for itself and its workers."""
    words = ["experiment", "toy", "--scale", "smoke", "--quiet", "--workers", "2", "--out", str(tmp_path / "out")]
    done = subprocess.run([sys.executable, "-m", "bnnp", *words], capture_output=True, text=True, check=False)
    assert "smoke 0 1 4" in done.stdout, done.stderr


def test_what_is_not_there_is_refused(toy, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="experiment: got 'toys', expected one of toy"):
        perform("toys", "smoke")
    with pytest.raises(ValueError, match="scale: got 'huge', expected one of smoke, small, paper"):
        perform("toy", "huge")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="go to a clone of the repository"):
        perform("toy", "smoke")


CHAIN = """
from harness import Run
from bnnp._core.files import write_atomically

def runs(scale):
    later = {f"use-{i}": Run(use, {"number": i}, needs=("train",)) for i in range(2)}
    return later | {"train": Run(train, {"value": VALUE}, needs=NEEDS)}

def train(value, folder):
    if value < 0:
        raise ValueError("value is negative")
    write_atomically(folder / "models" / "a.txt", str(value))

def use(number, folder):
    return number + int((folder / "models" / "a.txt").read_text())

def report(scale, results, folder):
    return []
"""


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """An experiment in which two runs need a third; gives a function that sets the third's argument and needs."""
    folder = tmp_path / "experiments" / "chain"
    folder.mkdir(parents=True)
    (folder.parent / "harness.py").symlink_to(REAL / "harness.py")
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder.parent))

    def write(value, needs=()):
        (folder / "run.py").write_text(CHAIN.replace("VALUE", str(value)).replace("NEEDS", repr(needs)))

    return write


def test_runs_that_need_others_come_after_them(chain, tmp_path):
    chain(10)
    outcome = perform("chain", "smoke", tmp_path / "out", only="use-1")
    assert outcome.results == {"train": None, "use-1": 11}
    chain(20)  # another argument of the run they need makes them other runs too
    assert perform("chain", "smoke", tmp_path / "out").results == {"train": None, "use-0": 20, "use-1": 21}


def test_runs_whose_need_failed_say_so(chain, tmp_path):
    chain(-1)
    outcome = perform("chain", "smoke", tmp_path / "out")
    assert outcome.results == {}
    assert outcome.failed["train"] == "ValueError: value is negative"
    assert outcome.failed["use-0"] == "FileNotFoundError: needs train, which has not been done"


def test_needs_in_a_circle_are_refused(chain, tmp_path):
    chain(0, needs=("use-0",))
    with pytest.raises(ValueError, match="need each other in a circle"):
        perform("chain", "smoke", tmp_path / "out")


def test_fixed_tests_are_the_same_whenever_asked_for():
    source = bnnp.tasks.sawtooth(points=(20, 20))
    first, again = (fixed_tests(source, 3, (0.1, 0.5), 7) for _ in range(2))
    assert [split.context.x.tolist() for split in first] == [split.context.x.tolist() for split in again]
    assert all(2 <= len(split.context) <= 10 for split in first)


def test_a_trained_model_is_kept_and_its_scores_are_those_of_evaluate(tmp_path):
    source = bnnp.tasks.sawtooth(points=(12, 12))
    model = train(bnnp.BNNP(1, 1, (4,), seed=0), source, tmp_path, "saw", steps=2, recipe="paper")
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["saw.bnnp"]
    splits = fixed_tests(source, 3, (0.3, 0.5), 0)
    loaded = bnnp.load(model_file(tmp_path, "saw"))
    posts = [loaded.condition(s.context.x, s.context.y, num_samples=7, seed=i) for i, s in enumerate(splits)]
    scores = score_sets(posts, splits, y_scale=3.0)
    pairs = zip(posts, splits, strict=True)
    by_hand = [float(abs(post.predict(s.target.x).mean - s.target.y.numpy()).mean()) for post, s in pairs]
    assert scores["per_task"]["mae"] == pytest.approx([3 * value for value in by_hand])
    assert "pooled_lppd@7 integrated" in scores["scores"]
    noisy = score_sets(posts, splits, noise=0.7)["per_task"]["marginal_lppd@7 integrated"]
    wanted = [
        lppd(with_noise(post.predict(s.target.x), 0.7).pointwise_log_prob(s.target.y))["marginal"]
        for post, s in zip(posts, splits, strict=True)
    ]
    assert noisy == pytest.approx(wanted)
    assert noisy != pytest.approx(scores["per_task"]["marginal_lppd@7 integrated"])
    mean, error = mean_and_error(scores, "mae")
    assert mean == pytest.approx(3 * sum(by_hand) / 3)
    assert cell(scores, "mae", 1) == f"{mean:.1f} ± {error:.1f}"
    assert cell(scores, "nothing") == cell(None, "mae") == ""
    assert model.likelihood.noise.item() == pytest.approx(loaded.likelihood.noise.item())


def test_tables():
    assert markdown_table(["a", "b"], [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |\n"


@pytest.mark.filterwarnings("ignore::bnnp.inference.InferenceWarning")  # a few draws and a few steps
@pytest.mark.filterwarnings("ignore::bnnp.training.FallbackWarning")
@pytest.mark.parametrize("name", experiment_names(REAL))
def test_every_experiment_runs_at_its_smallest_scale(name, tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(REAL))
    outcome = perform(name, "smoke", tmp_path)
    assert outcome.failed == {}
    assert {path.suffix for path in outcome.files} == {".md", ".png"}
    assert all(path.stat().st_size > 0 for path in outcome.files)
    text = (REAL / name / "README.md").read_text()
    for part in ("Question", "Command", "Result", "Takeaway"):
        assert part in text, f"{name}/README.md has no part {part}"
