"""Experiments: independent runs that are kept, resumed and reported; each of the paper's at its smallest scale."""

import inspect
import json
import math
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import baselines
import bnnp
import harness
from baselines import trivial_models
from bnnp._core.files import write_atomically
from bnnp.cli import app
from bnnp.cli.experiment import FOLDER_VARIABLE, experiments_folder
from bnnp.evaluation import lppd, with_noise
from bnnp.inference.base import Diagnostics
from bnnp.tasks.task import Split, Task
from claims import Claim, difference, has_arrived, needed, paired, worst
from common import diagnosed, fixed_tests, last_slope, learn, model_file, score_sets, score_trivial, train
from conftest import real_data
from harness import experiment_names
from records import fingerprint, looks_at, settings_file
from score_tables import cell, convergence, markdown_table, mean_and_error, over_seeds

REAL = Path(__file__).parents[2] / "experiments"


def perform(*arguments, **choices) -> harness.Outcome:
    return harness.perform(experiments_folder(), *arguments, **choices)


def settle(experiment: Path, scales: tuple[str, ...] = ("smoke", "small")) -> None:
    """The harness beside an experiment, and settings of some scales."""
    for name in ("harness.py", "records.py"):
        (experiment.parent / name).symlink_to(REAL / name)
    for scale in scales:
        write_atomically(experiment / "settings" / f"{scale}.json", json.dumps({"name": scale, "powers": [1, 2, 3]}))


TOY = """
from pathlib import Path
from harness import Run
from bnnp._core.files import write_atomically

def runs(settings):
    return {f"run-{i}": Run(square, {"number": i, "log": LOG}) for i in range(3)}

def search(settings):
    return {"power": {f"to the {n}": Run(score, {"power": n, "log": LOG}) for n in settings["powers"]}}

def score(power, log):
    return {"score": -abs(power - 2)}

def square(number, log):
    with open(log, "a") as file:
        file.write(f"{number}\\n")
    if Path(log).with_name(f"break-{number}").exists():
        raise ValueError(f"number {number} is broken")
    return number**2

def report(settings, results, folder):
    text = settings["name"] + " " + " ".join(str(results[key]) for key in sorted(results))
    return [write_atomically(folder / "table.md", text)]
"""


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """A folder with one experiment; gives the file in which its runs leave a trace."""
    log = tmp_path / "log.txt"
    (tmp_path / "experiments" / "toy").mkdir(parents=True)
    settle(tmp_path / "experiments" / "toy")
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
    assert record["processor_seconds"] >= 0
    assert record["seconds"] >= 0
    assert record["made_by"] == harness.made_by()
    assert record["made_by"]["torch"] == torch.__version__
    assert path.read_text() == json.dumps(record, separators=(",", ":"))
    record["arguments"]["number"] = 7
    path.write_text(json.dumps(record))
    assert perform("toy", "smoke", tmp_path / "out").results["run-2"] == 4
    assert toy.read_text().split() == ["0", "1", "2", "2"]


def test_a_record_has_the_commit_at_which_its_run_began(toy, monkeypatch):
    """As if each run, which leaves a line in the file, ended with another commit."""
    done = lambda: str(len(toy.read_text().split()) if toy.exists() else 0)  # noqa: E731
    monkeypatch.setattr(harness, "made_by", lambda: {"commit": done()})
    harness.perform(experiments_folder(), "toy", "smoke", backend="sequential")
    kept = harness.plan_of(experiments_folder(), "toy", "smoke").kept().records
    assert [record["made_by"]["commit"] for record in kept.values()] == ["0", "1", "2"]


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
    with pytest.raises(ValueError, match="scale: got 'huge', expected one of smoke, small, long, paper"):
        perform("toy", "huge")
    with pytest.raises(
        ValueError, match="scale: got 'paper', expected one of smoke, small; toy has settings of no other"
    ):
        perform("toy", "paper")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="go to a clone of the repository"):
        perform("toy", "smoke")


