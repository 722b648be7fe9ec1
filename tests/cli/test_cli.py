"""Every verb of the command line, as a person would call it."""

import json
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import bnnp
import bnnp._core.progress
from bnnp.cli.entry import VERBS
from bnnp.inference import METHODS
from bnnp.inference.mcmc.chains import Sampler
from support.command_line import run


@pytest.fixture
def bnnp_command(monkeypatch, capsys):
    return lambda *words: run(monkeypatch, capsys, *words)


@pytest.fixture
def trial(tmp_path):
    """Twelve subjects with up to eleven points, in units far from 0 and 1, some rows missing."""
    generator = np.random.default_rng(0)
    rows = [
        (f"S{subject:02d}", hour, 500 + 80 * slope * np.exp(-hour / 8) + generator.normal(0, 2))
        for subject, slope in enumerate(generator.uniform(0.5, 2, 12))
        for hour in np.linspace(0, 24, 11)
        if generator.random() > 0.1
    ]
    path = tmp_path / "trial.csv"
    pd.DataFrame(rows, columns=["subject", "hour", "level"]).to_csv(path, index=False)
    return path


@pytest.fixture
def trained(bnnp_command, trial, tmp_path):
    words = ["--task", "subject", "--x", "hour", "--y", "level", "--hidden", "8", "--steps", 30, "--samples", 4]
    code, _, err = bnnp_command("train", trial, *words, "--out", tmp_path / "model", "--quiet")
    assert code == 0, err
    return tmp_path / "model" / "model.bnnp"


def test_version_as_a_script_and_as_a_module(bnnp_command):
    expected = f"bnnp {bnnp.__version__}\n"
    assert bnnp_command("--version") == (0, expected, "")
    module = subprocess.run([sys.executable, "-m", "bnnp", "--version"], capture_output=True, text=True, check=True)
    assert module.stdout == expected


def test_train_writes_model_history_and_figures(trained):
    names = {file.name for file in trained.parent.iterdir()}
    assert {"model.bnnp", "history.json", "history.png", "prior.png", "report.html"} <= names
    assert json.loads((trained.parent / "history.json").read_text())["steps"][-1]["step"] == 30
    columns = bnnp.load(trained).columns
    assert (columns.x_names, columns.y_names) == (["hour"], ["level"])


def test_predict_gives_a_table_in_the_users_units(bnnp_command, trained, tmp_path):
    pd.DataFrame({"hour": [0.0, 12.0], "level": [600.0, 520.0]}).to_csv(tmp_path / "known.csv", index=False)
    pd.DataFrame({"note": ["a", "b"], "hour": [6.0, 24.0]}).to_csv(tmp_path / "wanted.csv", index=False)
    words = ["--context", tmp_path / "known.csv", "--targets", tmp_path / "wanted.csv", "--out", tmp_path / "p.csv"]
    code, out, err = bnnp_command("predict", trained, *words)
    assert code == 0, err
    assert "wrote" in out
    table = pd.read_csv(tmp_path / "p.csv")
    assert list(table.columns[:2]) == ["note", "hour"]
    assert np.all(table["level_q05"] < table["level_q50"])
    assert np.all(table["level_q50"] < table["level_q95"])
    assert table["level_mean"].between(300, 900).all()
    model = bnnp.load(trained)
    direct = model.condition([[0.0], [12.0]], [[600.0], [520.0]]).predict([[6.0], [24.0]])
    np.testing.assert_allclose(table["level_mean"], direct.mean[:, 0])


def test_predict_keeps_several_data_sets_apart(bnnp_command, trained, tmp_path):
    known = pd.DataFrame({"who": ["a", "b"], "hour": [1.0, 1.0], "level": [650.0, 510.0]})
    known.to_csv(tmp_path / "known.csv", index=False)
    wanted = pd.DataFrame({"who": ["b", "a", "new"], "hour": [1.0, 1.0, 1.0]})
    wanted.to_csv(tmp_path / "wanted.csv", index=False)
    words = ["--context", tmp_path / "known.csv", "--targets", tmp_path / "wanted.csv", "--out", tmp_path / "p.csv"]
    code, _, err = bnnp_command("predict", trained, *words, "--task", "who")
    assert code == 0, err
    table = pd.read_csv(tmp_path / "p.csv").set_index("who")
    model = bnnp.load(trained)
    for who, level in (("a", [650.0]), ("b", [510.0]), ("new", [])):
        expected = model.condition([[1.0]] * len(level), [[v] for v in level]).predict([[1.0]]).mean.item()
        assert table.loc[who, "level_mean"] == pytest.approx(expected)


