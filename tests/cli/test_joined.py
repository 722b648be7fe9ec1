"""`bnnp predict` on long sorted tables: in pieces, with the numbers, words and order of tables that are read whole."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bnnp
from bnnp.cli import joined
from bnnp.cli.reading import Reading
from support.command_line import run

NUMBERS = ["2", "3", "10", "11", "20"]
WORDS = ["Ann", "Bob", "NA", "b 2", "c"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return bnnp.BNNP(1, 1, hidden=(4,), seed=0).save(tmp_path_factory.mktemp("model") / "m.bnnp")


def tables(names: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Sorted: the first data set is not asked for, the second has no known points, the third has many."""
    random = np.random.default_rng(0)
    known, wanted = ([names[i] for i in places] for places in ((0, 0, 2, 2, 2, 2, 2, 2, 2, 3, 4), (1, 1, 2, 3, 3, 4)))
    frames = [pd.DataFrame({"who": ids, "x0": random.normal(size=len(ids)).round(3)}) for ids in (known, wanted)]
    frames[1]["note"] = [7, None, 8, 9, None, 10]
    return frames[0].assign(y0=random.normal(size=len(known))), frames[1].astype({"note": "Int64"})


def write_parquet(frame: pd.DataFrame, path: Path) -> None:
    """As other programs than pandas write it."""
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(), path)


@pytest.fixture
def predict(model, tmp_path, monkeypatch, capsys):
    """Predict in pieces of two rows, or whole, and give the exit code, the words and the output."""

    def call(frames, *more, pieces: bool, end: str = "csv", out_end: str = "") -> tuple[int, str, pd.DataFrame | None]:
        paths, out = [tmp_path / f"{name}.{end}" for name in ("known", "wanted")], tmp_path / f"out.{out_end or end}"
        for path, frame in zip(paths, frames, strict=True):
            frame.to_csv(path, index=False) if end == "csv" else write_parquet(frame, path)
        monkeypatch.setattr(joined, "ROWS", 2 if pieces else 10**6)
        out.unlink(missing_ok=True)
        words = ["--context", paths[0], "--targets", paths[1], "--task", "who", "--samples", 3, "--out", out, *more]
        code, _, err = run(monkeypatch, capsys, "predict", model, *words)
        if not out.exists():
            return code, err, None
        read = pd.read_parquet(out) if out.suffix == ".parquet" else pd.read_csv(out, dtype=str, keep_default_na=False)
        return code, err, read

    return call


@pytest.fixture
def never_whole(monkeypatch):
    """Make it an error to read a table as a whole."""

    def refuse(*_):
        raise AssertionError("a table was read as a whole")

    monkeypatch.setattr(Reading, "table", refuse)


@pytest.mark.parametrize("names", [NUMBERS, WORDS], ids=["numbers", "words"])
@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_pieces_give_what_whole_tables_give(predict, monkeypatch, names, end):
    code, words, whole = predict(tables(names), pieces=False, end=end)
    assert code == 0, words
    monkeypatch.setattr(Reading, "table", None)
    code, err, found = predict(tables(names), pieces=True, end=end)
    assert code == 0, err
    assert err == words
    assert "known points: 9 used, 2 not used" in err
    pd.testing.assert_frame_equal(found, whole)
    assert found["who"].tolist() == tables(names)[1]["who"].tolist()


def test_whole_numbers_stay_whole_beside_gaps(predict):
    _, _, whole = predict(tables(NUMBERS), pieces=False, end="parquet", out_end="csv")
    _, _, found = predict(tables(NUMBERS), pieces=True, end="parquet", out_end="csv")
    assert found is not None
    pd.testing.assert_frame_equal(found, whole)
    assert found["note"].tolist() == ["7", "", "8", "9", "", "10"]


@pytest.mark.parametrize("option", ["--skip-small", "--drop-missing"])
def test_what_is_left_out_is_said_alike(predict, option):
    known, wanted = tables(NUMBERS)
    known.loc[3, "y0"] = None
    if option == "--drop-missing":
        wanted.loc[2, "x0"] = None
    _, words, whole = predict((known, wanted), option, pieces=False)
    code, err, found = predict((known, wanted), option, pieces=True)
    assert code == 0, err
    assert "left out: " in err
    assert sorted(err.splitlines()) == sorted(words.splitlines())
    pd.testing.assert_frame_equal(found, whole)


@pytest.mark.parametrize("order", [[5, 0, 1, 2, 3, 4], [2, 3, 0, 1, 4, 5]], ids=["within a piece", "between pieces"])
def test_tables_that_are_not_sorted_are_read_whole_with_a_note(predict, order):
    known, wanted = tables(NUMBERS)
    mixed = wanted.iloc[order]
    _, _, whole = predict((known, mixed), pieces=False)
    code, err, found = predict((known, mixed), pieces=True)
    assert code == 0
    assert "note: both tables are read into memory whole, since they are not sorted by 'who'" in err
    pd.testing.assert_frame_equal(found, whole)


@pytest.mark.usefixtures("never_whole")
def test_a_bad_cell_is_found_before_anything_is_predicted(predict):
    known, wanted = tables(NUMBERS)
    known = known.astype({"y0": object})
    known.loc[10, "y0"] = "high"
    code, err, found = predict((known, wanted), pieces=True)
    assert (code, found) == (2, None)
    assert "known.csv: column 'y0': got 'high' at row 12 (1 such cells), expected finite numbers" in err


@pytest.mark.usefixtures("never_whole")
def test_decimal_marks_must_be_the_same_in_all_pieces(predict):
    known, wanted = tables(NUMBERS)
    known = known.astype({"x0": object})
    known.loc[8, "x0"] = "1"
    known.loc[9:, "x0"] = "0,25"
    code, err, _ = predict((known, wanted), pieces=True)
    assert code == 2
    assert "known.csv: columns x0: got decimal commas in some rows and none in many others" in err


@pytest.mark.usefixtures("never_whole")
def test_tables_without_a_common_data_set(predict):
    known, wanted = tables(NUMBERS)
    code, err, _ = predict((known.iloc[:2], wanted), pieces=True)
    assert code == 2
    assert "column 'who': got 3, 10, 11, 20 in" in err
    assert "wanted.csv and 2 in" in err