def test_records_of_other_settings_are_stale_and_looks_at_the_tests_are_counted(toy, tmp_path):
    perform("toy", "smoke")
    plan = harness.plan_of(experiments_folder(), "toy", "smoke")
    record = json.loads((plan.place / "runs" / "run-2.json").read_text())
    assert record["frozen"] == fingerprint(plan.settings)
    assert plan.kept().stale == {}
    settings_file(plan.experiment, "smoke").write_text(json.dumps({"powers": [1, 2, 3], "name": "smoke"}, indent=3))
    assert plan.kept().stale == {}  # another layout of the same settings
    settings_file(plan.experiment, "smoke").write_text(json.dumps({"name": "other", "powers": [1, 2, 3]}))
    why = plan.kept().stale["run-2"]
    assert why == f"settings {record['frozen']}, now {fingerprint(plan.settings)}"
    assert plan.kept().results() == {}
    assert perform("toy", "smoke").files[0].read_text() == "other 0 1 4"
    assert toy.read_text().split() == ["0", "1", "2"] * 2
    assert [look["frozen"] for look in looks_at(plan.place)] == [record["frozen"], fingerprint(plan.settings)]
    settings = json.loads(settings_file(plan.experiment, "smoke").read_text())
    settings_file(plan.experiment, "smoke").write_text(json.dumps(settings | {"revision": 1}))
    assert len(plan.kept().stale) == 3  # of other code
    path = plan.place / "runs" / "run-2.json"
    path.write_text(json.dumps({name: value for name, value in record.items() if name != "frozen"}))
    assert plan.kept().stale["run-2"] == "of before settings were frozen"


def test_a_search_freezes_the_best_choice_and_makes_records_of_before_stale(toy, tmp_path):
    perform("toy", "smoke")
    done = CliRunner().invoke(app, ["experiment", "toy", "--scale", "smoke", "--search", "--quiet"])
    assert done.output == "chosen for power: to the 2\n"
    plan = harness.plan_of(experiments_folder(), "toy", "smoke")
    assert plan.settings["chosen"] == {"power": "to the 2"}
    assert len(plan.kept().stale) == 3
    searched = harness.plan_of(experiments_folder(), "toy", "smoke", searches=True)
    assert searched.kept().stale == {}  # its own choice does not make it stale
    assert sorted(path.stem for path in (plan.experiment / "search" / "smoke" / "runs").iterdir()) == [
        "power-to the 1",
        "power-to the 2",
        "power-to the 3",
    ]
    elsewhere = harness.perform_search(experiments_folder(), "toy", "small", tmp_path / "out")
    assert elsewhere == {"power": "to the 2"}
    assert "chosen" not in harness.plan_of(experiments_folder(), "toy", "small").settings


def test_processor_time_is_also_that_of_processes_a_run_starts():
    before = harness.processor_seconds()
    time.sleep(0.3)
    slept = harness.processor_seconds() - before
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", busy], check=True)
    assert slept < 0.2 < harness.processor_seconds() - before


CHAIN = """
from harness import Run
from bnnp._core.files import write_atomically

def runs(settings):
    later = {f"use-{i}": Run(use, {"number": i}, needs=("train",)) for i in range(2)}
    return later | {"train": Run(train, {"value": VALUE}, needs=NEEDS)}

def train(value, folder):
    if value < 0:
        raise ValueError("value is negative")
    write_atomically(folder / "models" / "a.txt", str(value))

def use(number, folder):
    return number + int((folder / "models" / "a.txt").read_text())

def report(settings, results, folder):
    return []
"""


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """An experiment in which two runs need a third; gives a function that sets the third's argument and needs."""
    folder = tmp_path / "experiments" / "chain"
    folder.mkdir(parents=True)
    settle(folder)
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
    model = train(bnnp.BNNP(1, 1, (4,), seed=0), source, tmp_path, "saw", steps=2)
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


