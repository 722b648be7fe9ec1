"""Subjects of `bnnp predict`: their names are kept, and the output says which were predicted from the prior alone."""

import numpy as np
import pandas as pd
import pytest

import bnnp
from support.command_line import run


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model of twelve subjects, called 001, 002, ... and NA, over 24 hours."""
    random = np.random.default_rng(0)
    names = [*(f"{i:03d}" for i in range(11)), "NA"]
    rows = [(name, hour, 500 + 20 * random.normal() - hour) for name in names for hour in np.linspace(0, 24, 9)]
    frame = pd.DataFrame(rows, columns=["subject", "hour", "level"])
    tasks = bnnp.tasks.from_table(frame, task="subject", x="hour", y="level")
    fitted = bnnp.fit(bnnp.BNNP(1, 1, hidden=(4,)), tasks, steps=5, progress=False).model
    return fitted.save(tmp_path_factory.mktemp("model") / "m.bnnp")


@pytest.fixture
def predict(model, tmp_path, monkeypatch, capsys):
    def call(known: str, wanted: str, *more, out: str = "p.csv"):
        (tmp_path / "known.csv").write_text(known)
        (tmp_path / "wanted.csv").write_text(wanted)
        files = ["--context", tmp_path / "known.csv", "--targets", tmp_path / "wanted.csv", "--out", tmp_path / out]
        return run(monkeypatch, capsys, "predict", model, *files, "--samples", 8, *more)

    return call


KNOWN = "subject,hour,level\n013,0,500\n13,0,510\nNA,0,520\nNA,1,521\n"


def test_names_of_subjects_are_kept_as_they_are_written(predict, model, tmp_path):
    code, _, err = predict(KNOWN, "subject,hour\n13,6\nNA,6\n013,6\nnew,6\n")
    assert code == 0, err
    assert "subjects by 'subject': 4 asked for, 3 with known points, 1 without (predicted from the prior: new)" in err
    assert "known points: 4 used, 0 not used" in err
    table = pd.read_csv(tmp_path / "p.csv", dtype={"subject": str}, keep_default_na=False)
    assert table["subject"].tolist() == ["13", "NA", "013", "new"]
    assert table["from_prior"].tolist() == [False, False, False, True]
    points = {"13": ([0.0], [510.0]), "NA": ([0.0, 1.0], [520.0, 521.0]), "013": ([0.0], [500.0]), "new": ([], [])}
    means = [bnnp.load(model).condition(*points[name], num_samples=8).predict([6.0]).mean.item() for name in points]
    np.testing.assert_allclose(table["level_mean"].astype(float), means)


def test_a_context_without_rows_is_an_error(predict, tmp_path):
    code, _, err = predict("subject,hour,level\n", "subject,hour\n13,6\n")
    assert code == 2
    assert "known.csv: got no known point, expected at least one row; bnnp sample MODEL --at" in err
    assert not (tmp_path / "p.csv").exists()


def test_a_figure_of_all_subjects_may_be_had(predict, tmp_path):
    wanted = "subject,hour\n13,6\nnew,6\n"
    code, out, err = predict(KNOWN, wanted, "--plot", tmp_path / "subjects.svg")
    assert code == 0, err
    assert f"wrote {tmp_path / 'subjects.svg'}" in out
    assert (tmp_path / "subjects.svg").read_text().startswith("<?xml")
    many = "subject,hour\nNA,1\n" + "".join(f"new{i},6\n" for i in range(21))
    assert "shows the first 20 of 22 subjects" in predict(KNOWN, many, "--plot", tmp_path / "many.png")[2]
    code, _, err = predict(KNOWN, wanted, "--plot", tmp_path / "subjects.csv", out="other.csv")
    assert code == 2
    assert "--plot: got" in err
    assert not (tmp_path / "other.csv").exists()


def test_known_points_that_nobody_asked_for_are_counted(predict):
    code, _, err = predict(KNOWN, "subject,hour\nNA,6\n")
    assert code == 0
    assert "known points: 2 used, 2 not used" in err


def test_subjects_without_known_points_may_be_left_out(predict, tmp_path):
    code, _, err = predict(KNOWN, "subject,hour\nnew,6\nNA,6\n", "--skip-small")
    assert code == 0
    assert "left out: 1 subjects without known points (new)" in err
    assert pd.read_csv(tmp_path / "p.csv", keep_default_na=False)["subject"].tolist() == ["NA"]


def test_rows_with_empty_cells_may_be_left_out(predict, tmp_path):
    code, _, err = predict(KNOWN + "NA,,500\n", "subject,hour\nNA,\nNA,6\n", "--drop-missing")
    assert code == 0
    assert "known.csv with empty cells (row 6)" in err
    assert "wanted.csv with empty cells (row 2)" in err
    assert pd.read_csv(tmp_path / "p.csv")["hour"].tolist() == [6.0]


def test_without_subjects_all_points_are_one_data_set(predict, tmp_path):
    code, _, err = predict("hour,level\n0,500\n1,501\n", "hour\n6\n7\n")
    assert code == 0
    assert "known points: 2 used, 0 not used" in err
    assert pd.read_csv(tmp_path / "p.csv")["from_prior"].tolist() == [False, False]


def test_inputs_outside_the_training_range_are_marked(predict, tmp_path):
    code, _, err = predict(KNOWN, "subject,hour\nNA,24\nNA,30\nNA,-1\n")
    assert code == 0
    assert "warning: 2 of 3 targets are outside the range of the training inputs (hour: 0 to 24)" in err
    assert pd.read_csv(tmp_path / "p.csv")["outside_training"].tolist() == [False, True, True]


def test_predictions_go_to_parquet(predict, tmp_path):
    code, out, err = predict(KNOWN, "subject,hour\n013,6\n", out="p.parquet")
    assert code == 0, err
    assert "wrote" in out
    table = pd.read_parquet(tmp_path / "p.parquet")
    assert table["subject"].tolist() == ["013"]
    assert table["hour"].tolist() == [6.0]
    assert np.isfinite(table["level_mean"]).all()


def test_a_prior_far_wider_than_the_data_is_said_to_be(model, monkeypatch, capsys, tmp_path):
    wide = bnnp.load(model)
    wide.columns.y_scale *= 1000
    code, _, err = run(monkeypatch, capsys, "sample", wide.save(tmp_path / "w.bnnp"), "--out", tmp_path / "f.csv")
    assert code == 0
    assert "the prior is far wider than the data" in err
    code, _, err = run(monkeypatch, capsys, "sample", model, "--low", 0, "--high", 30, "--out", tmp_path / "f.csv")
    assert "inputs are outside the range of the training inputs (hour: 0 to 24)" in err


def test_python_warns_and_marks_alike(model):
    loaded = bnnp.load(model)
    post = loaded.condition([0.0], [500.0], num_samples=4)
    with pytest.warns(bnnp.ExtrapolationWarning, match=r"range of the training inputs \(hour: 0 to 24\)"):
        post.predict([30.0])
    assert loaded.columns.outside([0.0, 24.0, 24.1]).tolist() == [False, False, True]
    again = bnnp.load(model)
    assert again.columns.task_name == "subject"
    assert again.columns.ranges == loaded.columns.ranges


def test_the_evaluation_takes_the_column_of_training(model, monkeypatch, capsys, tmp_path):
    (tmp_path / "t.csv").write_text("subject,hour,level\na,0,500\na,1,501\na,2,499\nb,1,500\n")
    code, out, err = run(monkeypatch, capsys, "evaluate", model, tmp_path / "t.csv", "--samples", 4, "--skip-small")
    assert code == 0, err
    assert "1 data sets" in out
    assert "left out: 1 data sets with too few points (b)" in err
