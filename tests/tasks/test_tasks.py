"""Tasks, collections of them, random splits and training batches."""

import dataclasses

import numpy as np
import pytest
import torch

import bnnp
from bnnp._core.arrays import as_columns
from bnnp.tasks import SplitBatch, Task, TaskBatch, TaskSource, from_arrays, random_split
from bnnp.tasks.split import ContextCount, ContextShare, context_size
from bnnp.tasks.stream import POOL_BATCHES, TaskStream


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered_task(points: int, name: str = "") -> Task:
    """A task whose inputs tell its points apart."""
    x = np.arange(points, dtype=float)
    return Task.of(x, 10 * x, name)


# --- checks of user data ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [list, np.array, torch.tensor, tuple])
def test_a_vector_becomes_a_column_of_doubles(make):
    columns = as_columns(make([1, 2, 3]), "x")
    assert columns.dtype == torch.float64
    assert columns.tolist() == [[1.0], [2.0], [3.0]]


@pytest.mark.parametrize("nothing", [[], np.zeros(0), np.zeros((0, 5)), torch.zeros(0)])
def test_no_points_at_all_have_the_wished_width(nothing):
    assert as_columns(nothing, "x", width=2).shape == (0, 2)


@pytest.mark.parametrize(
    ("values", "width", "message"),
    [
        (3.0, None, "x: got a single number"),
        (["a", "b"], None, "x: expected numbers"),
        ([[1, 2], [3]], None, "x: expected numbers"),
        ([10**400], None, "x: expected numbers"),
        (object(), None, "x: expected numbers"),
        (np.zeros((2, 2, 2)), None, r"x: got shape \(2, 2, 2\), expected \(points, columns\)"),
        ([1.0, 2.0], 2, r"x: got shape \(2,\), expected \(points, columns\)"),
        (np.zeros((4, 3)), 2, "x: got 3 columns, expected 2; pass the same columns as in training"),
        ([[0, 1], [2, np.nan], [np.nan, 3]], None, r"x: got nan at row 1, column 1 \(2 such values\)"),
        ([[0.0], [-np.inf]], None, "x: got -inf at row 1, column 0 .* remove or impute"),
        ([1.0, None], None, "x: got nan at row 1"),
    ],
)
def test_bad_columns_are_refused_by_name(values, width, message):
    with pytest.raises(ValueError, match=message):
        as_columns(values, "x", width)


@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_a_task_keeps_its_own_copy_of_the_data(make):
    x = make([1.0, 2.0], dtype=torch.float64 if make is torch.tensor else float)
    task = Task.of(x, x)
    x[0] = float("nan")
    assert task.x.tolist() == [[1.0], [2.0]]


def test_a_task_needs_as_many_outputs_as_inputs():
    with pytest.raises(ValueError, match="x and y of task 'p7': got 3 and 2 points"):
        Task.of([1, 2, 3], [1, 2], "p7")


def test_the_name_of_the_task_is_in_the_message():
    with pytest.raises(ValueError, match="y of task 'p7': got inf"):
        Task.of([1, 2], [1, np.inf], "p7")


# --- padding ---------------------------------------------------------------------------------------------------------


def test_a_batch_holds_every_task_and_marks_the_rest_as_missing():
    tasks = [numbered_task(3), numbered_task(0), numbered_task(5)]
    batch = TaskBatch.of(tasks, torch.float64)
    assert batch.x.shape == (3, 5, 1)
    assert batch.mask.sum(1).tolist() == [3, 0, 5]
    for i, task in enumerate(tasks):
        assert torch.equal(batch.x[i, batch.mask[i]], task.x)
        assert torch.equal(batch.y[i, batch.mask[i]], task.y)
    assert not batch.x[~batch.mask].any()


