"""Tasks that training is judged by."""

import numpy as np
import pytest

import bnnp
from bnnp.recipe.judging import divided
from bnnp.tasks.split import context_size


def waves(count: int) -> bnnp.tasks.Collection:
    random = np.random.default_rng(0)
    inputs = [random.uniform(-1, 1, (5 + i % 3, 1)) for i in range(count)]
    return bnnp.tasks.from_arrays([(x, np.sin(3 * x + i)) for i, x in enumerate(inputs)])


def test_a_quarter_is_left_out_and_few_tasks_are_divided_more_often():
    size = context_size((0.1, 0.5))
    for count, left, times in ((24, 6, 4), (80, 20, 3), (400, 64, 1)):
        known, left_out = divided(waves(count), size, 0)
        assert isinstance(known, bnnp.tasks.Collection)
        assert (len(known), left_out.count, len(left_out.splits)) == (count - left, left, left * times)
        names = [split.target.name for split in left_out.once()]
        assert len(set(names)) == left
        assert not set(names) & {task.name for task in known.tasks}
    assert divided(waves(19), size, 0)[1].count == 0


def test_points_to_predict_stay_the_same_without_contexts():
    _, left_out = divided(waves(24), context_size((0.1, 0.5)), 0)
    bare = left_out.without_contexts()
    assert all(len(split.context) == 0 for split in bare)
    assert all(split.target is same.target for split, same in zip(bare, left_out.once(), strict=True))


def marginal(scores: bnnp.evaluation.Scores) -> np.ndarray:
    return scores.per_task[[name for name in scores.per_task if name.startswith("marginal_lppd")]].to_numpy()[:, 0]


def test_models_are_worth_what_they_predict_with_and_without_known_points():
    _, left_out = divided(waves(24), context_size((0.1, 0.5)), 0)
    judged = [left_out.judge(bnnp.BNNP(1, 1, (4,), seed=seed), 2) for seed in (0, 1)]
    assert [len(judged[0].known.per_task), len(judged[0].alone.per_task)] == [24, 6]
    worth = [(marginal(one.known).mean() + marginal(one.alone).mean()) / 2 for one in judged]
    assert [one.worth() for one in judged] == pytest.approx(worth)
    mean, _ = left_out.gain(judged[1], judged[0])
    assert mean == pytest.approx(worth[1] - worth[0])


def test_the_standard_error_of_a_gain_is_over_tasks_and_not_over_their_divisions():
    _, left_out = divided(waves(24), context_size((0.1, 0.5)), 0)
    before, after = (left_out.judge(bnnp.BNNP(1, 1, (4,), seed=seed), 2) for seed in (0, 1))
    known = (marginal(after.known) - marginal(before.known)).reshape(6, 4).mean(1)
    by_task = (known + marginal(after.alone) - marginal(before.alone)) / 2
    np.testing.assert_allclose(left_out.gain(after, before), (by_task.mean(), by_task.std(ddof=1) / 6**0.5))
    of_inference = left_out.gain(after, before, of_inference=True)
    np.testing.assert_allclose(of_inference, (known.mean(), known.std(ddof=1) / 6**0.5))
