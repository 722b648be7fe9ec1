"""Precipitation over a region as tasks (ERA5-Land; paper, section 4.3): one map to complete every twelve hours."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bnnp._core.columns import Columns
from bnnp._core.random import child
from bnnp._core.shapes import Bool, Tensor
from bnnp.tasks.datasets.cds import HOURS, PAGE
from bnnp.tasks.datasets.folder import VARIABLE, family_folder
from bnnp.tasks.datasets.grids import PRECIPITATION, TEMPERATURE, Field, check_same_grid, joined, read_fields
from bnnp.tasks.datasets.outline import read_outline, switzerland
from bnnp.tasks.source import Collection, collect
from bnnp.tasks.split import ContextShare, check_split, split_outside
from bnnp.tasks.task import Split, Task, stacked

X_NAMES, Y_NAMES = ("longitude", "latitude", "temperature"), ("precipitation",)
_CONTEXT = ContextShare(0.025, 0.25)
_SUFFIXES = (".nc", ".zip", ".grib", ".grb")
_CHOICE, _CONTEXTS = 0, 1
_SLACK = 1e-4  # degrees: coordinates are rounded in files
_MILLIMETRES = 1000.0


@dataclass(frozen=True, eq=False)
class Weather:
    """Temperature and precipitation at the points that have values.

    Attributes:
        times: Time of each map.
        longitude: Longitude of each point, in degrees.
        latitude: Latitude of each point, in degrees.
        temperature: Temperature in K (times, points).
        precipitation: Precipitation in mm (times, points).
    """

    times: np.ndarray
    longitude: np.ndarray
    latitude: np.ndarray
    temperature: np.ndarray
    precipitation: np.ndarray

    def task(self, index: int) -> Task:
        """The map of one time as a task."""
        x = np.stack([self.longitude, self.latitude, self.temperature[index]], axis=1)
        name = str(self.times[index].astype("datetime64[m]")).replace("T", " ")
        return Task.of(x, self.precipitation[index], name)


def era5(
    split: str = "train",
    *,
    files: str | Path | Sequence[str | Path] | None = None,
    area: Sequence[float] | None = None,
    hours: Sequence[int] = HOURS,
    num_test: int = 16,
    hold_out: str | Path | None = "switzerland",
    points_share: float = 0.25,
    seed: int = 0,
    folder: str | Path | None = None,
) -> Collection:
    """Total precipitation (mm) from longitude, latitude and temperature (K) at 2 m, one task per time (paper, 4.3).

    ERA5-Land counts precipitation from 00 UTC: the value of 12:00 is of 12 hours, that of 00:00 of the day before.
    Points that have no value at any time (the sea, in ERA5-Land) are left out. `columns` has the mean and standard
    deviation of the training tasks, which a model takes over in training.

    Args:
        split: "train", or "test" for `num_test` times that were left out of training, each with a fixed context of 2.5
            to 25 % of its points, none of which lies in the region `hold_out`.
        files: NetCDF, GRIB or ZIP files as the Climate Data Store sends them, or folders of them. If None, all files in
            the sub-folder `era5` of `folder`, of the folder in BNNP_DATA, or of the cache, which `download_era5` fills.
        area: North, west, south and east of the part of the files to use, in degrees; all of it if None.
        hours: Hours of the day to use, in UTC.
        num_test: Number of times that are for tests.
        hold_out: The region without context points: "switzerland", a GeoJSON file with another outline, or None.
        points_share: The share of a training task's points that is chosen at random each time it is drawn.
        seed: Seed of the choice of test times and of contexts.
        folder: The folder whose sub-folder `era5` holds the files.

    Returns:
        The tasks.

    Raises:
        FileNotFoundError: If there are no files.
        ValueError: If an argument does not fit the files, or a file is damaged.

    Example:
        >>> try:
        ...     train = bnnp.tasks.era5("train", files="era5land_202001.nc", num_test=4)
        ... except FileNotFoundError:
        ...     print("get files by bnnp.tasks.download_era5()")
        get files by bnnp.tasks.download_era5()
    """
    check_split(split)
    weather = _weather(_files(files, folder), tuple(hours), area)
    chosen = _test_times(len(weather.times), num_test, seed)
    training = [weather.task(i) for i in range(len(weather.times)) if i not in chosen]
    columns = Columns.of(*stacked(training), X_NAMES, Y_NAMES)
    if split == "train":
        return collect(training, x_names=X_NAMES, y_names=Y_NAMES, columns=columns, points_share=points_share)
    if num_test == 0:
        raise ValueError("num_test: got 0, expected at least 1 for the split 'test'")
    tests = [weather.task(i) for i in sorted(chosen)]
    splits = _test_splits(tests, _held_out(weather, hold_out, folder), child(seed, _CONTEXTS))
    return collect(tests, x_names=X_NAMES, y_names=Y_NAMES, columns=columns, splits=splits)


def _test_times(count: int, num_test: int, seed: int) -> set[int]:
    if not 0 <= num_test <= count - 1:
        raise ValueError(f"num_test: got {num_test} of {count} times, expected fewer; give more files or fewer tests")
    return set(torch.randperm(count, generator=child(seed, _CHOICE))[:num_test].tolist())


def _test_splits(tests: list[Task], inside: Tensor, generator: torch.Generator) -> list[Split]:
    sizes = [max(1, _CONTEXT.size(len(inside), generator)) for _ in tests]
    return [split_outside(task, inside, size, generator, "hold_out") for task, size in zip(tests, sizes, strict=True)]


def _held_out(weather: Weather, hold_out: str | Path | None, folder: str | Path | None) -> Bool[Tensor, " points"]:
    if hold_out is None:
        return torch.zeros(len(weather.longitude), dtype=torch.bool)
    outline = switzerland(folder) if hold_out == "switzerland" else read_outline(hold_out)
    inside = torch.from_numpy(outline.contains(weather.longitude, weather.latitude))
    if not inside.any():
        raise ValueError(
            f"hold_out: got {hold_out!s}, in which none of the {len(inside)} points lies, expected some; give another "
            "outline, or None to have contexts everywhere"
        )
    return inside


def _files(files: str | Path | Sequence[str | Path] | None, folder: str | Path | None) -> list[Path]:
    default = family_folder("era5", folder)
    given = [default] if files is None else [files] if isinstance(files, str | Path) else list(files)
    found: list[Path] = []
    for path in map(Path, given):
        inside = sorted(p for p in path.glob("*") if p.suffix in _SUFFIXES) if path.is_dir() else [path]
        found += [p for p in inside if p.is_file()]
        if not inside or not all(p.is_file() for p in inside):
            raise FileNotFoundError(
                f"{path}: there are no ERA5 files. With a key of the Climate Data Store, bnnp.tasks.download_era5() "
                f"gets those of the paper; else get files of 2m_temperature and total_precipitation from {PAGE} and "
                f"name them by the argument `files`, or put them into the sub-folder era5 of {VARIABLE}"
            )
    if not found:
        raise ValueError("files: got none, expected at least one")
    return found


def _weather(files: list[Path], hours: tuple[int, ...], area: Sequence[float] | None) -> Weather:
    from rich.console import Console
    from rich.progress import track

    if not hours or not all(isinstance(hour, int | np.integer) and 0 <= hour <= 23 for hour in hours):
        raise ValueError(f"hours: got {hours!r}, expected some of 0, ..., 23, as in (0, 12)")
    shown = track(files, "reading ERA5", console=Console(stderr=True), transient=True, disable=len(files) < 4)
    fields = [field for file in shown for field in read_fields(file, hours)]
    temperature, rain = joined(fields, TEMPERATURE), joined(fields, PRECIPITATION)
    check_same_grid(temperature, rain)
    times, first, second = np.intersect1d(temperature.times, rain.times, return_indices=True)
    if len(times) == 0:
        raise ValueError("files: got temperature and precipitation at no common time, expected the same times of both")
    longitude, latitude, kept = _points(temperature, area)
    t2m = temperature.values[first].reshape(len(times), -1)[:, kept]
    tp = rain.values[second].reshape(len(times), -1)[:, kept]
    land = ~(np.isnan(t2m).all(0) | np.isnan(tp).all(0))
    if not land.any():
        raise ValueError("files: got no values at any point of this area, expected some; is it at sea?")
    return Weather(times, longitude[land], latitude[land], t2m[:, land], _MILLIMETRES * tp[:, land].astype(float))


def _points(field: Field, area: Sequence[float] | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Longitude and latitude of the points in an area, and their indices among all points."""
    east = np.where(field.longitude > 180, field.longitude - 360, field.longitude)
    latitude, longitude = (axis.ravel() for axis in np.meshgrid(field.latitude, east, indexing="ij"))
    if area is None:
        return longitude, latitude, np.arange(len(longitude))
    if len(area) != 4 or not (area[0] > area[2] and area[1] < area[3]):
        raise ValueError(f"area: got {area!r}, expected north, west, south and east, as in (50, 5, 45, 12)")
    inside = (latitude <= area[0] + _SLACK) & (latitude >= area[2] - _SLACK)
    kept = np.flatnonzero(inside & (longitude >= area[1] - _SLACK) & (longitude <= area[3] + _SLACK))
    if len(kept) == 0:
        raise ValueError(
            f"area: got {tuple(area)}, expected one that overlaps with that of the files, north {latitude.max():g}, "
            f"west {longitude.min():g}, south {latitude.min():g}, east {longitude.max():g}"
        )
    return longitude[kept], latitude[kept], kept
