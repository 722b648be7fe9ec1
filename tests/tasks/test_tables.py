"""Long tables of users: from a frame or a file to tasks, to a model in the table's own units, and every bad input."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import bnnp
from bnnp._core.columns import Columns
from bnnp.tasks import from_table
from bnnp.tasks.task import Task


def long_table() -> pd.DataFrame:
    """Three subjects of unequal size, rows of different subjects mixed, in odd units."""
    random = np.random.default_rng(0)
    subject = np.array(["b", "a", "a", "c", "b", "a", "c", "a", "b", "c"])
    return pd.DataFrame(
        {
            "subject": subject,
            "time": random.normal(20, 5, 10),
            "dose": random.normal(-300, 10, 10),
            "conc": random.normal(1000, 50, 10),
            "temp": random.normal(0.001, 0.0001, 10),
            "note": "not used",
        }
    )


def written(table: pd.DataFrame, path: Path) -> Path:
    table.to_parquet(path) if path.suffix == ".parquet" else table.to_csv(path, index=False)
    return path


# --- good tables -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", [None, "t.csv", "t.parquet"])
def test_rows_of_a_task_keep_values_and_order(file, tmp_path):
    table = long_table()
    source = table if file is None else written(table, tmp_path / file)
    tasks = from_table(source, task="subject", x=["time", "dose"], y=["conc", "temp"])
    assert [task.name for task in tasks.tasks] == ["a", "b", "c"]
    assert (tasks.x_names, tasks.y_names) == (("time", "dose"), ("conc", "temp"))
    for task in tasks.tasks:
        rows = table[table["subject"] == task.name]
        np.testing.assert_array_equal(task.x, rows[["time", "dose"]])
        np.testing.assert_array_equal(task.y, rows[["conc", "temp"]])


def test_a_single_column_may_be_given_by_its_name_alone():
    tasks = from_table(long_table(), task="subject", x="time", y="conc")
    assert (tasks.in_size, tasks.out_size) == (1, 1)


def test_the_path_may_be_a_string(tmp_path):
    path = written(long_table(), tmp_path / "t.csv")
    assert len(from_table(str(path), task="subject", x="time", y="conc")) == 3


@pytest.mark.parametrize("names", [[3, 10, 3, 10], ["x", 1, "x", 1], pd.Categorical(["u", "v", "u", "v"], list("uvw"))])
def test_tasks_may_be_named_by_numbers_mixtures_or_categories(names):
    table = pd.DataFrame({"task": names, "x": [1, 2, 3, 4], "y": [5, 6, 7, 8]})
    tasks = from_table(table, task="task", x="x", y="y")
    assert {task.name: task.x.flatten().tolist() for task in tasks.tasks} == {
        str(names[0]): [1.0, 3.0],
        str(names[1]): [2.0, 4.0],
    }


def test_tasks_are_sorted_as_their_names_are():
    table = pd.DataFrame({"task": [10, 10, 9, 9], "x": [1, 2, 3, 4], "y": [5, 6, 7, 8]})
    assert [task.name for task in from_table(table, task="task", x="x", y="y").tasks] == ["9", "10"]


def test_the_index_of_a_frame_does_not_matter():
    table = long_table()
    odd = table.set_axis(["same"] * len(table))
    expected = from_table(table, task="subject", x="time", y="conc")
    for task, other in zip(from_table(odd, task="subject", x="time", y="conc").tasks, expected.tasks, strict=True):
        assert torch.equal(task.x, other.x)


def test_numbers_written_as_text_and_nullable_numbers_are_numbers():
    table = pd.DataFrame(
        {"task": ["a", "a"], "x": ["1.5", "2"], "y": pd.array([3, 4], dtype="Int64"), "z": [True, False]}
    )
    tasks = from_table(table, task="task", x=["x", "z"], y="y")
    assert tasks[0].x.tolist() == [[1.5, 1.0], [2.0, 0.0]]
    assert tasks[0].y.tolist() == [[3.0], [4.0]]


def test_a_role_column_fixes_the_splits():
    table = long_table()
    table["part"] = ["context", "target"] * 2 + ["target", "context"] * 3
    tasks = from_table(table, task="subject", x="time", y="conc", role="part")
    for task, split in zip(tasks.tasks, tasks.splits, strict=True):
        rows = table[table["subject"] == task.name]
        np.testing.assert_array_equal(split.context.x[:, 0], rows.loc[rows["part"] == "context", "time"])
        np.testing.assert_array_equal(split.target.y[:, 0], rows.loc[rows["part"] == "target", "conc"])


def test_missing_drop_leaves_out_rows_with_empty_cells_only():
    table = long_table()
    table.loc[1, "time"] = np.nan
    table.loc[2, "conc"] = np.nan
    table.loc[0, "subject"] = None
    table.loc[3, "note"] = None  # not a column in use
    tasks = from_table(table, task="subject", x="time", y="conc", missing="drop")
    assert {task.name: len(task) for task in tasks.tasks} == {"a": 2, "b": 2, "c": 3}
    np.testing.assert_array_equal(tasks[0].x[:, 0], table["time"].iloc[[5, 7]])


def odd_table() -> pd.DataFrame:
    """Three subjects with a category, a date with a gap, a weight with a gap, a time of day and a label."""
    return pd.DataFrame(
        {
            "subject": list("aabbcc"),
            "site": ["north", "south", "north", "south", "west", "south"],
            "visit": ["2024-01-03", "2024-01-01", "2024-01-05T12:00", "", "2024-01-02", "2024-01-01"],
            "weight": [60.0, np.nan, 70.0, 80.0, 90.0, 100.0],
            "at": ["08:00", "08:30", "09:00", "10:00", "11:00", "12:00:00"],
            "old": [True, False, True, False, True, False],
            "conc": [1.0, 2.0, np.nan, 4.0, 5.0, 6.0],
            "label": ["yes", "no", "yes", "no", "no", "yes"],
        }
    )


def test_columns_as_people_have_them_become_numbers():
    table = odd_table()
    tasks = from_table(table, task="subject", x=["site", "visit", "weight", "at", "old"], y="label")
    site = ["site=north", "site=south", "site=unknown"]  # one subject has been in the west: too few to learn from
    visit = ["visit [days since 2024-01-01]", "visit=unknown"]
    assert tasks.x_names == (*site, *visit, "weight", "weight=unknown", "at [hours]", "old")
    x = torch.cat([task.x for task in tasks.tasks])
    assert x[:, :3].tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0], [0.4, 0.6, 1], [0, 1, 0]]
    np.testing.assert_allclose(x[:, 3], [2, 0, 4.5, 1.5, 1, 0])
    assert x[:, 4].tolist() == [0, 0, 0, 1, 0, 0]
    assert x[:, 5:7].tolist() == [[60, 0], [80, 1], [70, 0], [80, 0], [90, 0], [100, 0]]
    assert x[:, 7].tolist() == [8, 8.5, 9, 10, 11, 12]
    assert x[:, 8].tolist() == [1, 0, 1, 0, 1, 0]
    assert torch.cat([task.y for task in tasks.tasks]).flatten().tolist() == [1, 0, 1, 0, 0, 1]
    assert tasks.encodings is not None
    assert tasks.encodings.classes == ("no", "yes")


@pytest.mark.parametrize("kind", ["polars", "pyarrow", "dates"])
def test_frames_of_every_kind_give_the_same_tasks(kind):
    table = odd_table().assign(visit=lambda t: pd.to_datetime(t["visit"].replace("", None), format="ISO8601"))
    names = {"task": "subject", "x": ["site", "visit", "weight", "old"], "y": "label"}
    expected = from_table(odd_table(), **names)
    if kind == "polars":
        table = pytest.importorskip("polars").from_pandas(table)
    if kind == "pyarrow":
        table = pytest.importorskip("pyarrow").Table.from_pandas(table)
    found = from_table(table, **names)
    assert found.x_names == expected.x_names
    for one, other in zip(found.tasks, expected.tasks, strict=True):
        torch.testing.assert_close(one.x, other.x)
        assert torch.equal(one.y, other.y)


def test_rows_without_an_output_are_left_out_and_counted():
    with pytest.warns(UserWarning, match="1 of 6 rows have no conc; these rows are left out"):
        tasks = from_table(odd_table(), task="subject", x="weight", y="conc", min_points=1)
    assert [len(task) for task in tasks.tasks] == [2, 1, 2]


def test_a_model_keeps_how_columns_became_numbers(tmp_path):
    tasks = from_table(odd_table(), task="subject", x=["site", "visit"], y="label")
    model = bnnp.BNNP(5, 2, hidden=(4,), likelihood=bnnp.Categorical(2))
    bnnp.start_prior(model, tasks)
    again = bnnp.load(model.save(tmp_path / "m.bnnp"))
    new = pd.DataFrame({"visit": ["2024-01-09", None], "site": ["south", "moon"]})
    for one in (model, again):
        assert one.columns.inputs(new).tolist() == [[0, 1, 0, 8, 0], [0.4, 0.6, 1, 1.5, 1]]
        assert one.columns.outputs(["yes", "no"], real_valued=False).flatten().tolist() == [1, 0]
        with pytest.raises(ValueError, match=r"column 'label': got 'maybe' at row 0.*expected one of no, yes"):
            one.columns.outputs(["maybe"], real_valued=False)
        like = from_table(odd_table().iloc[2:], task="subject", x=["site", "visit"], y="label", like=one)
        assert torch.equal(like[0].x, tasks[1].x)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["5 h", "6 h"], "got '5 h' at row 2"),
        (["17.05.2024", "18.05.2024"], "got '17.05.2024' at row 2"),
        (["2024-05-17", "yesterday"], "got '2024-05-17' at row 2"),
        (["1a", "north"], "got '1a' at row 2"),
    ],
)
def test_cells_that_begin_like_numbers_are_no_categories(cells, message):
    table = pd.DataFrame({"subject": ["a", "a"], "time": cells, "conc": [1.0, 2.0]})
    with pytest.raises(ValueError, match=message):
        from_table(table, task="subject", x="time", y="conc")


# --- bad tables ------------------------------------------------------------------------------------------------------


def changed(**cells) -> pd.DataFrame:
    """The table with the cells of row index 4 (row 6 in an editor) replaced."""
    table = long_table().astype(dict.fromkeys(cells, object))
    for name, value in cells.items():
        table.loc[4, name] = value
    return table


@pytest.mark.parametrize(
    ("table", "arguments", "message"),
    [
        (long_table().iloc[:0], {}, "table: got no rows, expected at least one data set"),
        (changed(time="noon"), {}, r"column 'time': got 'noon' at row 6 \(1 such cells\).*correct or remove this row"),
        (changed(conc=np.nan), {"missing": "error"}, "column 'conc': got nan at row 6.*give missing='drop'"),
        (long_table().assign(time=np.nan), {}, "column 'time': got an empty cell in every row"),
        (changed(conc=np.inf), {}, "column 'conc': got inf at row 6.*correct or remove this row"),
        (changed(conc=-np.inf), {"missing": "drop"}, "column 'conc': got -inf at row 6.*correct or remove this row"),
        (changed(subject=None), {}, "column 'subject': got an empty cell at row 6.*missing='drop'"),
        (changed(subject="d"), {}, "task 'd': got 1 point, expected at least 2.*leave this task out"),
        (long_table().assign(conc=np.nan), {"missing": "drop"}, "got an empty cell in every row"),
        (long_table(), {"x": "tme"}, "column 'tme': there is no such column; the table has subject, time, dose, conc"),
        (long_table(), {"task": "patient"}, "column 'patient': there is no such column"),
        (long_table(), {"role": "part"}, "column 'part': there is no such column"),
        (long_table(), {"y": []}, "x and y: got no columns"),
        (long_table(), {"x": ["time", "conc"]}, "expected each column once"),
        (long_table(), {"missing": "ignore"}, "missing: got 'ignore', expected one of fill, error, drop"),
        (long_table().assign(part="train"), {"role": "part"}, "task 'a': got the role 'train', expected 'context' or"),
        (long_table().assign(part="context"), {"role": "part"}, "task 'a': got no target"),
        (
            pd.concat([long_table(), long_table()[["time"]]], axis=1),
            {},
            "column 'time': got 2 columns of this name, expected one",
        ),
        ([[1, 2]], {}, "table: got list, expected a data frame or the path of a file"),
    ],
)
def test_bad_tables_are_refused_with_column_and_cure(table, arguments, message):
    with pytest.raises(ValueError, match=message):
        from_table(table, **{"task": "subject", "x": "time", "y": "conc", **arguments})


def test_row_numbers_are_those_of_the_file_also_after_dropping():
    table = changed(time="noon")
    table.loc[0, "time"] = np.nan
    table.loc[1, "time"] = "n/a"
    with pytest.raises(ValueError, match="'noon' at row 6"):
        from_table(table, task="subject", x="time", y="conc", missing="drop")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.csv", b"", "empty.csv: got an empty file, expected a table with a header"),
        ("header.csv", b"subject,time,conc\n", "table: got no rows"),
        (
            "picture.png",
            b"\x89PNG\r\n\x1a\n\xff\xfe\x00\x00",
            "picture.png: got a file that ends in '.png', expected a table: .csv",
        ),
        (
            "really_csv.parquet",
            b"subject,time,conc\na,1,2\n",
            "really_csv.parquet: expected a table of the kind .parquet",
        ),
        ("empty.parquet", b"", "empty.parquet: expected a table of the kind .parquet"),
        ("ragged.csv", b"subject,time,conc\na,1,2\na,1,2,3,4\n", "ragged.csv: got 5 cells at row 3, expected 3"),
        ("blanks.csv", b"subject time conc\na 1 2\n", "the table has subject time conc; .* separated by ' '"),
    ],
)
def test_bad_files_are_refused_by_name(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        from_table(path, task="subject", x="time", y="conc")


def test_a_missing_file_or_a_folder_is_no_table(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        from_table(tmp_path / "none.csv", task="subject", x="time", y="conc")
    with pytest.raises(IsADirectoryError, match="this is a folder, expected a file with a table"):
        from_table(tmp_path, task="subject", x="time", y="conc")


# --- standardisation -------------------------------------------------------------------------------------------------


def trained(**arguments) -> tuple[bnnp.BNNP, pd.DataFrame]:
    """A tiny model after a few steps on tasks with inputs around 20 and outputs around 1000."""
    random = np.random.default_rng(1)
    time = random.normal(20, 5, 120)
    table = pd.DataFrame({"subject": np.arange(120) % 6, "time": time})
    table["conc"] = 1000 + 50 * np.tanh((time - 20) / 5) + random.normal(0, 5, 120)
    model = bnnp.BNNP(1, 1, hidden=(4,), likelihood=bnnp.Gaussian(0.1), dtype=torch.float64, seed=0)
    tasks = from_table(table, task="subject", x="time", y="conc", **arguments)
    bnnp.fit(model, tasks, objective=bnnp.objectives.PPAVI(num_samples=4), steps=20, progress=False)
    return model, table


def noise_of(model: bnnp.BNNP) -> float:
    assert isinstance(model.likelihood, bnnp.Gaussian)
    return model.likelihood.noise.item()


def test_standardisation_is_fitted_on_all_training_points():
    model, table = trained()
    columns = model.columns
    np.testing.assert_allclose(columns.x_shift, table["time"].mean())
    np.testing.assert_allclose(columns.x_scale, table["time"].std())
    np.testing.assert_allclose(columns.y_shift, table["conc"].mean())
    np.testing.assert_allclose(columns.y_scale, table["conc"].std())
    assert (model.columns.x_names, model.columns.y_names) == (["time"], ["conc"])


def test_predictions_come_back_in_the_units_of_the_table(tmp_path):
    model, table = trained()
    x, y = table[["time"]].iloc[:30], table[["conc"]].iloc[:30]
    for user in (model, bnnp.load(model.save(tmp_path / "m.bnnp"))):
        predictive = user.condition(x, y, num_samples=50).predict([[10.0], [20.0], [30.0]])
        assert np.abs(predictive.mean - [[950], [1000], [1050]]).max() < 40
        scale = table["conc"].std()
        assert isinstance(predictive, bnnp.MixturePredictive)
        spread = predictive.means.var(0, correction=0) + predictive.variances.mean(0)
        np.testing.assert_allclose(predictive.function_std, spread.sqrt().numpy() * scale)
        np.testing.assert_allclose(predictive.std**2, predictive.function_std**2 + (noise_of(user) * scale) ** 2)
        assert 900 < predictive.quantile(0.05).min() < predictive.quantile(0.95).max() < 1100
        assert abs(user.prior.functions(1)[0](x).mean() - 1000) < 300


def test_log_densities_obey_the_change_of_variables():
    model, table = trained()
    posterior = model.condition(table[["time"]][:30], table[["conc"]][:30], num_samples=20)
    predictive = posterior.predict_by_samples([[19.0], [25.0]])
    y = np.array([[980.0], [1030.0]])
    shift, scale = table["conc"].mean(), table["conc"].std()
    outputs, noise = predictive.outputs.numpy()[..., 0], noise_of(model)
    z = (y[:, 0] - shift) / scale
    density = np.exp(-0.5 * ((z - outputs) / noise) ** 2) / (noise * np.sqrt(2 * np.pi)) / scale
    np.testing.assert_allclose(predictive.log_prob(y), np.log(density.mean(0)), rtol=1e-10)
    np.testing.assert_allclose(predictive.joint_log_prob(y), np.log(density.prod(1).mean()), rtol=1e-10)
    mixture = posterior.predict([[19.0], [25.0]])
    assert isinstance(mixture, bnnp.MixturePredictive)
    means, spreads = mixture.standard_components()
    density = np.exp(-0.5 * ((y - means) / spreads) ** 2) / (spreads * np.sqrt(2 * np.pi))
    np.testing.assert_allclose(mixture.log_prob(y), np.log(density.mean(0))[:, 0], rtol=1e-10)


def test_log_densities_integrate_to_one_in_the_units_of_the_table():
    model, table = trained()
    predictive = model.condition(table[["time"]][:9], table[["conc"]][:9], num_samples=20).predict([[19.0]])
    grid = np.linspace(500, 1500, 2001)
    density = [np.exp(predictive.log_prob([[value]])).item() for value in grid]
    assert abs(np.sum(density) * (grid[1] - grid[0]) - 1) < 1e-6


def test_a_model_may_be_trained_without_standardisation():
    model, _ = trained(standardise=False)
    assert model.columns.is_identity()


def test_a_second_training_keeps_the_units_of_the_first():
    model, _ = trained()
    before = model.columns.y_shift.clone()
    other = bnnp.tasks.from_arrays([(np.arange(9.0), np.arange(9.0) ** 2)])
    bnnp.fit(model, other, objective=bnnp.objectives.PPAVI(num_samples=2), steps=1, progress=False)
    assert torch.equal(model.columns.y_shift, before)


def test_class_labels_are_not_standardised():
    table = pd.DataFrame({"task": [1, 1, 1, 2, 2, 2], "x": [5.0, 6, 7, 8, 9, 10], "y": [0, 1, 2, 1, 0, 2]})
    model = bnnp.BNNP(1, 3, hidden=(4,), likelihood=bnnp.Categorical(3))
    tasks = from_table(table, task="task", x="x", y="y")
    bnnp.fit(model, tasks, objective=bnnp.objectives.PPAVI(num_samples=2), steps=1, progress=False)
    assert model.columns.x_shift.item() == pytest.approx(7.5)
    assert not model.columns.y_shift.any()
    assert bool((model.columns.y_scale == 1).all())


def test_a_constant_output_is_refused():
    tasks = from_table(long_table().assign(conc=7.0), task="subject", x="time", y="conc")
    with pytest.raises(ValueError, match="column conc: got the value 7 in every row"):
        bnnp.fit(bnnp.BNNP(1, 1, hidden=(4,)), tasks, steps=1, progress=False)


@pytest.mark.parametrize("columns", [["time"], ["dose", "time"]])
def test_a_constant_input_does_no_harm(columns):
    tasks = from_table(long_table().assign(time=7.0), task="subject", x=columns, y="conc")
    model = bnnp.BNNP(len(columns), 1, hidden=(4, 4), likelihood=bnnp.Gaussian(0.1), dtype=torch.float64)
    bnnp.fit(model, tasks, steps=1, progress=False)
    assert np.isfinite(model.condition(tasks[0].x, tasks[0].y, num_samples=5).predict(tasks[1].x).std).all()


def test_columns_without_names_are_numbered_in_messages():
    task = Task.of([[1, 0], [2, 0]], [1, 1])
    with pytest.raises(ValueError, match="column y0: got the value 1"):
        Columns(2, 1).fit(task.x, task.y)


def test_the_wrong_number_of_columns_is_refused_when_fitting_and_predicting():
    model = bnnp.BNNP(1, 1, hidden=(4,))
    two = from_table(long_table(), task="subject", x=["time", "dose"], y="conc")
    with pytest.raises(ValueError, match="tasks: got 2 input and 1 output columns, expected 1 and 1"):
        bnnp.fit(model, two, steps=1, progress=False)
    posterior = model.condition([[0.0]], [[0.0]], num_samples=2)
    with pytest.raises(ValueError, match="x: got 2 columns, expected 1; pass the same columns as in training"):
        posterior.predict([[1.0, 2.0]])
    with pytest.raises(ValueError, match="y: got 2 columns, expected 1"):
        model.condition([[1.0]], [[1.0, 2.0]])


@pytest.mark.parametrize("odd", ["True", "false", True])
def test_true_and_false_among_numbers_are_refused(odd):
    cells = pd.Series(["0", "1", "2", odd], dtype=object)
    frame = pd.DataFrame({"who": list("aabb"), "time": cells, "conc": [1.0, 2.0, 3.0, 5.0]})
    with pytest.raises(ValueError, match=r"column 'time': got .* at row 5 .*numbers alone, or true and false alone"):
        from_table(frame, task="who", x="time", y="conc")


def test_a_column_of_true_and_false_is_one_and_zero():
    cells = pd.Series(["True", "false", "", "TRUE"], dtype=object)
    frame = pd.DataFrame({"who": list("aabb"), "fed": cells, "conc": [1.0, 2.0, 3.0, 5.0]})
    found = from_table(frame, task="who", x="fed", y="conc")
    assert [task.x[:, 0].tolist() for task in found] == [[1.0, 0.0], [pytest.approx(2 / 3), 1.0]]