@pytest.mark.filterwarnings("ignore::bnnp.inference.InferenceWarning")
def test_infer_predicts_under_the_models_prior_by_every_method(bnnp_command, trained, tmp_path):
    known = pd.DataFrame({"who": ["a", "b", "b"], "hour": [1.0, 1.0, 20.0], "level": [650.0, 510.0, 500.0]})
    known.to_csv(tmp_path / "known.csv", index=False)
    wanted = pd.DataFrame({"who": ["b", "a"], "hour": [2.0, 2.0]})
    wanted.to_csv(tmp_path / "wanted.csv", index=False)
    words = ["--context", tmp_path / "known.csv", "--targets", tmp_path / "wanted.csv", "--out", tmp_path / "p.csv"]
    effort = ["--samples", 8, "--warmup", 3, "--chains", 2, "--steps", 8, "--quiet"]
    for method in METHODS:
        code, _, err = bnnp_command("infer", trained, *words, "--task", "who", "--method", method, *effort)
        assert code == 0, err
        table = pd.read_csv(tmp_path / "p.csv").set_index("who")
        assert np.isfinite(table["level_mean"]).all()
        assert ("warning: 2 of 2 data sets" in err) == isinstance(METHODS[method], Sampler)
        if method not in ("hmc", "ensemble"):
            continue
        model = bnnp.load(trained)
        posts = bnnp.inference.infer_many(
            model.prior,
            model.network,
            [([[1.0], [20.0]], [[510.0], [500.0]]), ([[1.0]], [[650.0]])],
            method=method,
            likelihood=model.likelihood,
            num_samples=8,
            effort=bnnp.inference.Effort(steps=8, warmup=3, chains=2),
        )
        for who, post in zip(("b", "a"), posts, strict=True):
            assert table.loc[who, "level_mean"] == pytest.approx(post.predict([[2.0]]).mean.item())
    code, _, err = bnnp_command("infer", trained, *words[:2], *words[4:], "--method", "laplace", *effort)
    assert code == 0, err
    assert list(pd.read_csv(tmp_path / "p.csv")["hour"]) == [1.0, 1.0, 20.0]
    code, _, err = bnnp_command("infer", trained, *words, "--method", "gibbs")
    assert code == 2
    assert "method: got 'gibbs', expected one of" in err


def test_evaluate_prints_scores_and_writes_json(bnnp_command, trained, trial, tmp_path):
    words = ["--task", "subject", "--samples", 50, "--out", tmp_path / "scores.json"]
    code, out, err = bnnp_command("evaluate", trained, trial, *words)
    assert code == 0, err
    assert "pooled_lppd@50" in out
    assert json.loads((tmp_path / "scores.json").read_text())["tasks"] == 12


def test_sample_draws_prior_functions(bnnp_command, trained, tmp_path):
    words = ["--num", 3, "--low", 0, "--high", 24, "--points", 7, "--out", tmp_path / "f.csv"]
    code, _, err = bnnp_command("sample", trained, *words)
    assert code == 0, err
    table = pd.read_csv(tmp_path / "f.csv")
    assert list(table.columns) == ["sample", "hour", "level"]
    assert len(table) == 21
    assert (tmp_path / "f.png").stat().st_size > 1000
    expected = bnnp.load(trained).prior.functions(3, 0)[2](np.linspace(0, 24, 7)[:, None])[:, 0]
    np.testing.assert_allclose(table[table["sample"] == 2]["level"], expected)


def test_the_folder_of_a_training_run_stands_for_its_model(bnnp_command, trained, tmp_path):
    assert bnnp_command("info", trained.parent)[0] == 0
    code, _, err = bnnp_command("sample", trained.parent, "--num", 1, "--out", tmp_path / "f.csv")
    assert code == 0, err
    hours = pd.read_csv(tmp_path / "f.csv")["hour"].to_numpy()
    assert (hours.min(), hours.max()) == (0, 24)  # the range of the training inputs


