"""Precipitation maps: real files in every form that the Climate Data Store sends, the hold-out, and every bad file."""

import io
import itertools
import json
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import bnnp
from bnnp.tasks import download_era5, era5
from bnnp.tasks.datasets.cds import AREA, request
from bnnp.tasks.datasets.outline import _WORLD, read_outline, switzerland
from conftest import real_data

xarray = pytest.importorskip("xarray")
SERBIA = "era5_land_serbia/era5land_serbia_202001_t2m_tp.nc"
DAVOS = "era5_davos_finse/ex3_switzerland_davos_SURF_202001.nc"
FINSE = "era5_davos_finse/ex1_norway_finse_SURF_2018{}.nc"
SWISS = "switzerland/switzerland_ne50m.geojson"
SQUARE = [[7.05, 46.05], [7.35, 46.05], [7.35, 46.35], [7.05, 46.35], [7.05, 46.05]]


def weather(days: int = 4, names=("t2m", "tp"), start: str = "2019-01-01", **changes):
    """Random weather at 5 x 6 points about (46.2, 7.2), every six hours; temperatures about 280 K, a few mm of rain."""
    rng = np.random.default_rng(0)
    times = pd.date_range(start, periods=4 * days, freq="6h")
    axes = {"valid_time": times, "latitude": 46.4 - 0.1 * np.arange(5), "longitude": 7 + 0.1 * np.arange(6)}
    shape = tuple(len(axis) for axis in axes.values())
    values = {"t2m": rng.normal(280, 5, shape), "tp": rng.gamma(1.0, 2e-3, shape), **changes}
    return xarray.Dataset({name: (tuple(axes), values[name]) for name in names}, axes)


def as_bytes(content, engine: str = "h5netcdf") -> bytes:
    file = io.BytesIO()
    content.to_netcdf(file, engine=engine)
    return file.getvalue()