def test_what_is_trivial_is_what_numpy_says():
    x, y = torch.tensor([[0.0], [2.0], [1.0]]).double(), torch.tensor([[0.0], [4.0], [1.0]]).double()
    known, new = Task(x, y), torch.tensor([[-1.0], [0.4], [1.5], [9.0]]).double()
    centre = torch.tensor([7.0]).double()
    assert baselines.population_mean(known, new, centre)[:, 0].tolist() == [7.0] * 4
    assert baselines.nearest_neighbour(known, new, centre)[:, 0].tolist() == [0.0, 0.0, 4.0, 4.0]
    wanted = np.interp([-1.0, 0.4, 1.5, 9.0], [0.0, 1.0, 2.0], [0.0, 1.0, 4.0])
    assert baselines.linear_interpolation(known, new, centre)[:, 0].tolist() == pytest.approx(list(wanted))
    nothing = known.take(torch.arange(0))
    assert baselines.linear_interpolation(nothing, new, centre)[:, 0].tolist() == [7.0] * 4
    flat = Task(torch.rand(30, 2).double(), torch.zeros(30, 1).double())
    plane = flat.x @ torch.tensor([[2.0], [-1.0]]).double()
    at = torch.tensor([[0.5, 0.5], [5.0, 5.0]]).double()
    found = baselines.linear_interpolation(Task(flat.x, plane), at, centre)
    assert found[0, 0].item() == pytest.approx(0.5)
    nearest = torch.cdist(at, flat.x).argmin(1)[1]
    assert found[1, 0].item() == plane[nearest, 0].item()
    line = torch.tensor([[0.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0]])  # no triangle: as the nearest one
    assert baselines.linear_interpolation(Task(line, line[:, :1]), line + 0.1, centre)[:, 0].tolist() == [0, 1, 2, 3]


def test_trivial_methods_have_the_spread_of_their_errors_on_training_tasks():
    source = bnnp.tasks.sawtooth(points=(20, 20))
    training, tests = fixed_tests(source, 40, (0.3, 0.5), 1), fixed_tests(source, 5, (0.3, 0.5), 2)
    found = score_trivial(training, tests, y_scale=2.0)
    assert list(found) == ["population mean", "nearest neighbour", "linear interpolation"]
    outputs = torch.cat([torch.cat([split.context.y, split.target.y]) for split in training])
    errors = torch.cat([split.target.y for split in training]) - outputs.mean()
    normal = torch.distributions.Normal(outputs.mean(), errors.square().mean().sqrt())
    wanted = [normal.log_prob(split.target.y).mean().item() for split in tests]
    assert found["population mean"]["per_task"]["marginal_lppd@exact"] == pytest.approx(wanted)
    wide = trivial_models([Split(Task(torch.rand(4, 3), torch.rand(4, 1)), Task(torch.rand(4, 3), torch.rand(4, 1)))])
    assert list(wide) == ["population mean", "nearest neighbour"]


def test_how_inference_went_is_the_worst_of_all_sets():
    bounds = torch.cat([torch.zeros(90), torch.arange(10.0)])
    one = Diagnostics(acceptance=torch.tensor([0.5, 0.7]), rhat=1.3, ess=40.0, warnings=("has not mixed",))
    other = Diagnostics(acceptance=torch.tensor([0.9]), rhat=1.01, ess=900.0, elbo=bounds)
    found = diagnosed([one, other])
    assert found == {
        "rhat": 1.3,
        "ess": 40.0,
        "acceptance": pytest.approx(0.6),
        "slope": pytest.approx(1000.0),
        "slope_error": pytest.approx(0.0, abs=1e-6),
        "doubtful": 1,
        "sets": 2,
    }
    assert convergence(found)[:3] == ["1.30", "40", "0.60"]
    assert convergence(found)[3].startswith("1e+03 ± ")
    assert convergence(found)[4] == "1 of 2"
    assert convergence(diagnosed([Diagnostics()])) == ["", "", "", "", "0 of 1"]


