"""Many data sets at once: the numbers of `condition`, which do not depend on the other data sets, to the last bit."""

import numpy as np
import pytest
import torch

import bnnp
from bnnp._core.random import child
from bnnp.models import batches, many
from support.models import MEMBERS, Member

SIZES = (0, 1, 3, 6, 2, 6)
every_member = pytest.mark.parametrize("member", MEMBERS, ids=str)


def data(member: Member, count: int = len(SIZES)) -> tuple[list, list[np.ndarray]]:
    tasks = [member.task(n, seed) for seed, n in enumerate(SIZES[:count])]
    wanted = [np.random.default_rng(i).normal(size=(2 + i % 3, 3)) for i in range(count)]
    return [(task.x.numpy(), task.y.numpy()) for task in tasks], wanted


@every_member
def test_predictions_are_those_of_each_data_set_alone(member):
    model, (tasks, wanted) = member.build(), data(member)
    found = model.condition_many(tasks, num_samples=5, seed=2).predict(wanted)
    for (x, y), x_new, prediction in zip(tasks, wanted, found, strict=True):
        alone = model.condition(x, y, num_samples=5, seed=2).predict(x_new)
        assert type(prediction) is type(alone)
        np.testing.assert_allclose(prediction.mean, alone.mean, rtol=1e-9, atol=1e-9)
        if member.likelihood != "labels":
            np.testing.assert_allclose(prediction.std, alone.std, rtol=1e-8)


def bits(predictions: list) -> list[bytes]:
    return [prediction.means.numpy().tobytes() + prediction.std.tobytes() for prediction in predictions]


@pytest.mark.parametrize("hidden", [(8, 8), (48,)], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_no_bit_depends_on_the_other_data_sets_or_on_threads(hidden, threads):
    model, random = bnnp.BNNP(1, 1, hidden=hidden, seed=0), np.random.default_rng(0)
    tasks = [(random.normal(size=n), random.normal(size=n)) for n in (3, 9, 10, 20, 9, 0)]
    wanted = [random.normal(size=n) for n in (1, 4, 7, 2, 4, 3)]
    before = torch.get_num_threads()
    whole = bits(model.condition_many(tasks, num_samples=6, seed=1).predict(wanted))
    torch.set_num_threads(threads)
    try:
        for some in ([1], [5, 4, 3, 2, 1, 0], [2, 4]):
            posts = model.condition_many([tasks[i] for i in some], num_samples=6, seed=1)
            assert bits(posts.predict([wanted[i] for i in some])) == [whole[i] for i in some]
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("points", "wanted"), [(0, 7), (3, 1), (9, 2), (10, 10), (60, 4)])
def test_no_bit_depends_on_the_place_in_a_batch(points, wanted):
    model, random = bnnp.BNNP(1, 1, hidden=(8, 8), seed=0), np.random.default_rng(points)
    tasks = [(random.normal(size=points), random.normal(size=points)) for _ in range(5)]
    x_new = [random.normal(size=wanted) for _ in tasks]
    whole = bits(model.condition_many(tasks, num_samples=6).predict(x_new))
    for some in ([3], [4, 3, 2, 1, 0], [1, 0, 3]):
        posts = model.condition_many([tasks[i] for i in some], num_samples=6)
        assert bits(posts.predict([x_new[i] for i in some])) == [whole[i] for i in some]


def test_a_data_set_that_is_not_solved_for_in_a_batch_goes_by_itself(monkeypatch):
    member = MEMBERS[0]
    model, tasks = member.build(), [member.task(3, seed) for seed in range(3)]
    pairs, x_new = [(task.x.numpy(), task.y.numpy()) for task in tasks], [np.zeros((2, 3))] * 3
    whole = model.condition_many(pairs, num_samples=4).predict(x_new)
    of_batch, sizes = batches.moments, []

    def refusing(model, priors, noise, some, inputs):
        sizes.append(len(some))
        if any(torch.equal(task.x.sort(0).values, tasks[1].x.sort(0).values) for task in some):
            raise bnnp.FactorisationError("not positive definite", 0)
        return of_batch(model, priors, noise, some, inputs)

    monkeypatch.setattr(many, "moments", refusing)
    found = model.condition_many(pairs, num_samples=4).predict(x_new)
    assert sizes == [3, 1, 1, 1]
    assert bits(found[::2]) == bits(whole[::2])
    np.testing.assert_allclose(found[1].mean, whole[1].mean, rtol=1e-9, atol=1e-9)