def put(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def outline(path: Path, kind: str = "Polygon") -> Path:
    coordinates = [SQUARE] if kind == "Polygon" else [[SQUARE]]
    feature = {"type": "Feature", "properties": {}, "geometry": {"type": kind, "coordinates": coordinates}}
    return put(path, json.dumps({"type": "FeatureCollection", "features": [feature]}).encode())


def crossings(rings: tuple[np.ndarray, ...], x: float, y: float) -> int:
    """How many edges a ray to the east meets: an odd number from inside."""
    count = 0
    for ring in rings:
        for (x0, y0), (x1, y1) in itertools.pairwise(ring):
            if (y0 > y) != (y1 > y) and x < x0 + (y - y0) / (y1 - y0) * (x1 - x0):
                count += 1
    return count


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return put(tmp_path / "month.nc", as_bytes(weather()))


# --- the real files ---------------------------------------------------------------------------------------------------


def test_a_month_of_serbia_has_its_known_tasks():
    tasks = era5(files=real_data(SERBIA) / SERBIA, num_test=0)
    assert (len(tasks), len(tasks[0]), tasks.in_size, tasks.out_size) == (62, 154, 3, 1)
    assert [tasks[i].name for i in (0, 1, 61)] == ["2020-01-01 00:00", "2020-01-01 12:00", "2020-01-31 12:00"]
    rain = torch.cat([task.y for task in tasks.tasks])
    assert float(rain.mean()) == pytest.approx(0.72, abs=0.01)
    assert float(rain.std()) == pytest.approx(1.88, abs=0.01)
    assert float(rain.max()) == pytest.approx(11.8, abs=0.05)
    assert float((rain == 0).double().mean()) == pytest.approx(0.11, abs=0.01)
    assert tasks[0].x[0, :2].tolist() == pytest.approx([19.5, 44.5])
    assert 250 < float(tasks[0].x[:, 2].min()) < float(tasks[0].x[:, 2].max()) < 290
    whole_day = next(task for task in tasks.tasks if task.name == "2020-01-30 00:00")
    assert float(whole_day.y.mean()) == pytest.approx(6.765, abs=1e-3)


def test_a_zip_named_nc_and_a_zip_of_grib_give_the_same_precipitation():
    home = real_data("era5_land_serbia/ERA5L_2020_01.nc") / "era5_land_serbia"
    plain = era5(files=home / Path(SERBIA).name)
    both = era5(files=[home / "ERA5L_2020_01.nc", home / Path(SERBIA).name])
    assert all(torch.equal(a.y, b.y) for a, b in zip(plain.tasks, both.tasks, strict=True))
    with pytest.raises(ValueError, match="got no variable 't2m'"):
        era5(files=home / "ERA5L_2020_01.nc")


def test_grib_gives_the_same_tasks_as_netcdf():
    pytest.importorskip("eccodes", reason="GRIB needs eccodes: pip install 'bnnp[grib]'")
    home = real_data("era5_land_serbia/ERA5L_2020_01.zip") / "era5_land_serbia"
    plain, grib = (era5(files=home / name) for name in (Path(SERBIA).name, "ERA5L_2020_01.zip"))
    assert [task.name for task in plain.tasks] == [task.name for task in grib.tasks]
    for a, b in zip(plain.tasks, grib.tasks, strict=True):
        np.testing.assert_allclose(a.x, b.x, rtol=1e-6)
        np.testing.assert_allclose(a.y, b.y, rtol=1e-6, atol=1e-6)


def test_three_months_of_norway_in_the_older_format_are_read_together():
    home = real_data(FINSE.format(10))
    tasks = era5(files=[home / FINSE.format(month) for month in (12, 10, 11)])
    assert (len(tasks), len(tasks[0])) == (184 - 16, 70)
    names = [task.name for task in tasks.tasks]
    assert names == sorted(names)


def test_no_context_lies_in_switzerland():
    home = real_data(DAVOS)
    real_data(SWISS)
    test = era5("test", files=home / DAVOS, folder=home)
    rings = switzerland(home).rings
    swiss = {(x, y) for x, y, _ in test[0].x.tolist() if crossings(rings, x, y) % 2 == 1}
    assert (len(test.splits), len(test[0])) == (16, 20)
    assert 5 < len(swiss) < 15
    for split in test.splits:
        context, target = ({(x, y) for x, y, _ in part.x.tolist()} for part in (split.context, split.target))
        assert (len(context) + len(target), context & swiss) == (20, set())
        assert swiss <= target


def test_switzerland_has_its_known_points_on_the_papers_grid():
    real = real_data(SWISS)
    latitude, longitude = np.meshgrid(50 - 0.1 * np.arange(51), 5 + 0.1 * np.arange(71), indexing="ij")
    inside = switzerland(real).contains(longitude, latitude)
    assert inside.shape == (51, 71)
    assert inside.sum() == 487


# --- tasks ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["h5netcdf", "scipy", "zip", "two files", "folder", "expver", "other order"])
def test_every_form_gives_the_same_tasks(tmp_path, form):
    content, parts = weather(), [as_bytes(weather(names=(name,))) for name in ("t2m", "tp")]
    if form == "zip":
        files = put(tmp_path / "answer.nc", zipped(**{"data_0.nc": parts[0], "data_1.nc": parts[1]}))
    elif form in ("two files", "folder"):
        files = [put(tmp_path / f"{i}.nc", part) for i, part in enumerate(parts)]
        files = tmp_path if form == "folder" else files
    elif form == "expver":
        final = content.where(content["valid_time"] < content["valid_time"][6])
        late = content.where(content["valid_time"] >= content["valid_time"][6])
        files = put(tmp_path / "x.nc", as_bytes(xarray.concat([final, late], "expver").rename(valid_time="time")))
    elif form == "other order":
        files = put(tmp_path / "x.nc", as_bytes(content.expand_dims("number").transpose(..., "valid_time")))
    else:
        files = put(tmp_path / "x.nc", as_bytes(content, form))
    tasks = era5(files=files, num_test=0)
    assert [task.name[-5:] for task in tasks.tasks] == ["00:00", "12:00"] * 4
    expected = content.isel(valid_time=2)
    np.testing.assert_allclose(tasks[1].x[:, 2], expected["t2m"].to_numpy().ravel())
    np.testing.assert_allclose(tasks[1].y[:, 0], 1000 * expected["tp"].to_numpy().ravel())
    np.testing.assert_allclose(tasks[1].x[7, :2], [7.1, 46.3])


def test_test_times_are_left_out_of_training_and_follow_the_seed(file):
    train, test = era5(files=file, num_test=3), era5("test", files=file, num_test=3, hold_out=None)
    names = [{task.name for task in part.tasks} for part in (train, test)]
    assert (len(names[0]), len(names[1]), len(names[0] | names[1])) == (5, 3, 8)
    others = [{task.name for task in era5(files=file, num_test=3, seed=seed).tasks} for seed in range(4)]
    assert others[0] == names[0]
    assert any(other != names[0] for other in others)
    again = era5("test", files=file, num_test=3, hold_out=None)
    assert all(torch.equal(a.context.x, b.context.x) for a, b in zip(test.splits, again.splits, strict=True))


@pytest.mark.parametrize("kind", ["Polygon", "MultiPolygon"])
def test_contexts_lie_outside_the_hold_out(tmp_path, file, kind):
    test = era5("test", files=file, num_test=7, hold_out=outline(tmp_path / "square.geojson", kind))
    for split in test.splits:
        for part, count in ((split.context, 0), (split.target, 9)):
            longitude, latitude = part.x[:, 0], part.x[:, 1]
            inside = (longitude > 7.05) & (longitude < 7.35) & (latitude > 46.05) & (latitude < 46.35)
            assert int(inside.sum()) == count
        assert 1 <= len(split.context) <= round(0.25 * 30)


def test_the_area_restricts_the_points(file):
    tasks = era5(files=file, area=(46.3, 7.2, 46.2, 7.4), num_test=0)
    assert tasks[0].x[:, :2].tolist() == pytest.approx(
        np.array([[x, y] for y in (46.3, 46.2) for x in (7.2, 7.3, 7.4)])
    )
    east = put(file.parent / "east.nc", as_bytes(weather().assign_coords(longitude=352 + 0.1 * np.arange(6))))
    assert era5(files=east, num_test=0)[0].x[0, 0].item() == pytest.approx(-8)


def test_a_draw_has_a_quarter_of_the_points_chosen_anew(file):
    tasks = era5(files=file, num_test=7)  # one is left
    first, second = tasks.draw(2, torch.Generator().manual_seed(0))
    assert len(first) == len(second) == round(0.25 * 30)
    assert not torch.equal(first.x, second.x)
    whole = {tuple(row) for row in tasks[0].x.tolist()}
    assert {tuple(row) for row in first.x.tolist()} <= whole


def test_points_at_sea_are_left_out(tmp_path):
    content = weather()
    content["tp"][:, 1, 2] = np.nan
    content["t2m"][:, 1, 2] = np.nan
    tasks = era5(files=put(tmp_path / "x.nc", as_bytes(content)), num_test=0)
    assert {len(task) for task in tasks.tasks} == {29}


def test_a_trained_model_has_the_units_and_gives_errors_in_millimetres(file):
    train, test = era5(files=file, num_test=2), era5("test", files=file, num_test=2, hold_out=None)
    model = bnnp.BNNP(3, 1, hidden=(3,))
    bnnp.fit(model, train, objective=bnnp.objectives.PPAVI(2), steps=1, progress=False)
    rain = torch.cat([task.y for task in train.tasks])
    torch.testing.assert_close(model.columns.y_shift.double(), rain.mean(0), rtol=1e-6, atol=0)
    assert model.columns.x_names == ["longitude", "latitude", "temperature"]
    assert 0.1 < bnnp.evaluate(model, test, num_samples=20)["mae"] < 20


def test_a_run_on_other_shares_of_points_does_not_go_on_from_a_checkpoint(file, tmp_path):
    def run(share: float) -> None:
        source = era5(files=file, points_share=share, num_test=2)
        model = bnnp.BNNP(3, 1, hidden=(3,))
        objective = bnnp.objectives.PPAVI(2)
        bnnp.fit(model, source, objective=objective, steps=1, checkpoint=tmp_path / "run", progress=False)

    run(0.5)
    run(0.5)
    with pytest.raises(ValueError, match=r"0\.75 of the points"):
        run(0.75)


# --- bad choices and bad files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"split": "valid"}, "got 'valid', expected 'train' or 'test'"),
        ({"num_test": 8}, "num_test: got 8 of 8 times, expected fewer"),
        ({"num_test": -1}, "num_test: got -1"),
        ({"split": "test", "num_test": 0}, "num_test: got 0, expected at least 1"),
        ({"hours": (0, 24)}, r"hours: got \(0, 24\)"),
        ({"hours": ()}, r"hours: got \(\)"),
        ({"hours": (3,)}, "got no variable 't2m' at the hours asked for"),
        ({"area": (46, 7, 47, 8)}, "area: got .* expected north, west, south and east"),
        ({"area": (50, 5, 45)}, "expected north, west, south and east"),
        ({"area": (20, 5, 10, 12)}, "expected one that overlaps with that of the files, north 46.4, west 7, south 46"),
        ({"points_share": 0.0}, "points_share: got 0.0"),
        ({"points_share": 1.5}, "points_share: got 1.5"),
        ({"files": []}, "files: got none"),
    ],
)
def test_bad_choices_are_refused(file, choices, message):
    with pytest.raises(ValueError, match=message):
        era5(**{"files": file, "num_test": 2, **choices})