def test_a_record_says_how_its_trainings_ended(tmp_path, monkeypatch):
    (tmp_path / "toy" / "settings").mkdir(parents=True)
    settings_file(tmp_path / "toy", "smoke").write_text("{}")
    (tmp_path / "toy" / "run.py").write_text(TRAINING_TOY)
    harness.perform(tmp_path, "toy", "smoke", backend="sequential")
    kept = harness.plan_of(tmp_path, "toy", "smoke").kept().records
    (end,) = kept["train"]["trainings"]
    assert end == {"steps": 200, "slope": pytest.approx(20.0), "slope_error": pytest.approx(0.0, abs=1e-9)}
    assert "trainings" not in kept["no training"]


TRAINING_TOY = """
import bnnp
from common import note_end
from harness import Run

def runs(settings):
    return {"train": Run(train, {"steps": 200}), "no training": Run(train, {"steps": 0})}

def train(steps):
    records = [{"step": step, "objective": 0.02 * step} for step in range(10, steps + 1, 10)]
    note_end(bnnp.History(steps=records))

def report(settings, results, folder):
    return []
"""


def test_bounds_of_many_sets_that_do_not_rise_seldom_seem_to():
    """Noise of 1 nat per step, 16 sets: of 300 means 7 or so are 2 errors above 0, of the steepest slopes 90."""
    random, rising = torch.Generator().manual_seed(0), 0
    for _ in range(300):
        found: Any = diagnosed([Diagnostics(elbo=torch.randn(1000, generator=random)) for _ in range(16)])
        rising += found["slope"] > 2 * found["slope_error"]
    assert rising < 20
    still = diagnosed(
        [Diagnostics(elbo=torch.randn(1000, generator=random) + 0.1 * torch.arange(1000)) for _ in range(16)]
    )
    assert not has_arrived(still)


def test_the_slope_of_a_bound_has_the_error_that_repeats_have():
    random = np.random.default_rng(0)
    found = [last_slope((0.002 * np.arange(5000) + random.normal(size=5000)).tolist()) for _ in range(200)]
    slopes, errors = np.array(found).T
    assert slopes.mean() == pytest.approx(2.0, abs=4 * slopes.std() / 200**0.5)
    assert errors.mean() == pytest.approx(slopes.std(), rel=0.15)


def test_what_has_not_mixed_or_still_rises_has_not_arrived():
    arrived = {"rhat": 1.0, "doubtful": 2, "slope": None, "slope_error": None}
    assert has_arrived(arrived)
    assert not has_arrived(arrived | {"doubtful": 3})
    bound = {"rhat": None, "doubtful": 16, "slope": 5.0, "slope_error": 2.5}
    assert has_arrived(bound)  # no more than noise
    assert not has_arrived(bound | {"slope_error": 1.5})


@pytest.mark.parametrize(
    ("gain", "seeds", "doubts", "verdict"),
    [
        ((0.33, 0.1), 4, "", "holds"),
        ((-0.33, 0.1), 4, "", "does not hold"),
        ((0.31, 0.1), 4, "", "cannot tell"),
        ((0.31, 0.1), 5, "", "holds"),
        ((1.2, 0.1), 2, "", "cannot tell"),
        ((1.3, 0.1), 2, "", "holds"),
        ((0.3, 0.0), 4, "", "holds"),
        ((0.0, 0.0), 4, "", "cannot tell"),
        ((0.3, 0.1), 1, "", "cannot tell"),
        ((0.3, 0.0), 1, "", "cannot tell"),
        ((0.3, math.nan), 4, "", "cannot tell"),
        ((0.33, 0.1), 4, "HMC", "cannot tell"),
        ((math.nan, math.nan), 0, "", "not run"),
    ],
)
def test_a_verdict_follows_from_the_gain_and_its_error(gain, seeds, doubts, verdict):
    assert Claim("4.1", "ours is better", gain=gain, seeds=seeds, doubts=doubts).verdict() == verdict


