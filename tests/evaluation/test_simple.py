"""The simple methods beside a model, against averages written separately."""

import numpy as np
import pytest
import torch

import bnnp
from bnnp.evaluation.simple import SIMPLE, CurveOfAll, MeanOfAll, OwnMean, Simple
from bnnp.tasks import Split, Task

GENERATOR = np.random.default_rng(0)
LEVELS = 3 * GENERATOR.normal(size=12)
X = np.linspace(0, 1, 20)
TASKS = [Task.of(X, level + 5 * X + 0.1 * GENERATOR.normal(size=20)) for level in LEVELS]
Y = np.stack([task.y[:, 0] for task in TASKS])


def predicted(method, known: Task, x_new):
    return Simple(method(TASKS)).condition(known.x, known.y).predict(x_new)


def test_the_simplest_method_predicts_mean_and_standard_deviation_of_all_tasks():
    found = predicted(MeanOfAll, TASKS[0], [0.3, 0.9])
    np.testing.assert_allclose(found.mean[:, 0], Y.mean())
    np.testing.assert_allclose(found.std[:, 0], Y.std(ddof=1))


def test_the_mean_of_a_task_is_shrunk_towards_the_mean_of_all_tasks():
    known = TASKS[0].take(slice(0, 4))
    within = ((Y - Y.mean(1, keepdims=True)) ** 2).sum() / (Y.size - len(Y))
    between = Y.mean(1).var()
    share = between / (between + within / 4)
    expected = share * Y[0, :4].mean() + (1 - share) * Y.mean(1).mean()
    found = predicted(OwnMean, known, [0.3])
    assert found.mean[0, 0] == pytest.approx(expected)
    assert found.std[0, 0] ** 2 == pytest.approx(within + (1 - share) * between)


def test_one_curve_for_all_is_the_average_of_near_points():
    found = predicted(CurveOfAll, TASKS[0], [X[7]])
    near = np.sort(np.abs(np.tile(X, 12) - X[7]))[round(240**0.5) - 1]
    inside = np.abs(X - X[7]) < near
    assert found.mean[0, 0] == pytest.approx(Y[:, inside].mean(), abs=1.0)
    assert found.mean[0, 0] - predicted(CurveOfAll, TASKS[0], [X[2]]).mean[0, 0] == pytest.approx(5 * 5 / 19, abs=1.0)


@pytest.mark.parametrize("name", SIMPLE)
def test_evaluate_scores_simple_methods_like_a_model(name):
    splits = [Split(task.take(slice(0, 5)), task.take(slice(5, 20))) for task in TASKS[:4]]
    scores = bnnp.evaluate(Simple(SIMPLE[name](TASKS[4:])), splits)
    first = Simple(SIMPLE[name](TASKS[4:])).condition(splits[0].context.x, splits[0].context.y)
    pred = first.predict(splits[0].target.x)
    normal = torch.distributions.Normal(torch.from_numpy(pred.mean), torch.from_numpy(pred.std))
    assert scores.values("marginal_lppd")[0] == pytest.approx(normal.log_prob(splits[0].target.y).mean().item())
    assert scores.values("joint_lppd")[0] == pytest.approx(scores.values("marginal_lppd")[0])