@pytest.mark.parametrize(
    ("square", "message"),
    [
        ([[x + 50, y] for x, y in SQUARE], "in which none of the 30 points lies"),
        ([[0, 0], [90, 0], [90, 90], [0, 90], [0, 0]], "got 0 of 30 points outside it"),
    ],
    ids=["elsewhere", "everything"],
)
def test_hold_outs_that_hold_nothing_or_everything_are_refused(file, tmp_path, square, message):
    content = {"type": "Polygon", "coordinates": [square]}
    path = put(tmp_path / "o.geojson", json.dumps(content).encode())
    with pytest.raises(ValueError, match=message):
        era5("test", files=file, num_test=2, hold_out=path)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", '{"type": "Point", "coordinates": [1, 2]}', '{"type": "Polygon", "coordinates": [[[1, 2]]]}'],
    ids=["empty", "nothing", "list", "point", "short"],
)
def test_bad_outlines_are_refused_by_name(tmp_path, text):
    path = put(tmp_path / "o.geojson", text.encode())
    with pytest.raises(ValueError, match="expected") as caught:
        read_outline(path)
    assert str(path) in str(caught.value)
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        read_outline(tmp_path / "none.geojson")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "starts with nothing, expected NetCDF, GRIB or a ZIP"),
        (b"<html>no</html>", "starts with 3c 68 74 6d"),
        (as_bytes(weather())[:3000], "cannot be read"),
        (as_bytes(weather(), "scipy")[:700], "cannot be read"),
        (zipped(a=as_bytes(weather()))[:-40], "cannot be read"),
        (zipped(a=b"text"), "month.nc/a: got a file that starts with"),
        (zipped(), "cannot be read|starts with"),
        (as_bytes(weather(names=("tp",))), "got no variable 't2m'"),
        (as_bytes(weather().rename(tp="rain")), "got no variable 'tp'"),
        (as_bytes(weather().isel(latitude=0, drop=True)), "got the axes valid_time, longitude"),
        (as_bytes(xarray.concat([weather(), weather()], "number")), "got the axes number"),
    ],
    ids=["empty", "page", "cut", "cut old", "cut zip", "odd zip", "no zip", "no t2m", "names", "line", "ensemble"],
)
def test_bad_files_are_refused(tmp_path, data, message):
    with pytest.raises(ValueError, match=message):
        era5(files=put(tmp_path / "month.nc", data))


