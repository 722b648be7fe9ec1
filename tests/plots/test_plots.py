import numpy as np
import pytest

import bnnp
from bnnp import plots
from bnnp.evaluation import Oracle
from bnnp.training import History

X = np.linspace(-2, 2, 30)


@pytest.fixture(scope="module")
def model():
    return bnnp.BNNP(1, 1, (4,), seed=0)


def test_overview_shows_process_prior_and_each_posterior(model):
    tests = bnnp.tasks.sawtooth_tests()
    figure = plots.overview(model.prior.functions(3), model, tests.splits[:2], X, true=tests.tasks[:2])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:2] == ["the true process", "the learned prior"]
    assert len(titles) == 4
    assert len(figure.axes[1].lines) == 3


def test_calibration_of_the_exact_posterior_lies_on_the_diagonal():
    source, tests = bnnp.tasks.sawtooth(), bnnp.tasks.sawtooth_tests()
    oracle = Oracle(source)
    predictions = [
        (oracle.condition(s.context.x, s.context.y).predict(s.target.x), s.target.y.numpy()) for s in tests.splits
    ]
    curve = calibration_curve(plots.calibration(predictions))
    # 600 targets: a standard error is at most 0.02; 4 of them, over 19 correlated levels, fail by chance below 1e-3
    np.testing.assert_allclose(curve[1], curve[0], atol=0.08)
    too_sure = [(bnnp.evaluation.with_noise(p, 0.01), y) for p, y in predictions]
    wrong = calibration_curve(plots.calibration(too_sure))
    assert (wrong[0] - wrong[1]).max() > 0.2


def calibration_curve(figure) -> tuple[np.ndarray, np.ndarray]:
    line = next(line for line in figure.axes[0].lines if line.get_label() == "model")
    return np.asarray(line.get_xdata()), np.asarray(line.get_ydata())


def test_history_has_a_panel_for_evaluations_only_where_there_are_some():
    steps = [{"step": i, "seconds": i, "learning_rate": 1e-3, "objective": -i, "kl": -1.0} for i in range(5)]
    assert len(plots.history(History(steps)).axes) == 1
    assert len(plots.history(History(steps, [{"step": 4, "seconds": 4, "mae": 0.1}])).axes) == 2


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_figures_are_written_by_their_ending(model, tmp_path, ending, magic):
    path = plots.save_figure(plots.functions(model.prior.functions(2), X), tmp_path / f"f.{ending}")
    assert path.read_bytes().startswith(magic)
