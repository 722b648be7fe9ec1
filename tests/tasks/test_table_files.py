"""Tables in files: whatever separates columns, marks decimals and encodes text, the numbers and names are the same."""

import io
import sys

import numpy as np
import pandas as pd
import pytest

import bnnp
from bnnp.tasks import from_table, read_table
from bnnp.tasks.tables import check_out, write_table

ROWS = "who,time,conc\n013,0.5,2\n013,1.5,3e2\nNA,-1,4\nNA,2.25,5\n"
NUMBERS = [[[0.5, 2.0], [1.5, 300.0]], [[-1.0, 4.0], [2.25, 5.0]]]
GERMAN = ROWS.replace(",", ";").replace(".", ",")


def found(path, **choices) -> tuple[list[str], list]:
    tasks = from_table(read_table(path, **choices), task="who", x="time", y="conc")
    return [task.name for task in tasks.tasks], [np.hstack([task.x, task.y]).tolist() for task in tasks.tasks]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", ROWS.encode()),
        ("t.txt", ROWS.encode()),
        ("t.csv", ROWS.replace("\n", "\r\n").encode()),
        ("t.csv", ROWS.encode("utf-8-sig")),
        ("t.csv", ROWS.encode("utf-16")),
        ("t.csv", ROWS.encode("utf-32")),
        ("t.tsv", ROWS.replace(",", "\t").encode()),
        ("t.csv", ROWS.replace(",", "\t").encode()),
        ("t.csv", ROWS.replace(",", "|").encode()),
        ("t.csv", ROWS.replace(",", ";").encode()),
        ("t.csv", GERMAN.encode()),
        ("t.csv", ROWS.replace("who,", "who , ").encode()),
        ("t.csv", ("\n" + ROWS + "\n\n").encode()),
        ("t.csv", ROWS.replace("013", '"013"').encode()),
        ("T.CSV", ROWS.encode()),
    ],
)
def test_the_same_table_in_many_forms(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    assert found(tmp_path / name) == (["013", "NA"], NUMBERS)


def test_what_is_named_need_not_be_found_out(tmp_path):
    (tmp_path / "t.csv").write_text("who;time;conc\na;1,234;1\na;2,345;2\n")
    assert found(tmp_path / "t.csv", decimal=",")[1] == [[[1.234, 1.0], [2.345, 2.0]]]
    (tmp_path / "b.csv").write_text("who time conc\na 1 2\na 3 4\n")
    assert found(tmp_path / "b.csv", delimiter=" ")[1] == [[[1.0, 2.0], [3.0, 4.0]]]


def test_a_single_column_may_have_decimal_commas(tmp_path):
    (tmp_path / "t.csv").write_text("time\n0,5\n1,25\n")
    assert read_table(tmp_path / "t.csv").numbers(["time"]).tolist() == [[0.5], [1.25]]


def test_rows_are_numbered_as_in_the_file_also_beside_empty_lines(tmp_path):
    (tmp_path / "t.csv").write_text("who,time,conc\na,1,2\n\n\na,noon,3\n")
    with pytest.raises(ValueError, match="'noon' at row 5"):
        found(tmp_path / "t.csv")


def test_numbers_are_read_to_the_last_bit(tmp_path):
    values = np.random.default_rng(0).normal(size=1000) * 10.0 ** np.arange(-500, 500).clip(-300, 300)
    pd.DataFrame({"v": values}).to_csv(tmp_path / "t.csv", index=False)
    assert np.array_equal(read_table(tmp_path / "t.csv").numbers(["v"])[:, 0], values)


def test_names_of_whole_numbers_are_the_same_from_any_frame():
    for names in ([7, 7], [7.0, 7.0], ["7", "7"], pd.array([7, 7], dtype="Int64")):
        frame = pd.DataFrame({"who": names, "time": [0.0, 1.0], "conc": [1.0, 2.0]})
        assert from_table(frame, task="who", x="time", y="conc")[0].name == "7"


def test_small_data_sets_may_be_left_out():
    frame = pd.DataFrame({"who": list("aab"), "time": [0.0, 1.0, 2.0], "conc": [1.0, 2.0, 3.0]})
    assert [task.name for task in from_table(frame, task="who", x="time", y="conc", small="drop").tasks] == ["a"]
    with pytest.raises(ValueError, match="got no data set of 3 points or more"):
        from_table(frame, task="who", x="time", y="conc", small="drop", min_points=3)


def test_excel_without_its_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(ImportError, match=r"reading Excel needs openpyxl .*pip install 'bnnp\[excel\]'"):
        read_table(tmp_path / "t.xlsx")


def test_excel_is_read_as_it_is(tmp_path):
    pytest.importorskip("openpyxl", reason="needs pip install 'bnnp[excel]'")
    sheet = pd.read_csv(io.StringIO(ROWS), dtype=object, keep_default_na=False)
    sheet.to_excel(tmp_path / "text.xlsx", index=False)
    assert found(tmp_path / "text.xlsx") == (["013", "NA"], NUMBERS)
    sheet.astype(dict.fromkeys(sheet.columns[1:], float)).to_excel(tmp_path / "numbers.xlsx", index=False)
    assert found(tmp_path / "numbers.xlsx") == (["013", "NA"], NUMBERS)
    with pd.ExcelWriter(tmp_path / "two.xlsx") as book:
        sheet.to_excel(book, sheet_name="data", index=False)
        sheet.to_excel(book, sheet_name="more", index=False)
    with pytest.raises(ValueError, match="got the sheets data, more, expected one"):
        read_table(tmp_path / "two.xlsx")


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.parquet"])
def test_what_is_written_is_read_again(name, tmp_path):
    frame = pd.DataFrame({"who": ["013", "013"], "time": [0.5, 1.5], "conc": [2.0, 1 / 3]})
    assert found(write_table(tmp_path / name, frame)) == (["013"], [[[0.5, 2.0], [1.5, 1 / 3]]])


@pytest.mark.parametrize("name", ["t.xlsx", "t.json", "t", "t.csv.gz"])
def test_a_file_with_another_ending_is_not_written(name, tmp_path):
    with pytest.raises(ValueError, match=r"out: got .* expected a file that ends in .csv or .tsv or .parquet"):
        check_out(tmp_path / name)


def test_named_columns_are_put_into_the_order_of_training():
    random = np.random.default_rng(0)
    frames = [pd.DataFrame(random.normal(size=(6, 3)), columns=["time", "dose", "conc"]) for _ in range(3)]
    tasks = bnnp.tasks.from_arrays(
        [(f[["dose", "time"] if i else ["time", "dose"]], f[["conc"]]) for i, f in enumerate(frames)]
    )
    assert tasks.x_names == ("time", "dose")
    np.testing.assert_array_equal(tasks[1].x, frames[1][["time", "dose"]])
    model = bnnp.BNNP(2, 1, hidden=(4,))
    bnnp.fit(model, tasks, steps=1, progress=False)
    straight, swapped = (
        model.condition(frames[0][names], frames[0][["conc"]], num_samples=4)
        for names in (["time", "dose"], ["dose", "time"])
    )
    new = frames[1]
    expected = straight.predict(new[["time", "dose"]]).mean
    np.testing.assert_array_equal(swapped.predict(new[["dose", "time"]]).mean, expected)
    with pytest.raises(ValueError, match="x: got the columns time, mass, expected time, dose as in training"):
        straight.predict(new.rename(columns={"dose": "mass"})[["time", "mass"]])