def test_contexts_and_targets_are_padded_each_for_itself():
    splits = [random_split(numbered_task(n), ContextCount(2, 2), generator()) for n in (4, 9)]
    batch = SplitBatch.of(splits)
    assert len(batch) == 2
    assert batch.context.x.shape == (2, 2, 1)
    assert batch.target.x.shape == (2, 7, 1)


# --- collections -----------------------------------------------------------------------------------------------------


def test_from_arrays_takes_ragged_sizes_and_names():
    tasks = from_arrays([(np.zeros((3, 2)), [1, 2, 3]), (torch.ones(5, 2), np.ones(5))], names=["a", "b"])
    assert [len(task) for task in tasks.tasks] == [3, 5]
    assert [task.name for task in tasks.tasks] == ["a", "b"]
    assert (tasks.in_size, tasks.out_size, len(tasks)) == (2, 1, 2)
    assert tasks[1].x.shape == (5, 2)
    assert (tasks.x_names, tasks.y_names) == (("x0", "x1"), ("y0",))


def test_from_arrays_numbers_tasks_without_names():
    assert from_arrays([([1, 2], [3, 4]), ([5, 6], [7, 8])])[1].name == "1"


@pytest.mark.parametrize(
    ("data", "names", "message"),
    [
        ([], None, "got no data sets"),
        ([([1, 2], [1, 2])], ["a", "b"], "names: got 2, expected 1"),
        ([([1, 2], [1, 2], [1, 2])], None, "task '0': got 3 arrays, expected a pair"),
        (
            [([1, 2], [1, 2]), ([1], [1])],
            ["a", "b"],
            "task 'b': got 1 point, expected at least 2 .* leave this task out",
        ),
        ([([1, 2], [1, 2]), (np.zeros((2, 3)), [1, 2])], None, r"task '1': got \(3, 1\) columns .* expected \(1, 1\)"),
        ([([1, np.nan], [1, 2])], ["a"], "x of task 'a': got nan at row 1"),
    ],
)
def test_from_arrays_refuses_bad_data_sets(data, names, message):
    with pytest.raises(ValueError, match=message):
        from_arrays(data, names=names)


def test_single_points_are_welcome_where_one_asks_for_them():
    assert len(from_arrays([([1], [1])], min_points=1)[0]) == 1


@pytest.mark.parametrize(("share", "expected"), [(1.0, 10), (0.3, 3), (0.01, 2)])
def test_a_draw_may_have_a_share_of_the_points(share, expected):
    tasks = dataclasses.replace(from_arrays([(np.arange(10.0), np.arange(10.0))]), points_share=share)
    drawn = tasks.draw(200, generator())
    assert {len(task) for task in drawn} == {expected}
    assert all(len(set(task.x[:, 0].tolist())) == expected for task in drawn)
    counts = np.bincount(torch.cat([task.x[:, 0] for task in drawn]).long().numpy(), minlength=10)
    # each of 10 points is in 200 draws with probability 1, 0.3 or 0.2; beyond 5 standard deviations: 1e-5
    assert np.abs(counts - 20 * expected).max() <= 5 * np.sqrt(20 * expected)
    with pytest.raises(ValueError, match="points_share: got 0"):
        dataclasses.replace(tasks, points_share=0.0)


def test_standardised_tasks_have_mean_0_and_variance_1_and_keep_their_units():
    tasks = from_arrays([(np.arange(4.0), np.arange(4.0) ** 2), (np.arange(6.0), np.ones(6))], names=["a", "b"])
    scaled = tasks.standardised()
    y = torch.cat([task.y for task in scaled.tasks])
    assert (float(y.mean()), float(y.std())) == pytest.approx((0.0, 1.0))
    assert scaled.columns is not None
    torch.testing.assert_close(scaled.columns.restore_y(scaled[0].y), tasks[0].y)
    assert (scaled[1].name, scaled.standardise, scaled.standardised()) == ("b", False, scaled)
    as_they_are = dataclasses.replace(tasks, standardise=False)
    assert as_they_are.standardised() is as_they_are


