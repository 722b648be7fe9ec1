"""Tasks in a Parquet file: the tasks of the table, drawn block by block, with sums over all of it."""

import numpy as np
import pandas as pd
import pytest
import torch

import bnnp
from bnnp.tasks import blocks, parquet


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    random = np.random.default_rng(0)
    who = np.repeat([f"s{i:02d}" for i in range(30)], 1 + np.arange(30) % 7)
    return pd.DataFrame({"who": who, "t": 100 + 3 * random.normal(size=len(who)), "c": random.normal(size=len(who))})


@pytest.fixture
def source(frame, tmp_path, monkeypatch):
    """Blocks of ten rows, across whose ends tasks go; read in pieces of seven rows."""
    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", 7)
    monkeypatch.setattr(blocks, "ROWS_IN_BLOCK", 10)
    frame.to_parquet(tmp_path / "t.parquet", row_group_size=10)
    return bnnp.tasks.from_parquet(tmp_path / "t.parquet", task="who", x=["t"], y=["c"])


def test_tasks_of_a_parquet_file_are_those_of_the_table(source, frame):
    table = bnnp.tasks.from_table(frame, task="who", x="t", y="c", small="drop")
    assert len(source) == 30
    wanted = {task.x.numpy().tobytes() + task.y.numpy().tobytes() for task in table.tasks}
    found = {one.x.numpy().tobytes() + one.y.numpy().tobytes() for one in map(source._task, range(30)) if len(one) > 1}
    assert wanted <= found


def test_draws_are_tasks_and_depend_on_the_generator_alone(source):
    first, again = (source.draw(12, torch.Generator().manual_seed(1)) for _ in range(2))
    assert [task.name for task in first] == [task.name for task in again]
    drawn = [task.name for seed in range(200) for task in source.draw(3, torch.Generator().manual_seed(seed))]
    counts = np.bincount([int(name) for name in drawn], minlength=30)
    assert counts.min() > 5  # each task is drawn, about 20 times
    assert counts.max() < 45


def test_names_that_are_numbers_go_across_pieces(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "ROWS_AT_ONCE", 7)
    frame.assign(who=frame["who"].str[1:].astype(int)).to_parquet(tmp_path / "n.parquet")
    assert len(bnnp.tasks.from_parquet(tmp_path / "n.parquet", task="who", x=["t"], y=["c"])) == 30


def test_sums_are_those_of_the_whole_table(source, frame):
    numbers = frame[["t", "c"]].to_numpy()
    np.testing.assert_allclose(source.scan.mean, numbers.mean(0), rtol=1e-12)
    np.testing.assert_allclose(source.scan.std, numbers.std(0, ddof=1), rtol=1e-12)
    assert source.ranges().x == ((numbers[:, 0].min(), numbers[:, 0].max()),)


def test_a_model_learns_from_it_in_the_users_units(source):
    model = bnnp.BNNP(1, 1, hidden=(4,), seed=0)
    result = bnnp.fit(model, source, steps=2, batch_size=3, progress=False)
    assert result.model.columns.x_names == ["t"]
    assert result.model.columns.task_name == "who"
    assert float(result.model.columns.x_shift) == pytest.approx(source.scan.mean[0])


def same_tasks(one: list, other: list) -> bool:
    return all(torch.equal(a.x, b.x) and torch.equal(a.y, b.y) for a, b in zip(one, other, strict=True))


def test_a_folder_of_sorted_files_is_as_one_file(source, frame, tmp_path):
    (tmp_path / "parts").mkdir()
    for part, start in enumerate(range(0, len(frame), 10)):
        frame[start : start + 10].to_parquet(tmp_path / "parts" / f"part-{part:05d}.parquet")
    folder = bnnp.tasks.from_parquet(tmp_path / "parts", task="who", x=["t"], y=["c"])
    assert folder.columns.x_shift == source.columns.x_shift
    assert same_tasks(*(one.draw(20, torch.Generator().manual_seed(0)) for one in (source, folder)))
    pieces = bnnp.tasks.from_parquet(tmp_path / "parts", x=["t"], y=["c"])
    assert len(pieces) == len(frame)
    np.testing.assert_array_equal(np.concatenate([x for x, _ in pieces])[:, 0], frame["t"])


def test_a_folder_partitioned_by_task(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "ROWS_IN_BLOCK", 30)
    frame.to_parquet(tmp_path / "by_task", partition_cols=["who"])
    found = bnnp.tasks.from_parquet(tmp_path / "by_task", task="who", x=["t"], y=["c"])
    assert len(found) == 30
    assert len(found.blocks.parts) < 6  # small files are read together
    expected = [group[["t", "c"]].to_numpy() for _, group in frame.groupby("who")]
    for i, rows in enumerate(expected):
        np.testing.assert_array_equal(torch.cat([found._task(i).x, found._task(i).y], dim=1), rows)


def test_a_file_that_is_not_parquet_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none: there is no such file or folder"):
        bnnp.tasks.from_parquet(tmp_path / "none", x=["t"], y=["c"])
    (tmp_path / "t.parquet").write_text("t,c\n")
    with pytest.raises(ValueError, match=r"t\.parquet: not a Parquet file or a folder of them"):
        bnnp.tasks.from_parquet(tmp_path / "t.parquet", x=["t"], y=["c"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"who": ["a", "b", "a"]}, r"got rows of task 'a' in two places, expected the rows of a task together; sort"),
        ({"t": [0.0, np.nan, 1.0]}, r"got nan at row 1, column 't', expected finite numbers"),
        ({"c": [2.0, 2.0, 2.0]}, r"column 'c': got no rows or one value in all, expected one that varies"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(change, message, tmp_path):
    frame = pd.DataFrame({"who": ["a", "a", "b"], "t": [0.0, 1.0, 2.0], "c": [1.0, 2.0, 3.0]}).assign(**change)
    frame.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=message):
        bnnp.tasks.from_parquet(tmp_path / "t.parquet", task="who", x=["t"], y=["c"])
