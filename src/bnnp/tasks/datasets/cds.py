"""Download of ERA5-Land from the Climate Data Store of Copernicus, for those who have a key."""

import calendar
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bnnp._core.optional import optional_module
from bnnp.tasks.datasets.folder import family_folder
from bnnp.tasks.datasets.grids import PRECIPITATION, TEMPERATURE, joined, read_fields

PAGE = "https://cds.climate.copernicus.eu/datasets/reanalysis-era5-land"
KEY_PAGE = "https://cds.climate.copernicus.eu/how-to-api"
AREA = (50.0, 5.0, 45.0, 12.0)
"""North, west, south and east of the paper's region, about Switzerland."""
YEARS, HOURS = range(2010, 2020), (0, 12)
_DATASET = "reanalysis-era5-land"


def download_era5(
    *,
    years: Iterable[int] = YEARS,
    months: Iterable[int] = range(1, 13),
    area: Sequence[float] = AREA,
    hours: Sequence[int] = HOURS,
    folder: str | Path | None = None,
) -> list[Path]:
    """Get temperature and precipitation from the Climate Data Store, one file per month.

    It needs `pip install 'bnnp[data]'`, a key (free, https://cds.climate.copernicus.eu/how-to-api) and the terms of the
    data accepted on their page. The defaults are the paper's; the store's queue may take hours. A month that is already
    there is not requested again. A file is kept only if it can be read and has both variables at every hour requested.

    Args:
        years: Years to get.
        months: Months of each year, from 1 to 12.
        area: North, west, south and east of the region, in degrees.
        hours: Hours of the day, in UTC.
        folder: The folder in whose sub-folder `era5` the files are put. If None, that of the environment variable
            BNNP_DATA; without it the cache.

    Returns:
        The files, including those that were already there.

    Raises:
        ImportError: If cdsapi is not installed.
        OSError: If a request fails.
        ValueError: If there is no key, `area` is not a region, or a file is not complete.

    Example:
        >>> bnnp.tasks.download_era5(years=[], folder="my_data")  # no years, so nothing is requested
        []
        >>> files = bnnp.tasks.download_era5(years=[2019], months=[1])  # doctest: +SKIP
    """
    from rich.console import Console
    from rich.progress import track

    home = family_folder("era5", folder)
    wanted = {home / _name(year, month, area, hours): (year, month) for year in years for month in months}
    missing = {path: when for path, when in wanted.items() if not path.is_file()}
    if missing:
        client = _client()
        home.mkdir(parents=True, exist_ok=True)
        for path in track(missing, "downloading ERA5-Land", console=Console(stderr=True)):
            _download(client, request(*missing[path], area, hours), path, hours)
    return list(wanted)


def request(year: int, month: int, area: Sequence[float], hours: Sequence[int]) -> dict[str, Any]:
    """What is asked of the store for one month.

    Args:
        year: The year.
        month: The month, 1 to 12.
        area: North, west, south and east of the region, in degrees.
        hours: Hours of the day, in UTC.

    Raises:
        ValueError: If `area` is not a region.
    """
    if len(area) != 4 or not (area[0] > area[2] and area[1] < area[3]):
        raise ValueError(f"area: got {area!r}, expected north, west, south and east, as in {AREA}")
    days = calendar.monthrange(year, month)[1]
    return {
        "variable": ["2m_temperature", "total_precipitation"],
        "year": f"{year:04d}",
        "month": f"{month:02d}",
        "day": [f"{day:02d}" for day in range(1, days + 1)],
        "time": [f"{hour:02d}:00" for hour in hours],
        "area": list(area),
        "data_format": "netcdf",
        "download_format": "unarchived",
    }


def _name(year: int, month: int, area: Sequence[float], hours: Sequence[int]) -> str:
    """The name of a month's file. Files of another region or of other hours have other names."""
    numbers = [f"{edge:g}" for edge in area] + [f"{hour:02d}h" for hour in hours]
    return "_".join(["era5land", f"{year:04d}{month:02d}", *numbers]) + ".nc"


def _client() -> Any:
    cdsapi = optional_module("cdsapi", "downloading ERA5-Land", "data")
    try:
        return cdsapi.Client(quiet=True)
    except Exception as error:  # cdsapi raises a plain Exception if there is no key
        raise ValueError(
            f"the Climate Data Store: expected a key, got none ({error}); {KEY_PAGE} says how to get one"
        ) from error


def _download(client: Any, asked: dict[str, Any], path: Path, hours: Sequence[int]) -> None:
    with tempfile.TemporaryDirectory(prefix=".download", dir=path.parent) as place:
        part = Path(place) / path.name
        try:
            client.retrieve(_DATASET, asked, str(part))
        except Exception as error:  # as above, or an error of the connection
            raise OSError(
                f"the Climate Data Store: the request of {asked['year']}-{asked['month']} failed ({error}). Have you a "
                f"key ({KEY_PAGE}) and accepted the terms ({PAGE})? Months that are there stay; call again for the rest"
            ) from error
        fields = read_fields(part, hours)
        expected = len(asked["day"]) * len(asked["time"])
        for name in (TEMPERATURE, PRECIPITATION):
            found = len(joined(fields, name).times)
            if found != expected:
                raise ValueError(
                    f"the Climate Data Store: got {found} times of {name} in {asked['year']}-{asked['month']}, "
                    f"expected {expected}; is the month complete?"
                )
        os.replace(part, path)