def test_few_repeats_decide_by_chance_as_rarely_as_many_do():
    """200,000 claims about nothing for each number of repeats; one in twenty is decided, within 4 standard errors."""
    random = np.random.default_rng(0)
    for repeats in (2, 3, 4, 8):
        values = random.normal(size=(200_000, repeats))
        errors = values.std(axis=1, ddof=1) / repeats**0.5
        decided = (abs(values.mean(1)) > needed(repeats) * errors).mean()
        assert decided == pytest.approx(0.05, abs=4 * (0.05 * 0.95 / 200_000) ** 0.5)
    assert (abs(values.mean(1)) > needed(2) * errors).mean() < 0.001  # which another number of repeats would not give


def test_gains():
    assert paired([1.0, 3.0], [0.0, 0.0]) == (2.0, pytest.approx(1.0))
    assert difference((2.0, 0.3), (1.0, 0.4)) == (1.0, pytest.approx(0.5))
    assert worst([(1.0, 0.1), (3.0, 1.0), (0.5, 0.01)]) == (3.0, 1.0)
    assert over_seeds([{"scores": {"mae": {"mean": v, "standard_error": 9.0}}} for v in (1.0, 3.0)], "mae") == (
        2.0,
        1.0,
    )
    assert over_seeds([{"scores": {"mae": {"mean": 1.0, "standard_error": 9.0}}}], "mae") == (1.0, 9.0)


def transfer(missing: str = "", late: str = "", **levels: float) -> str:
    """The verdict on every method under the learned prior: two methods, four seeds; `levels` under that prior."""
    experiment = harness.load_experiment(REAL / "prior_transfer")
    choices = {"seeds": (1, 2, 3, 4), "methods": ("mfvi", "hmc"), "recipe_minutes": 2, "paper": {"steps": 9}}
    settings, results = {"processes": {"gp": choices}}, {}
    for method in ("mfvi", "hmc"):
        how = {"rhat": 1.0, "doubtful": 9 if method in late else 0, "slope": None, "slope_error": None}
        for prior in ("standard",) if method in missing else ("standard", "recipe"):
            for seed in (1, 2, 3, 4):
                mean = levels.get(method, 1.0) + 0.1 * seed if prior == "recipe" else 0.0
                scores = {"pooled_lppd@9": {"mean": mean, "standard_error": 0.1}}
                results[f"gp-{method}-{prior}-{seed}"] = {"all": {"scores": scores}, "convergence": how}
    return experiment.claims(settings, results)[0].verdict()


def test_every_method_means_all_of_them_and_one_that_has_arrived_is_enough_against_it():
    assert transfer() == "holds"
    assert transfer(hmc=-1.0) == "does not hold"
    assert transfer(missing="hmc") == "cannot tell"
    assert transfer(late="hmc") == "cannot tell"
    assert transfer(late="hmc", mfvi=-1.0) == "does not hold"
    assert transfer(missing="mfvi hmc") == "not run"


def test_tables():
    assert markdown_table(["a", "b"], [["1", "2"]]) == "| a | b |\n|---|---|\n| 1 | 2 |\n"


def test_the_recipe_keeps_its_model_and_chooses_nothing_for_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr("common.ACTIVATIONS", ("silu", "relu"))
    source = bnnp.tasks.sawtooth(points=(8, 8))
    learned = learn(source, tmp_path, "saw", hidden=(3,), minutes=1e-4, seed=0)
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["saw.bnnp"]
    loaded = bnnp.load(model_file(tmp_path, "saw"))
    assert loaded.config()["activation"] == learned.model.config()["activation"]
    assert learned.decisions


@pytest.mark.filterwarnings("ignore::bnnp.inference.InferenceWarning")  # a few draws and a few steps
@pytest.mark.filterwarnings("ignore::bnnp.training.FallbackWarning")
@pytest.mark.filterwarnings("ignore::bnnp.prediction.ExtrapolationWarning")
@pytest.mark.parametrize("name", experiment_names(REAL))
def test_every_experiment_runs_at_its_smallest_scale(name, tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(REAL))
    monkeypatch.setattr("common.ACTIVATIONS", ("silu",))  # the recipe tries several networks, which takes long
    outcome = perform(name, "smoke", tmp_path)
    assert outcome.failed == {}
    assert {path.suffix for path in outcome.files} == {".md", ".png"}
    assert all(path.stat().st_size > 0 for path in outcome.files)
    plan = harness.plan_of(REAL, name, "smoke", tmp_path)
    assert set(outcome.results) == set(plan.runs())
    claims = harness.load_experiment(REAL / name).claims(plan.settings, outcome.results)
    assert claims
    assert all(claim.verdict() != "not run" for claim in claims)
    text = (REAL / name / "README.md").read_text()
    for part in ("Question", "Command", "Result", "Takeaway"):
        assert part in text, f"{name}/README.md has no part {part}"