def test_as_many_samples_as_each_needs():
    model, random = bnnp.load("zoo:sawtooth"), np.random.default_rng(0)
    tasks = [(random.uniform(-1, 1, n), random.normal(size=n)) for n in (1, 8)]
    found = model.condition_many(tasks).predict([[0.1, 0.3], [0.2]])
    alone = [model.condition(x, y).predict([0.1]) for x, y in tasks]
    assert [len(one.means) for one in found] == [len(one.means) for one in alone]


def test_what_is_not_in_the_moments_comes_from_the_posterior_alone():
    member = MEMBERS[0]
    model, (tasks, wanted) = member.build(), data(member, 4)
    prediction = model.condition_many(tasks, num_samples=5, seed=2).predict(wanted)[3]
    alone = model.condition(*tasks[3], num_samples=5, seed=2).predict(wanted[3])
    np.testing.assert_array_equal(prediction.samples, alone.samples)
    y = torch.randn(len(wanted[3]), 2, generator=child(0, 1))
    assert prediction.joint_log_prob(y) == pytest.approx(alone.joint_log_prob(y))
    np.testing.assert_allclose(prediction.log_prob(y), alone.log_prob(y), rtol=1e-9)


def test_one_posterior_by_its_number():
    model = MEMBERS[0].build()
    tasks, _ = data(MEMBERS[0], 3)
    posts = model.condition_many(tasks, num_samples=4, seed=1)
    assert (len(posts), posts[2].points, posts[2].num_samples) == (3, 3, 4)


def test_a_large_context_goes_in_parts_of_the_samples(monkeypatch):
    model = MEMBERS[0].build()
    tasks, wanted = data(MEMBERS[0], 4)
    whole = model.condition_many(tasks, num_samples=4).predict(wanted)
    monkeypatch.setattr("bnnp.models.many.SAMPLES_AT_ONCE", 1)
    for one, other in zip(whole, model.condition_many(tasks, num_samples=4).predict(wanted), strict=True):
        np.testing.assert_allclose(one.mean, other.mean, rtol=1e-9)


def test_attention_models():
    for model in (bnnp.AttBNNP(1, 1, hidden=(8,), seed=0), bnnp.BNAM(1, 1, seed=0)):
        tasks, wanted = [([0.1, 0.2], [0.0, 1.0]), ([0.5], [0.3])], [[0.1], [0.2, 0.9]]
        found = model.condition_many(tasks, num_samples=3).predict(wanted)
        for (x, y), x_new, one in zip(tasks, wanted, found, strict=True):
            alone = model.condition(x, y, num_samples=3).predict(x_new)
            np.testing.assert_allclose(one.mean, alone.mean, rtol=1e-5, atol=1e-6)


def test_no_data_sets():
    assert bnnp.BNNP(1, 1, hidden=(4,)).condition_many([]).predict([]) == []


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([([0.0], [0.0]), ([0.0, 1.0], [0.0])], r"tasks: data set 1 of 2: x and y: got 2 and 1 points"),
        ([([0.0], [0.0]), 3], r"task '1': got int arrays, expected a pair"),
    ],
)
def test_a_wrong_data_set_is_named(tasks, message):
    with pytest.raises(ValueError, match=message):
        bnnp.BNNP(1, 1, hidden=(4,)).condition_many(tasks)


def test_one_array_of_inputs_per_data_set():
    with pytest.raises(ValueError, match=r"x: got 2 arrays, expected 1, one for each data set"):
        bnnp.BNNP(1, 1, hidden=(4,)).condition_many([([0.0], [0.0])]).predict([[0.0], [1.0]])