def test_a_collection_draws_every_task_before_any_twice():
    tasks = from_arrays([([i, i + 1], [0, 1]) for i in range(5)])
    drawn = [task.name for task in tasks.draw(13, generator())]
    assert sorted(drawn[:5]) == sorted(drawn[5:10]) == list("01234")
    assert len(drawn) == 13
    assert drawn[:5] != drawn[5:10]


# --- random splits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [ContextCount(0, 12), ContextShare(0, 1), ContextShare(1, 1), ContextCount(50, 50)])
@pytest.mark.parametrize("points", [1, 2, 9])
def test_context_and_target_are_disjoint_and_cover_the_task(size, points):
    task = numbered_task(points, "a")
    for seed in range(20):
        split = random_split(task, size, generator(seed))
        both = torch.cat([split.context.x, split.target.x]).flatten().tolist()
        assert sorted(both) == list(range(points))
        assert len(split.target) >= 1
        assert torch.equal(split.target.y, 10 * split.target.x)
        assert split.context.name == split.target.name == "a"


def test_a_context_count_is_that_many_points():
    task = numbered_task(20)
    assert {len(random_split(task, ContextCount(3, 3), generator(i)).context) for i in range(10)} == {3}
    assert {len(random_split(task, ContextCount(0, 4), generator(i)).context) for i in range(100)} == {0, 1, 2, 3, 4}


def test_a_context_share_is_that_share_of_the_points():
    task = numbered_task(200)
    assert len(random_split(task, ContextShare(0.25, 0.25), generator()).context) == 50
    sizes = np.array([len(random_split(task, ContextShare(0.1, 0.5), generator(i)).context) for i in range(400)])
    assert sizes.min() >= 20
    assert sizes.max() <= 100
    # the mean of U(20, 100) is 60 with standard error 80 / sqrt(12 * 400) = 1.15; |z| > 4 has probability 6e-5
    assert abs(sizes.mean() - 60) < 4 * 1.15


def test_every_point_is_as_likely_in_the_context():
    task = numbered_task(6)
    counts = np.zeros(6)
    for seed in range(600):
        counts[random_split(task, ContextCount(2, 2), generator(seed)).context.x.flatten().long().numpy()] += 1
    # each count is binomial(600, 1/3): standard deviation 11.5; |z| > 4.5 for any of six has probability 4e-5
    assert np.abs(counts - 200).max() < 4.5 * 11.5


def test_an_empty_task_cannot_be_split():
    with pytest.raises(ValueError, match="task 'none': got no points"):
        random_split(numbered_task(0, "none"), ContextCount(0, 0), generator())


@pytest.mark.parametrize(
    ("share", "count", "message"),
    [
        (None, None, "context_share: got None"),
        ((0.5, 0.1), None, r"context_share: got \(0.5, 0.1\), expected 0 <= low <= high <= 1"),
        (1.5, None, "context_share"),
        (float("nan"), None, "context_share"),
        ((0.1,), None, r"context_share: got \(0.1,\), expected a number or a range"),
        ("half", None, "context_share: got 'half'"),
        (0.5, -1, "context_count"),
        (0.5, (5, 3), "context_count"),
        (0.5, (1, 2, 3), "context_count"),
    ],
)
def test_bad_context_sizes_are_refused(share, count, message):
    with pytest.raises(ValueError, match=message):
        context_size(share, count)


def test_a_context_size_may_be_given_as_an_object():
    assert context_size(ContextCount(3, 5)) == context_size(0.5, ContextCount(3, 5)) == ContextCount(3, 5)
    assert context_size(ContextShare(0.1, 0.2)) == context_size((0.1, 0.2))
    with pytest.raises(ValueError, match=r"context_count: got \(2.5, 3\), expected whole numbers of points"):
        ContextCount(2.5, 3)  # pyright: ignore


