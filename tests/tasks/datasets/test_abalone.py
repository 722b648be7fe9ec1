"""Abalone: the paper's counts on the real file, the left-out cube, and every bad file."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import bnnp
from bnnp.cli import main
from bnnp.tasks import abalone
from bnnp.tasks.datasets.abalone import _FILE, FEATURES
from conftest import real_data

FILE = "abalone/abalone.data"


def put(home: Path, text: str) -> Path:
    (home / "abalone").mkdir(parents=True, exist_ok=True)
    (home / FILE).write_text(text)
    return home


def made(home: Path, rows: int = 60) -> Path:
    """A file of random numbers in the real one's form."""
    rng = np.random.default_rng(0)
    lines = [
        f"{'MFI'[i % 3]},{','.join(f'{v:.3f}' for v in rng.normal(size=7))},{rng.integers(1, 20)}" for i in range(rows)
    ]
    return put(home, "\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def home() -> Path:
    return real_data(FILE)


# --- the real file ----------------------------------------------------------------------------------------------------


def test_males_and_females_are_for_training(home):
    train = abalone("train", folder=home)
    assert [(task.name, len(task)) for task in train.tasks] == [("male", 1528), ("female", 1307)]
    assert (train.in_size, train.out_size, train.y_names) == (7, 1, ("rings",))
    assert train[0].x[0].tolist() == [0.455, 0.365, 0.095, 0.514, 0.2245, 0.101, 0.15]
    assert train[0].y[0].item() == 15


def test_infants_are_for_tests_with_the_papers_counts(home):
    test = abalone("test", folder=home)
    (split,) = test.splits
    assert (len(test[0]), len(split.context), len(split.target)) == (1342, 336, 1006)
    columns = test.columns
    assert columns is not None
    in_cube = {
        part: (columns.standardise_x(task.x).abs() <= 0.9677).all(1).sum().item() for part, task in vars(split).items()
    }
    assert in_cube == {"context": 0, "target": 279}
    everyone = torch.cat([split.context.x, split.target.x])
    assert torch.equal(everyone.sort(0).values, test[0].x.sort(0).values)


def test_units_are_those_of_males_and_females(home):
    train, test = abalone("train", folder=home), abalone("test", folder=home)
    table = np.loadtxt(home / FILE, delimiter=",", dtype=str)
    numbers = table[table[:, 0] != "I", 1:].astype(float)
    for columns in (train.columns, test.columns):
        assert columns is not None
        np.testing.assert_allclose(columns.x_shift, numbers[:, :-1].mean(0))
        np.testing.assert_allclose(columns.x_scale, numbers[:, :-1].std(0, ddof=1))
        np.testing.assert_allclose(columns.y_scale, numbers[:, -1:].std(0, ddof=1))
    scaled = train.standardised()
    everyone = torch.cat([torch.cat([task.x, task.y], 1) for task in scaled.tasks])
    np.testing.assert_allclose(everyone.mean(0), np.zeros(8), atol=1e-12)
    np.testing.assert_allclose(everyone.std(0), np.ones(8))
    assert not scaled.standardise
    assert scaled.standardised() is scaled
    (split,) = test.standardised().splits
    assert test.columns is not None
    torch.testing.assert_close(test.columns.restore_y(split.target.y), test.splits[0].target.y)


def test_the_seed_chooses_the_context(home):
    contexts = [abalone("test", seed=seed, folder=home).splits[0].context.x for seed in (0, 0, 1)]
    assert torch.equal(contexts[0], contexts[1])
    assert not torch.equal(contexts[0], contexts[2])


# --- any file ---------------------------------------------------------------------------------------------------------


def test_a_trained_model_has_the_units_and_gives_errors_in_rings(tmp_path):
    train, test = (abalone(split, folder=made(tmp_path)) for split in ("train", "test"))
    model = bnnp.BNNP(7, 1, hidden=(3,))
    bnnp.fit(model, train, objective=bnnp.objectives.PPAVI(2), steps=1, batch_size=2, progress=False)
    assert train.columns is not None
    torch.testing.assert_close(model.columns.y_scale.double(), train.columns.y_scale, rtol=1e-6, atol=0)
    assert (model.columns.x_names, model.columns.y_names) == (list(FEATURES), ["rings"])
    assert bnnp.evaluate(model, test, num_samples=20)["mae"] > 1


def test_the_real_file_is_the_one_that_is_downloaded(home, web, tmp_path):
    web["https://archive.ics.uci.edu/ml/machine-learning-databases/abalone/abalone.data"] = (home / FILE).read_bytes()
    assert len(abalone()) == 2
    assert (tmp_path / "cache" / FILE).is_file()


def test_without_a_connection_the_error_says_where_to_get_the_file(web, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        abalone()
    for part in (str(tmp_path / "cache" / FILE), _FILE.url, "BNNP_DATA", "no route to host"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a table of 9 columns"),
        ("M,1,2\nF,2,3\n", "got 3 columns, expected 9"),
        ("sex,a,b,c,d,e,f,g,rings\nM,1,2,3,4,5,6,7,8\n", "the sex 'F'"),
        ("M,1,2,3,4,5,6,7,8\nF,1,2,3,4,5,6,7,8\nI,1,2,3,x,5,6,7,8\n", "could not convert"),
        ("M,1,2,3,4,5,6,7,8\nF,1,2,3,4,5,6,7,8\nI,1,2,3,,5,6,7,8\n", "got nan at row 0, column 3"),
    ],
    ids=["empty", "narrow", "header", "word", "hole"],
)
def test_bad_files_are_refused_by_name(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        abalone(folder=put(tmp_path, text))
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"split": "valid"}, "got 'valid', expected 'train' or 'test'"),
        ({"split": "test", "cube": 100.0}, "cube: got 0 of 20 points outside it, expected at least 5"),
        ({"split": "test", "seed": "a"}, "seed: got 'a'"),
    ],
)
def test_bad_choices_are_refused(tmp_path, choices, message):
    with pytest.raises(ValueError, match=message):
        abalone(folder=made(tmp_path), **choices)


def test_the_command_line_trains_and_evaluates(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BNNP_DATA", str(made(tmp_path)))
    model = str(tmp_path / "model")
    train = "train --source abalone --hidden 3 --steps 1 --samples 2 --batch-size 2 --quiet --out"
    for words in (train, "evaluate --source abalone-tests --samples 20"):
        monkeypatch.setattr(sys, "argv", ["bnnp", *words.split(), model])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code in (0, None)
    assert "mae" in capsys.readouterr().out