def test_damaged_grib_is_refused_by_name(tmp_path):
    pytest.importorskip("eccodes", reason="GRIB needs eccodes: pip install 'bnnp[grib]'")
    for number, data in enumerate([b"GRIB", b"GRIB" + bytes(200)]):
        with pytest.raises(ValueError, match=r"cannot be read|got no variable"):
            era5(files=put(tmp_path / f"{number}.grib", data))


def test_without_eccodes_the_error_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "eccodes", None)
    with pytest.raises(ImportError, match=r"reading GRIB needs eccodes .*pip install 'bnnp\[grib\]'"):
        era5(files=put(tmp_path / "x.grib", b"GRIB"))


def test_missing_values_at_some_times_are_refused(tmp_path):
    content = weather()
    content["t2m"][0, 1, 2] = np.nan
    with pytest.raises(ValueError, match=r"x of task '2019-01-01 00:00': got nan at row 8, column 2"):
        era5(files=put(tmp_path / "x.nc", as_bytes(content)), num_test=0)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (lambda: weather(start="2019-01-05").assign_coords(latitude=np.arange(5.0)), "expected one grid"),
        (lambda: weather() + 1, "got two different fields of t2m at 2019-01-01T00:00:00"),
    ],
    ids=["other grid", "other values"],
)
def test_files_that_contradict_each_other_are_refused(tmp_path, file, second, message):
    with pytest.raises(ValueError, match=message):
        era5(files=[file, put(tmp_path / "second.nc", as_bytes(second()))], num_test=0)


def test_the_same_file_twice_counts_once_and_months_are_put_in_order(tmp_path, file):
    later = put(tmp_path / "later.nc", as_bytes(weather(start="2019-01-05")))
    assert len(era5(files=[later, file, file], num_test=0)) == 16
    rain = put(tmp_path / "rain.nc", as_bytes(weather(start="2020-01-05", names=("tp",))))
    heat = put(tmp_path / "heat.nc", as_bytes(weather(names=("t2m",))))
    with pytest.raises(ValueError, match="at no common time"):
        era5(files=[rain, heat])


