"""Tasks that training is judged by."""

import numpy as np

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
    assert all(split.target is same.target for split, same in zip(bare, left_out.splits, strict=True))


def test_the_standard_error_of_a_gain_is_over_tasks_and_not_over_their_divisions():
    _, left_out = divided(waves(24), context_size((0.1, 0.5)), 0)
    before, after = (bnnp.evaluate(bnnp.BNNP(1, 1, (4,), seed=seed), left_out.splits, num_samples=2) for seed in (0, 1))
    name = next(name for name in after.per_task if name.startswith("marginal_lppd"))
    by_task = (after.per_task[name] - before.per_task[name]).to_numpy().reshape(6, 4).mean(1)
    np.testing.assert_allclose(left_out.gain(after, before), (by_task.mean(), by_task.std(ddof=1) / 6**0.5))
