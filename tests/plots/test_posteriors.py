"""Figures of posteriors: one, or many subjects side by side, in the user's units."""

import numpy as np
import pandas as pd
import pytest

import bnnp
from bnnp import plots
from bnnp.tasks import Task


@pytest.fixture(scope="module")
def trained():
    """A model of two inputs and two outputs, and the tasks that it knows."""
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(24, 4)), columns=["time (h)", "dose (mg)", "conc (mg/l)", "rate"])
    frame["time (h)"] = 100 + 10 * frame["time (h)"]
    frame["subject"] = np.repeat(["a", "b", "c"], 8)
    frame["dose (mg)"] = np.repeat([1.0, 2.0, 3.0], 8)
    tasks = bnnp.tasks.from_table(frame, task="subject", x=["time (h)", "dose (mg)"], y=["conc (mg/l)", "rate"])
    model = bnnp.BNNP(2, 2, (4,), likelihood=bnnp.Gaussian(0.1), seed=0)
    bnnp.fit(model, tasks, steps=1, progress=False)
    return model, tasks.tasks


def lines_of(axes, label: str) -> np.ndarray:
    (line,) = (line for line in axes.lines if line.get_label() == label)
    return np.asarray(line.get_xydata())


def test_a_posterior_has_a_panel_per_output_in_the_users_units(trained):
    model, tasks = trained
    post = model.condition(tasks[0].x, tasks[0].y, num_samples=6)
    figure = plots.posterior(post, lines=2)
    assert [axes.get_ylabel() for axes in figure.axes] == ["conc (mg/l)", "rate"]
    assert figure.axes[0].get_xlabel() == "time (h)"
    curve = lines_of(figure.axes[1], "mean")
    x = np.column_stack([curve[:, 0], np.full(len(curve), 1.0)])
    np.testing.assert_allclose(curve[:, 1], post.predict(x).mean[:, 1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.sort(lines_of(figure.axes[1], "known"), 0), np.sort(known(tasks[0], 1), 0), rtol=1e-5)


def known(task: Task, output: int) -> np.ndarray:
    return np.column_stack([task.x[:, 0], task.y[:, output]])


def test_the_axis_may_be_another_input(trained):
    model, tasks = trained
    post = model.condition(tasks[0].x, tasks[0].y, num_samples=6)
    figure = plots.posterior(post, along="dose (mg)")
    assert figure.axes[0].get_xlabel() == "dose (mg)"
    assert lines_of(figure.axes[0], "mean")[[0, -1], 0] == pytest.approx([1.0, 3.0])
    with pytest.raises(ValueError, match="along: got 'weight', expected one of time"):
        plots.posterior(post, along="weight")


def test_subjects_keep_their_own_covariates_and_share_axes(trained):
    model, tasks = trained
    contexts, rest = [task.take(slice(0, 3)) for task in tasks], [task.take(slice(3, 8)) for task in tasks]
    posts = [model.condition(task.x, task.y, num_samples=6) for task in contexts]
    figure = plots.subjects(posts, contexts, held_out=rest, output=1)
    assert [axes.get_title() for axes in figure.axes] == ["a", "b", "c"]
    curve = lines_of(figure.axes[2], "mean")
    x = np.column_stack([curve[:, 0], np.full(len(curve), 3.0)])
    np.testing.assert_allclose(curve[:, 1], posts[2].predict(x).mean[:, 1], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(lines_of(figure.axes[1], "held out"), known(rest[1], 1))
    assert {text.get_text() for text in figure.legends[0].get_texts()} == {
        *("90 % of new observations", "mean", "known", "held out"),
    }


def test_only_so_many_subjects_are_shown(trained):
    model, tasks = trained
    posts = [model.condition(task.x, task.y, num_samples=3) for task in tasks]
    assert len(plots.subjects(posts, tasks, most=2).axes) == 2
    with pytest.raises(ValueError, match="got 3, 2 and 0 subjects"):
        plots.subjects(posts, tasks[:2])


def test_every_class_is_drawn():
    model = bnnp.BNNP(1, 3, (4,), likelihood=bnnp.Categorical(3), seed=0)
    x, y = np.array([[0.0], [1.0], [2.0]]), np.array([[0.0], [2.0], [0.0]])
    figure = plots.posterior(model.condition(x, y, num_samples=4))
    assert [axes.get_ylabel() for axes in figure.axes[:3]] == [f"probability of y0 = {c}" for c in range(3)]
    assert lines_of(figure.axes[0], "known")[:, 1].tolist() == [1.0, 0.0, 1.0]
    assert lines_of(figure.axes[2], "known")[:, 1].tolist() == [0.0, 1.0, 0.0]
    drawn = plots.functions(model.prior.functions(2), np.linspace(0, 1, 5), data=[Task.of(x, y)], labels=("t", "kind"))
    assert [axes.get_ylabel() for axes in drawn.axes[:3]] == [f"probability of kind = {c}" for c in range(3)]
    assert lines_of(drawn.axes[0], "data").tolist() == [[0.0, 1.0], [1.0, 0.0]]  # within the range of the functions


def test_a_first_point_far_below_does_not_flatten_the_history():
    for count in (5, 40):
        steps = [
            {"step": i, "seconds": i, "learning_rate": 1e-3, "objective": -1e6 if i == 0 else -10.0 + i / count}
            for i in range(count)
        ]
        low, high = plots.history(bnnp.History(steps)).axes[0].get_ylim()
        assert -12 < low < -9.5
        assert -9.5 < high < -8