def test_without_files_the_error_says_where_to_get_them(web, tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        era5()
    for part in (str(tmp_path / "cache" / "era5"), "reanalysis-era5-land", "download_era5", "BNNP_DATA"):
        assert part in str(caught.value)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        era5(files=tmp_path / "nowhere.nc")


def test_the_outline_of_switzerland_is_taken_from_one_of_all_countries(web, tmp_path):
    with pytest.raises(FileNotFoundError, match="world-atlas"):
        switzerland()
    shape = {"type": "Polygon", "properties": {"name": "Switzerland"}, "arcs": [[0, ~1, 2]]}
    world = {
        "type": "Topology",
        "transform": {"scale": [0.1, 0.1], "translate": [7, 46]},
        "objects": {"countries": {"geometries": [{**shape, "properties": {"name": "Else"}}, shape]}},
        "arcs": [[[0, 0], [10, 0]], [[10, 10], [0, -10]], [[10, 10], [-10, 0], [0, -10]]],  # the second is reversed
    }
    path = put(tmp_path / "switzerland" / _WORLD.name, json.dumps(world).encode())
    found = switzerland(tmp_path)
    assert path.is_file()
    np.testing.assert_allclose(found.rings[0], [[7, 46], [8, 46], [8, 47], [7, 47], [7, 46]])
    assert found.contains(np.array([7.5, 8.5]), np.array([46.5, 46.5])).tolist() == [True, False]


# --- download ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def store(monkeypatch):
    """A Climate Data Store of one's making, that answers with random weather and keeps what it was asked."""
    asked: list[dict] = []
    state = SimpleNamespace(asked=asked, answer=None)

    class Client:
        def __init__(self, quiet: bool):
            if state.answer == "no key":
                raise Exception("Missing/incomplete configuration file")

        def retrieve(self, name: str, wanted: dict, target: str) -> None:
            asked.append({"name": name, **wanted})
            if isinstance(state.answer, Exception):
                raise state.answer
            content = weather(len(wanted["day"]), start=f"{wanted['year']}-{wanted['month']}-01")
            Path(target).write_bytes(as_bytes(content) if state.answer is None else state.answer)

    monkeypatch.setitem(sys.modules, "cdsapi", SimpleNamespace(Client=Client))  # pyright: ignore[reportArgumentType]
    return state


def test_a_download_asks_month_by_month_for_the_papers_region_and_only_once(store, web, tmp_path):
    files = download_era5(years=[2019], months=[2, 3])
    assert [file.name for file in files] == [f"era5land_20190{month}_50_5_45_12_00h_12h.nc" for month in (2, 3)]
    assert all(file.parent == tmp_path / "cache" / "era5" for file in files)
    first = store.asked[0]
    assert (first["name"], first["year"], first["month"], len(first["day"])) == (
        "reanalysis-era5-land",
        "2019",
        "02",
        28,
    )
    assert (first["area"], first["time"]) == ([50.0, 5.0, 45.0, 12.0], ["00:00", "12:00"])
    assert first["variable"] == ["2m_temperature", "total_precipitation"]
    assert download_era5(years=[2019], months=[2, 3]) == files
    assert len(store.asked) == 2
    assert len(era5()) == 2 * (28 + 31) - 16
    assert sorted(path.name for path in files[0].parent.iterdir()) == [file.name for file in files]


@pytest.mark.parametrize(
    ("answer", "kind", "message"),
    [
        ("no key", ValueError, "expected a key.*how-to-api"),
        (Exception("403 Client Error: required licences not accepted"), OSError, "2019-02 failed .*licences.*terms"),
        (b"<html>", ValueError, "expected NetCDF"),
        (as_bytes(weather(names=("tp",))), ValueError, "got no variable 't2m'"),
        (as_bytes(weather(start="2019-02-01")), ValueError, "got 8 times of t2m in 2019-02, expected 56"),
    ],
    ids=["no key", "no licence", "page", "no t2m", "part"],
)
def test_what_is_no_whole_month_is_not_kept(store, tmp_path, answer, kind, message):
    store.answer = answer
    with pytest.raises(kind, match=message):
        download_era5(years=[2019], months=[2], folder=tmp_path)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_request_of_no_area_is_refused():
    with pytest.raises(ValueError, match="expected north, west, south and east"):
        request(2019, 1, (45, 5, 50, 12), (0, 12))
    assert request(2020, 2, AREA, (0,))["day"][-1] == "29"