def test_info_tells_what_the_file_holds(bnnp_command, trained):
    code, out, _ = bnnp_command("info", trained)
    assert code == 0
    assert "1 - 8 - 1" in out
    assert "hour" in out


def test_training_on_a_synthetic_source(bnnp_command, tmp_path):
    words = ["--source", "gp", "--hidden", "4", "--steps", 3, "--samples", 2, "--out", tmp_path / "m", "--quiet"]
    assert bnnp_command("train", *words)[0] == 0


def test_a_neural_process_goes_through_every_verb_that_needs_no_prior(bnnp_command, trial, tmp_path):
    words = ["--task", "subject", "--x", "hour", "--y", "level", "--model", "anp", "--hidden", "8", "--steps", 5]
    code, _, err = bnnp_command("train", trial, *words, "--samples", 2, "--out", tmp_path / "m", "--quiet")
    assert code == 0, err
    code, out, _ = bnnp_command("info", tmp_path / "m")
    assert code == 0
    assert "ANP" in out
    assert "HeteroscedasticGaussian" in out
    files = ["--context", trial, "--targets", trial, "--task", "subject", "--out", tmp_path / "p.csv"]
    assert bnnp_command("predict", tmp_path / "m", *files, "--samples", 20)[0] == 0
    assert pd.read_csv(tmp_path / "p.csv")["level_mean"].between(300, 800).all()
    code, out, _ = bnnp_command("evaluate", tmp_path / "m", trial, "--task", "subject", "--samples", 20)
    assert code == 0
    assert "joint_lppd@20" in out
    for verb, rest in (("sample", ["--out", tmp_path / "f.csv"]), ("infer", files)):
        code, _, err = bnnp_command(verb, tmp_path / "m", *rest)
        assert code == 2
        assert "ANP models have no prior over weights" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--model", "gnp"], "model: got 'gnp'"), (["--model", "cnp", "--learnability", 0.5], "prior")],
)
def test_models_that_cannot_be(bnnp_command, tmp_path, words, message):
    code, _, err = bnnp_command("train", "--source", "gp", *words, "--out", tmp_path / "m", "--quiet")
    assert code == 2
    assert message in err
    assert not (tmp_path / "m").exists()


def test_ctrl_c_keeps_the_state_and_says_how_to_go_on(bnnp_command, trial, tmp_path, monkeypatch):
    advance, calls = bnnp._core.progress.ProgressBar.advance, []

    def interrupt_at_step_5(self, terms=None):
        advance(self, terms)
        calls.append(terms)
        if len(calls) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(bnnp._core.progress.ProgressBar, "advance", interrupt_at_step_5)
    words = [
        "train",
        trial,
        *TRAIN[:6],
        "--hidden",
        "4",
        "--steps",
        9,
        "--samples",
        2,
        "--quiet",
        "--out",
        tmp_path / "m",
    ]
    code, _, err = bnnp_command(*words)
    assert code == 130
    assert "goes on from here" in err
    assert bnnp_command(*words)[0] == 0
    assert len(calls) == 9
    assert json.loads((tmp_path / "m" / "history.json").read_text())["steps"][-1]["step"] == 9


def test_a_finished_run_is_not_trained_again(bnnp_command, trained, trial):
    before = trained.read_bytes()
    words = ["--task", "subject", "--x", "hour", "--y", "level", "--hidden", "8", "--steps", 30, "--samples", 4]
    code, _, err = bnnp_command("train", trial, *words, "--out", trained.parent, "--quiet")
    assert code == 0
    assert trained.read_bytes() == before
    assert f"Look at {trained.parent / 'report.html'}, then: bnnp predict {trained.parent} --context" in err


TRAIN = ["--task", "subject", "--x", "hour", "--y", "level", "--hidden", "4", "--steps", 3, "--samples", 2, "--quiet"]
BAD_TABLES = {
    "an empty file": ("", "empty"),
    "no rows": ("subject,hour,level\n", "no rows"),
    "a task with one point": ("subject,hour,level\na,1,2\na,2,3\nb,1,2\n", "'b'"),
    "empty cells": ("subject,hour,level\na,1,\na,2,\na,3,\n", "empty cell in every row"),
    "infinity": ("subject,hour,level\na,1,2\na,2,inf\na,3,4\n", "'level'"),
    "a constant output": ("subject,hour,level\na,1,2\na,2,2\nb,1,2\nb,2,2\n", "level"),
    "text in a number column": ("subject,hour,level\na,1,2\na,noon,3\na,3,4\n", "noon"),
    "an unknown column": ("subject,time,level\na,1,2\na,2,3\n", "'hour'"),
}


