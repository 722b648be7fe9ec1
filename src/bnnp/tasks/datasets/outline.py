"""Outlines of countries, to tell which points of a map lie inside."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bnnp.tasks.datasets.folder import DataFile, data_path, family_folder, read_decompressed

_SAVED = "switzerland_ne50m.geojson"
_WORLD = DataFile(
    "switzerland",
    "countries-50m.json",
    "https://cdn.jsdelivr.net/npm/world-atlas@2.0.2",
    "04342cdc1e3016bcd7db1630de95684d67b79fe3c8c460321e87aef469502394",
    compressed=False,
)


@dataclass(frozen=True, eq=False)
class Outline:
    """The outline of a country.

    A point is inside if it lies inside an odd number of rings, so rings may be holes.

    Attributes:
        rings: Closed rings of (longitude, latitude).
    """

    rings: tuple[np.ndarray, ...]

    def contains(self, longitude: np.ndarray, latitude: np.ndarray) -> np.ndarray:
        """Whether each point lies inside."""
        from matplotlib.path import Path as Ring

        points = np.stack([longitude.ravel(), latitude.ravel()], axis=1)
        times = sum(Ring(ring, closed=True).contains_points(points).astype(int) for ring in self.rings)
        return (np.asarray(times) % 2 == 1).reshape(longitude.shape)


def switzerland(folder: str | Path | None = None) -> Outline:
    """The outline of Switzerland at 1:50 million (Natural Earth).

    Args:
        folder: The folder whose sub-folder `switzerland` holds a GeoJSON file of it, or a TopoJSON file of all
            countries. If None, that of BNNP_DATA; without it the cache, to which the file of all countries is
            downloaded.
    """
    saved = family_folder(_WORLD.family, folder) / _SAVED
    return read_outline(saved if saved.is_file() else data_path(_WORLD, folder), "Switzerland")


def read_outline(path: str | Path, name: str = "") -> Outline:
    """The polygons of a GeoJSON file, or those of one country of a TopoJSON file.

    Args:
        path: The file.
        name: Name of the country, for TopoJSON.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has no polygon.
    """
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: there is no such file; give a GeoJSON file with a polygon")
    try:
        content = json.loads(read_decompressed(file))
        polygons = _country(content, name) if content["type"] == "Topology" else _polygons(content)
        rings = tuple(np.asarray(ring, dtype=float) for polygon in polygons for ring in polygon)
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{file}: expected a GeoJSON file with a Polygon or a MultiPolygon ({error!r})") from None
    if not rings or any(ring.ndim != 2 or ring.shape[1] < 2 or len(ring) < 4 for ring in rings):
        raise ValueError(f"{file}: expected rings of at least 4 points (longitude, latitude), got something else")
    return Outline(tuple(ring[:, :2] for ring in rings))


def _polygons(content: dict[str, Any]) -> list[Any]:
    kind = content["type"]
    if kind == "FeatureCollection":
        return [polygon for feature in content["features"] for polygon in _polygons(feature)]
    if kind == "Feature":
        return _polygons(content["geometry"])
    return {"Polygon": lambda c: [c], "MultiPolygon": list}[kind](content["coordinates"])


def _country(world: dict[str, Any], name: str) -> list[Any]:
    """The polygons of a country of a TopoJSON file, whose borders are arcs in whole steps from point to point."""
    (shape,) = [s for s in world["objects"]["countries"]["geometries"] if s["properties"]["name"] == name]
    scale, shift = world["transform"]["scale"], world["transform"]["translate"]
    arcs = [np.cumsum(arc, axis=0) * scale + shift for arc in world["arcs"]]

    def ring(numbers: list[int]) -> np.ndarray:
        parts = [arcs[n] if n >= 0 else arcs[~n][::-1] for n in numbers]  # an arc is shared with the neighbour
        return np.concatenate([parts[0], *(part[1:] for part in parts[1:])])

    polygons = [shape["arcs"]] if shape["type"] == "Polygon" else shape["arcs"]
    return [[ring(numbers) for numbers in polygon] for polygon in polygons]
