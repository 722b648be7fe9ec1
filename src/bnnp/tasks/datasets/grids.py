"""Weather on a grid, read from what the Climate Data Store sends: NetCDF, GRIB, or a ZIP of either."""

import io
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bnnp._core.optional import optional_module

TEMPERATURE, PRECIPITATION = "t2m", "tp"
_GRIB_NAMES = {"2t": TEMPERATURE, "tp": PRECIPITATION}
_ZIP, _GRIB = b"PK\x03\x04", b"GRIB"
_ENGINES = {b"CDF": "scipy", b"\x89HDF": "h5netcdf"}
_OTHER_ORDERS = ("iScansNegatively", "jScansPositively", "jPointsAreConsecutive", "alternativeRowScanning")
_READING = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, AssertionError, RuntimeError)
"""What readers of files raise when a file is damaged."""


@dataclass(frozen=True, eq=False)
class Field:
    """One variable on a grid.

    Attributes:
        name: Name of the variable.
        times: Time of each map.
        latitude: Latitudes of the grid.
        longitude: Longitudes of the grid.
        values: Values (times, latitudes, longitudes) in the file's units.
    """

    name: str
    times: np.ndarray
    latitude: np.ndarray
    longitude: np.ndarray
    values: np.ndarray


def read_fields(path: Path, hours: Sequence[int]) -> list[Field]:
    """Temperature and precipitation at some hours of the day, as far as a file has them.

    The kind of a file is found from its content, not from its name.

    Args:
        path: A NetCDF, GRIB or ZIP file.
        hours: Hours of the day, in UTC.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file cannot be read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    fields = [_at_hours(field, hours) for field in _fields(path.read_bytes(), str(path))]
    return [field for field in fields if len(field.times)]


def joined(fields: Sequence[Field], name: str) -> Field:
    """All times of one variable, in order. Two files may have the same time if their values agree.

    Args:
        fields: Fields of any variables.
        name: The variable to take.

    Raises:
        ValueError: If there is no such variable, grids differ, or two fields of the same time differ.
    """
    mine = [field for field in fields if field.name == name]
    if not mine:
        raise ValueError(
            f"files: got no variable {name!r} at the hours asked for, expected {TEMPERATURE!r} (2 m temperature) and "
            f"{PRECIPITATION!r} (total precipitation); request both from the Climate Data Store"
        )
    first = mine[0]
    for field in mine[1:]:
        check_same_grid(first, field)
    times, values = np.concatenate([field.times for field in mine]), np.concatenate([field.values for field in mine])
    order = np.argsort(times, kind="stable")
    times, values = times[order], values[order]
    again = np.flatnonzero(times[1:] == times[:-1])
    for place in again:
        if not np.array_equal(values[place], values[place + 1], equal_nan=True):
            raise ValueError(
                f"files: got two different fields of {name} at {times[place]}, expected one; remove a file"
            )
    kept = np.setdiff1d(np.arange(len(times)), again + 1)
    return Field(name, times[kept], first.latitude, first.longitude, values[kept])


def check_same_grid(a: Field, b: Field) -> None:
    """Raise `ValueError` unless two fields have the same latitudes and longitudes."""
    for one, other, axis in ((a.latitude, b.latitude, "latitudes"), (a.longitude, b.longitude, "longitudes")):
        if one.shape != other.shape or not np.allclose(one, other, atol=1e-4):
            raise ValueError(
                f"files: got {axis} {_range(one)} of {a.name} and {_range(other)} of {b.name}, expected one grid; read "
                "regions apart"
            )


def _range(axis: np.ndarray) -> str:
    return f"{axis[0]:g} to {axis[-1]:g} ({len(axis)})"


def _at_hours(field: Field, hours: Sequence[int]) -> Field:
    since_midnight = (field.times - field.times.astype("datetime64[D]")) / np.timedelta64(1, "h")
    rows = np.isin(since_midnight, hours)
    return Field(field.name, field.times[rows], field.latitude, field.longitude, field.values[rows])


def _fields(data: bytes, origin: str) -> list[Field]:
    if data.startswith(_ZIP):
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                parts = {f"{origin}/{name}": archive.read(name) for name in archive.namelist()}
        except (zipfile.BadZipFile, OSError, EOFError) as error:
            raise _damaged(origin, error) from None
        return [field for name, part in parts.items() for field in _fields(part, name)]
    try:
        if data.startswith(_GRIB):
            return _grib_fields(data)
        for start, engine in _ENGINES.items():
            if data.startswith(start):
                return _netcdf_fields(data, engine)
    except _READING as error:
        raise _damaged(origin, error) from None
    raise ValueError(
        f"{origin}: got a file that starts with {data[:4].hex(' ') or 'nothing'}, expected NetCDF, GRIB or a ZIP of "
        "them, as the Climate Data Store sends; it may be a page that tells of an error"
    )


def _damaged(origin: str, error: Exception) -> ValueError:
    return ValueError(f"{origin}: got a file that cannot be read ({error}); put a new copy in its place")


def _netcdf_fields(data: bytes, engine: str) -> list[Field]:
    xarray = optional_module("xarray", "reading NetCDF", "data")
    optional_module(engine, "reading NetCDF", "data")
    with xarray.open_dataset(io.BytesIO(data), engine=engine) as content:
        return [_netcdf_field(content[name]) for name in (TEMPERATURE, PRECIPITATION) if name in content]


def _netcdf_field(variable: Any) -> Field:
    if "expver" in variable.dims:  # final and preliminary data, each missing where the other is there
        variable = variable.max("expver")
    time = "valid_time" if "valid_time" in variable.dims else "time"
    extra = [axis for axis in variable.dims if axis not in (time, "latitude", "longitude")]
    missing = [axis for axis in (time, "latitude", "longitude") if axis not in variable.dims]
    if missing or any(variable.sizes[axis] > 1 for axis in extra):
        raise ValueError(
            f"{variable.name}: got the axes {', '.join(map(str, variable.dims))}, expected time, latitude, longitude"
        )
    variable = variable.squeeze(extra, drop=True).transpose(time, "latitude", "longitude")
    return Field(
        str(variable.name),
        variable[time].to_numpy().astype("datetime64[s]"),
        variable["latitude"].to_numpy().astype(float),
        variable["longitude"].to_numpy().astype(float),
        variable.to_numpy(),
    )


def _grib_fields(data: bytes) -> list[Field]:
    """The fields of a GRIB file, read message by message. Messages of other variables are skipped."""
    eccodes = optional_module("eccodes", "reading GRIB", "grib")
    found: dict[str, dict[np.datetime64, np.ndarray]] = {}
    axes: dict[str, list[np.ndarray]] = {}
    with tempfile.TemporaryFile() as file:  # the library reads from files only
        file.write(data)
        file.seek(0)
        try:
            for message in _messages(eccodes, file):
                name = _GRIB_NAMES.get(eccodes.codes_get(message, "shortName"))
                if name is not None:
                    mine = _grib_axes(eccodes, message)
                    if not all(map(np.array_equal, axes.setdefault(name, mine), mine)):
                        raise ValueError(f"got {name} on two grids, expected one")
                    found.setdefault(name, {})[_valid_time(eccodes, message)] = _grib_values(eccodes, message, mine)
        except eccodes.CodesInternalError as error:
            raise ValueError(error) from None
    return [
        Field(name, np.array(list(times)), axes[name][0], axes[name][1], np.stack(list(times.values())))
        for name, times in found.items()
    ]


def _grib_axes(eccodes: Any, message: Any) -> list[np.ndarray]:
    kind = eccodes.codes_get(message, "gridType")
    if kind != "regular_ll" or any(eccodes.codes_get(message, key) for key in _OTHER_ORDERS):
        raise ValueError(f"got a grid of kind {kind}, expected regular_ll, row by row from the north")
    return [eccodes.codes_get_array(message, f"distinct{axis}s") for axis in ("Latitude", "Longitude")]


def _grib_values(eccodes: Any, message: Any, axes: list[np.ndarray]) -> np.ndarray:
    values = eccodes.codes_get_values(message).reshape([len(axis) for axis in axes])
    return np.where(values == eccodes.codes_get(message, "missingValue"), np.nan, values)


def _messages(eccodes: Any, file: Any) -> Iterable[Any]:
    while (message := eccodes.codes_grib_new_from_file(file)) is not None:
        try:
            yield message
        finally:
            eccodes.codes_release(message)


def _valid_time(eccodes: Any, message: Any) -> np.datetime64:
    day, clock = str(eccodes.codes_get(message, "validityDate")), eccodes.codes_get(message, "validityTime")
    return np.datetime64(f"{day[:4]}-{day[4:6]}-{day[6:]}T{clock // 100:02d}:{clock % 100:02d}", "s")
