"""The report of a training: self-contained, with scores beside simple methods, and with its warnings."""

import re

import numpy as np
import pytest
import torch

import bnnp
from bnnp.recipe import Judged, Learned
from bnnp.report import Report, write_report
from bnnp.tasks import Split, Task


@pytest.fixture(scope="module")
def learned():
    """A model of sines that are easy to tell from their mean, judged by two that it has not seen."""
    generator = np.random.default_rng(0)
    x = np.linspace(-2, 2, 12)
    data = [(x, level + np.sin(2 * x) + 0.05 * generator.normal(size=12)) for level in generator.normal(size=8)]
    collection = bnnp.tasks.from_arrays(data)
    model = bnnp.BNNP(1, 1, (8,), "silu", last_layer="likelihood", dtype=torch.float64, seed=0)
    known = bnnp.tasks.from_arrays(data[:6])
    bnnp.start_prior(model, known, "spread", 0)
    left = [Split(task.take(slice(0, 12, 2)), task.take(slice(1, 12, 2))) for task in collection.tasks[6:]]
    history = bnnp.History([{"step": i, "seconds": i, "learning_rate": 0.1, "objective": -1.0} for i in range(3)])
    return Learned(model, history, ["It was <decided>."], None, False, Judged(model, known, left)), collection


@pytest.fixture(scope="module")
def page(learned, tmp_path_factory):
    return write_report(tmp_path_factory.mktemp("report") / "report.html", *learned).read_text()


def test_the_page_needs_no_network_and_has_all_sections(page):
    sources = re.findall(r'(?:src|href)="([^"]{0,30})', page)
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    heads = re.findall(r"<h2>(.*?)</h2>", page)
    assert heads == [
        *("Warnings", "Data", "The learned prior beside the data", "How it was trained"),
        *("Left-out data sets", "Calibration"),
    ]
    assert "It was &lt;decided&gt;." in page


def test_scores_are_those_of_evaluate(learned, page):
    judged = learned[0].judged
    scores = bnnp.evaluate(judged.model, judged.left_out, seed=0)
    row = re.search(r"<td>this model</td>(.*?)</tr>", page)
    assert row is not None
    assert f"<td>{scores['rmse']:.3f} ± {scores.standard_error('rmse'):.3f}</td>" in row[1]
    for name in ("the mean of all", "each one&#x27;s own mean", "one curve for all"):
        assert f"<td>{name}</td>" in page


def test_warnings_say_what_is_wrong(learned):
    result, collection = learned
    quiet = Report(result.model, result.history, collection.tasks, [], None, False, 0)
    assert quiet.warnings() == ["No data sets were left out: how well new ones are predicted is not known."]
    narrow = [Task(task.x, 1e-3 * task.y) for task in collection.tasks]
    loud = Report(result.model, result.history, narrow, [], None, True, 0)
    assert loud.warnings()[0] == "Training was stopped before its end."
    assert loud.warnings()[-1] == "Functions of the learned prior are far wider than the data in y0."


def test_a_model_worse_than_a_simple_method_is_told(learned, tmp_path):
    result, collection = learned
    wrong = bnnp.BNNP(1, 1, (8,), "silu", last_layer="likelihood", likelihood=bnnp.Gaussian(1e-2), seed=1)
    left = result.judged.left_out * 2
    other = Learned(wrong, bnnp.History(), [], None, False, Judged(wrong, result.judged.tasks, left))
    text = write_report(tmp_path / "r.html", other, collection).read_text()
    assert "predicts left-out data sets better than this model" in text


def test_without_left_out_data_sets_the_page_says_so(learned, tmp_path):
    result, collection = learned
    text = write_report(tmp_path / "r.html", bnnp.FitResult(result.model, result.history), collection).read_text()
    assert "this report cannot say how well new ones are predicted" in text