@pytest.mark.parametrize("what", BAD_TABLES)
def test_bad_tables_end_with_exit_code_2_and_nothing_written(bnnp_command, tmp_path, what):
    content, named = BAD_TABLES[what]
    (tmp_path / "bad.csv").write_text(content)
    code, _, err = bnnp_command("train", tmp_path / "bad.csv", *TRAIN, "--out", tmp_path / "out")
    assert code == 2
    assert "error:" in err
    assert named in err
    assert not list(tmp_path.glob("out/*"))


def test_an_output_folder_that_cannot_be_made_is_an_error(bnnp_command, trial, tmp_path):
    (tmp_path / "file").write_text("in the way")
    code, _, err = bnnp_command("train", trial, *TRAIN, "--out", tmp_path / "file" / "model")
    assert code == 2
    assert "cannot write" in err


def test_full_disk_leaves_nothing_half_written(bnnp_command, trained, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    code, _, err = bnnp_command("sample", trained, "--out", tmp_path / "f.csv")
    assert code == 2
    assert "No space" in err
    assert not list(tmp_path.glob("*f.csv*"))


@pytest.mark.parametrize("content", [b"not a model", b"", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_foreign_model_files(bnnp_command, tmp_path, content):
    (tmp_path / "m.bnnp").write_bytes(content)
    code, _, err = bnnp_command("info", tmp_path / "m.bnnp")
    assert code == 2
    assert "m.bnnp" in err


def test_truncated_model_file(bnnp_command, trained):
    trained.write_bytes(trained.read_bytes()[:-100])
    code, _, err = bnnp_command("info", trained)
    assert code == 2
    assert "cut short" in err


def test_missing_and_mismatched_inputs(bnnp_command, trained, trial, tmp_path):
    assert bnnp_command("info", tmp_path / "nowhere.bnnp")[0] == 2
    assert bnnp_command("info", "zoo:nonsense")[0] == 2
    assert bnnp_command("train")[0] == 2
    assert bnnp_command("train", trial, "--source", "gp")[0] == 2
    code, _, err = bnnp_command("train", trial, "--x", "hour", "--out", tmp_path / "x")
    assert code == 2
    assert "got no --task, --y; a table needs" in err
    assert bnnp_command("train", "--source", "nonsense", "--out", tmp_path / "x")[0] == 2
    pd.DataFrame({"hours": [1.0], "level": [2.0]}).to_csv(tmp_path / "c.csv", index=False)
    words = ["--context", tmp_path / "c.csv", "--targets", tmp_path / "c.csv", "--out", tmp_path / "p.csv"]
    code, _, err = bnnp_command("predict", trained, *words)
    assert code == 2
    assert "'hour'" in err
    assert not (tmp_path / "p.csv").exists()


def test_every_verb_has_a_help_text_with_an_example_and_its_options_in_groups(bnnp_command):
    code, out, _ = bnnp_command("--help")
    assert code == 0
    for verb, groups in GROUPS.items():
        assert verb in out
        code, text, _ = bnnp_command(verb, "--help")
        assert code == 0
        assert "Example: bnnp" in text
        found = re.findall("─ ([A-Z][a-z ]+) ─", text)
        assert [name for name in found if name not in ("Arguments", "Options")] == groups
    assert {verb.__name__ for verb in VERBS} == set(GROUPS)


OUTPUT = "Output and randomness"
GROUPS = {
    "demo": ["Training", OUTPUT],
    "train": ["Data", "Model", "Training", OUTPUT],
    "predict": ["Data", "Inference", OUTPUT],
    "infer": ["Data", "Inference", OUTPUT],
    "evaluate": ["Data", "Inference", OUTPUT],
    "sample": ["Inputs", "Data", OUTPUT],
    "compare": ["Data", "Training", OUTPUT],
    "app": ["Data", OUTPUT],
    "experiment": ["Runs", OUTPUT],
    "bench": ["Measurement", OUTPUT],
    "info": [],
    "card": ["Data", OUTPUT],
}