def test_a_count_goes_before_a_share():
    assert context_size((0.1, 0.5), 7) == ContextCount(7, 7)
    assert context_size(0.3) == ContextShare(0.3, 0.3)


# --- training batches ------------------------------------------------------------------------------------------------


def stream(seed: int = 3, batch_size: int = 5, source: TaskSource | None = None) -> TaskStream:
    return TaskStream(source or bnnp.tasks.sawtooth(), batch_size, ContextShare(0.1, 0.5), seed)


def same(a: SplitBatch, b: SplitBatch) -> bool:
    return all(
        torch.equal(getattr(part, name), getattr(other, name)) if part.x.shape == other.x.shape else False
        for part, other in ((a.context, b.context), (a.target, b.target))
        for name in ("x", "y", "mask")
    )


def test_a_batch_depends_on_seed_and_step_only():
    steps = [0, 1, POOL_BATCHES - 1, POOL_BATCHES, 5 * POOL_BATCHES + 3]
    forwards, backwards = stream(), stream()
    in_order = {step: forwards.batch(step) for step in steps}
    reversed_order = {step: backwards.batch(step) for step in reversed(steps)}
    assert all(same(in_order[step], reversed_order[step]) for step in steps)
    assert all(same(in_order[step], stream().batch(step)) for step in steps)


def test_other_seeds_and_steps_give_other_batches():
    assert not same(stream(3).batch(0), stream(4).batch(0))
    assert not same(stream().batch(0), stream().batch(1))
    assert not same(stream().batch(0), stream().batch(POOL_BATCHES))


def test_contexts_are_hardly_padded():
    batches = [stream().batch(step) for step in range(5 * POOL_BATCHES)]
    held = sum(batch.context.mask.numel() for batch in batches)
    padded = sum(int((~batch.context.mask).sum()) for batch in batches)
    assert padded / held < 0.12  # batches of random tasks would pad 0.4
    assert all(len(batch) == 5 for batch in batches)


def test_context_shares_are_distributed_as_asked():
    batches = [stream().batch(step) for step in range(10 * POOL_BATCHES)]
    context = torch.cat([batch.context.mask.sum(1) for batch in batches])
    points = context + torch.cat([batch.target.mask.sum(1) for batch in batches])
    share = (context / points).numpy()
    assert points.min() >= 40
    assert points.max() <= 100
    # 400 draws of U(0.1, 0.5): mean 0.3 with standard error 0.0058, standard deviation 0.1155 with standard error
    # 0.0026; both beyond 4 standard errors by chance: 1e-4
    assert abs(share.mean() - 0.3) < 4 * 0.0058
    assert abs(share.std() - 0.1155) < 4 * 0.0026


def test_the_order_of_batches_says_nothing_about_their_size():
    sizes = np.array([[stream(s).batch(i).context.x.shape[1] for i in range(POOL_BATCHES)] for s in range(40)])
    steps = np.arange(POOL_BATCHES)
    correlation = np.mean([np.corrcoef(steps, row)[0, 1] for row in sizes])
    # a correlation over 8 steps has standard deviation 1/sqrt(7), their mean over 40 seeds 0.06; |z| > 4: 6e-5
    assert abs(correlation) < 4 * 0.06  # batches in the order of their size would read 1


@pytest.mark.parametrize(("count", "batch_size"), [(2, 2), (2, 7), (6, 5), (50, 5)])
def test_a_batch_holds_different_tasks(count: int, batch_size: int):
    tasks = from_arrays([(np.arange(4.0), np.full(4, float(task))) for task in range(count)])
    batches = stream(batch_size=batch_size, source=tasks)
    drawn = [batches.batch(step).target.y[:, 0, 0].tolist() for step in range(5 * POOL_BATCHES)]
    assert all(len(set(batch)) == len(batch) == min(count, batch_size) for batch in drawn)
    assert {task for batch in drawn for task in batch} == set(range(count))
