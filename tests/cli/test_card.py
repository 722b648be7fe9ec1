"""`bnnp card`: a page about a model, made from its file and the files beside it."""

import numpy as np
import pytest

import bnnp
from support.command_line import run


@pytest.fixture
def bnnp_command(monkeypatch, capsys):
    return lambda *words: run(monkeypatch, capsys, *words)


@pytest.fixture
def trained(tmp_path):
    """The folder of a small training, with columns whose names have characters that mean something in Markdown."""
    rng = np.random.default_rng(0)
    rows = [f"{who},{hour},{who + hour + rng.normal():.3f}" for who in range(4) for hour in range(5)]
    (tmp_path / "trial.csv").write_text("\n".join(["who,hour|h,level_a", *rows]))
    tasks = bnnp.tasks.from_table(tmp_path / "trial.csv", task="who", x="hour|h", y="level_a")
    result = bnnp.fit(bnnp.BNNP(1, 1, hidden=(4,)), tasks, steps=3, progress=False)
    result.history.save(tmp_path / "model" / "history.json")
    result.model.save(tmp_path / "model" / "model.bnnp")
    return tmp_path / "model"


def test_the_card_has_columns_ranges_training_and_limits(bnnp_command, trained):
    code, out, err = bnnp_command("card", trained)
    assert code == 0, err
    headings = [line for line in out.splitlines() if line.startswith("## ")]
    assert headings == ["## The model", "## The data it has learned from", "## Training", "## Scores", "## Limits"]
    assert "| data sets are told apart by | who |" in out
    assert r"| hour\|h | input | 0 | 4 |" in out
    assert r"| level\_a | output |" in out
    assert "| steps | 3 |" in out
    assert "1 - 4 - 1" in out
    assert "Not measured for this card" in out


def test_it_is_written_with_a_figure_of_the_prior(bnnp_command, trained, tmp_path):
    code, out, err = bnnp_command("card", trained / "model.bnnp", "--out", tmp_path / "card.md")
    assert code == 0, err
    assert out.splitlines() == [f"wrote {tmp_path / 'card.md'}", f"wrote {tmp_path / 'card_prior.png'}"]
    assert "(card_prior.png)" in (tmp_path / "card.md").read_text()
    assert (tmp_path / "card_prior.png").read_bytes()[:4] == b"\x89PNG"


def test_scores_are_measured_on_a_source_beside_the_best_possible(bnnp_command, monkeypatch, tmp_path):
    few = bnnp.evaluate
    monkeypatch.setattr("bnnp.cli.card.TESTED", 2)
    monkeypatch.setattr(bnnp, "evaluate", lambda *a, **k: few(*a, **{**k, "num_samples": 4}))
    code, shown, err = bnnp_command("card", "zoo:gp", "--source", "gp", "--quiet", "--out", tmp_path / "gp.md")
    assert code == 0, err
    assert shown.splitlines()[1:] == [f"wrote {tmp_path / name}" for name in ("gp_calibration.png", "gp_prior.png")]
    out = (tmp_path / "gp.md").read_text()
    assert "(gp_calibration.png)" in out
    assert "(gp_prior.png)" in out
    assert "| score | this model | the best possible |" in out
    assert "over 2 data sets (`bnnp card zoo:gp --source gp --seed 0`)" in out
    (row,) = [line for line in out.splitlines() if line.startswith("| mae |")]
    ours, best = (float(cell.split("±")[0]) for cell in row.strip("|").split("|")[1:])
    expected = few(bnnp.load("zoo:gp"), bnnp.tasks.gp(), num_tasks=2, num_samples=4)["mae"]
    assert ours == pytest.approx(expected, abs=6e-4)
    assert best == pytest.approx(few(bnnp.Oracle(bnnp.tasks.gp()), bnnp.tasks.gp(), num_tasks=2)["mae"], abs=6e-4)


def test_a_card_says_what_is_not_recorded(bnnp_command, trained, tmp_path):
    (trained / "history.json").write_text("{}")
    assert "Not recorded" in bnnp_command("card", trained)[1]
    fresh = bnnp.BNNP(1, 1, hidden=(4,)).save(tmp_path / "fresh.bnnp")
    assert "does not say which range" in bnnp_command("card", fresh)[1]
    assert "The paper's sawtooth process" in bnnp_command("card", "zoo:sawtooth")[1]


def test_a_card_without_steps_does_not_say_that_features_were_not_trained(bnnp_command, trained):
    bnnp.History().save(trained / "history.json")
    _, out, _ = bnnp_command("card", trained)
    assert "No steps of training everything" in out
    assert "but for its features" in out


def test_a_neural_process_has_a_card_too(bnnp_command, tmp_path):
    place = bnnp.neural_processes.CNP(1, 1, hidden=(4,)).save(tmp_path / "cnp.bnnp")
    code, out, err = bnnp_command("card", place)
    assert code == 0, err
    assert "It has no prior over weights" in out