@pytest.mark.parametrize("scale", ["small", "long", "paper"])
@pytest.mark.parametrize("name", experiment_names(REAL))
def test_other_scales_do_what_the_smallest_one_does(name, scale):
    """Runs of all scales go through the same functions, with arguments that these take."""
    if not settings_file(REAL / name, scale).is_file():
        assert (name, scale) == ("tables", "paper")  # which is not of the paper
        return
    smallest, plan = harness.plan_of(REAL, name, "smoke").runs(), harness.plan_of(REAL, name, scale)
    planned = plan.runs()
    assert {run.function.__name__ for run in planned.values()} == {run.function.__name__ for run in smallest.values()}
    for run in planned.values():
        where = {"folder": None} if "folder" in inspect.signature(run.function).parameters else {}
        inspect.signature(run.function).bind(**run.arguments, **where)
        assert set(run.needs) <= set(planned)
    assert harness.load_experiment(REAL / name).claims(plan.settings, {})


def test_the_climate_of_the_papers_region_goes_through_the_whole_experiment(tmp_path, monkeypatch):
    """A synthetic month of the same shape and size as a file of the Climate Data Store, put where downloads go."""
    xarray = pytest.importorskip("xarray")
    shutil.copytree(real_data("switzerland/switzerland_ne50m.geojson") / "switzerland", tmp_path / "switzerland")
    random, times = np.random.default_rng(0), np.arange("2019-01-01", "2019-02-01", 12, dtype="datetime64[h]")
    latitude, longitude = np.linspace(50, 45, 51), np.linspace(5, 12, 71)
    wave = np.sin(longitude[None, None] + random.uniform(0, 6, (len(times), 1, 1))) + np.cos(latitude)[None, :, None]
    cold = 280 + wave + 0.1 * random.normal(size=(len(times), 51, 71))
    month = xarray.Dataset(
        {
            name: (("valid_time", "latitude", "longitude"), v.astype("float32"))
            for name, v in {"t2m": cold, "tp": np.maximum(wave - 0.5, 0) / 1000}.items()
        },
        coords={"valid_time": times.astype("datetime64[ns]"), "latitude": latitude, "longitude": longitude},
    )
    (tmp_path / "era5").mkdir()
    month.to_netcdf(tmp_path / "era5" / "era5_land_201901.nc", engine="h5netcdf")
    monkeypatch.setenv("BNNP_DATA", str(tmp_path))
    folder = tmp_path / "experiments"
    shutil.copytree(REAL / "prior_transfer", folder / "prior_transfer", ignore=shutil.ignore_patterns("results"))
    file = settings_file(folder / "prior_transfer", "smoke")
    settings = json.loads(file.read_text())
    settings |= {"rain": "switzerland", "processes": {"climate": settings["processes"]["climate"]}}
    file.write_text(json.dumps(settings))
    outcome = harness.perform(folder, "prior_transfer", "smoke", tmp_path / "out", only="paper")
    assert outcome.failed == {}
    scores = outcome.results["climate-sgld-paper-21"]
    assert scores["all"]["tasks"] == scores["region"]["tasks"] == 16
    shares = outcome.results["climate-fields-paper-21"]["ERA5-Land"]
    assert shares["below -0.1 mm"] == 0
    rain = np.maximum(wave - 0.5, 0) + 0 * cold
    assert shares["within 0.1 mm of none"] == pytest.approx((rain < 0.1).mean(), abs=0.1)  # the training times' share
