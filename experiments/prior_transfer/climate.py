"""Precipitation for the experiment: the paper's region, a month elsewhere, or an invented stand-in for tests."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import bnnp
from bnnp._core.columns import Columns
from bnnp.tasks.datasets.folder import VARIABLE
from bnnp.tasks.datasets.outline import Outline, read_outline, switzerland
from bnnp.tasks.source import Collection, collect
from bnnp.tasks.split import split_outside
from bnnp.tasks.task import Task, stacked

REGION = Path(__file__).with_name("region.geojson")
SAMPLE = Path("era5_land_serbia") / "era5land_serbia_202001_t2m_tp.nc"


@dataclass(frozen=True)
class Climate:
    """tests: with fixed contexts outside a region;  inside: for each test, which of its targets lie in that region.

    All tasks are in standard columns; `y_scale` and `y_shift` give millimetres.
    """

    training: Collection
    tests: Collection
    inside: list[np.ndarray]
    y_scale: float
    y_shift: float

    def millimetres(self, values: np.ndarray) -> np.ndarray:
        return values * self.y_scale + self.y_shift


def climate(rain: str) -> Climate:
    """invented: waves;  serbia: a month of ERA5-Land, 154 points;  switzerland: the paper's, by `download_era5`."""
    if rain == "invented":
        training, tests = _invented()
        return _prepared(training, tests, read_outline(REGION))
    if rain == "serbia":
        file = Path(os.environ.get(VARIABLE, "")) / SAMPLE
        train, test = (
            bnnp.tasks.era5(split, files=file, hold_out=REGION, points_share=1.0) for split in ("train", "test")
        )
        return _prepared(train, test, read_outline(REGION))
    return _prepared(bnnp.tasks.era5("train"), bnnp.tasks.era5("test"), switzerland())


def _prepared(training: Collection, tests: Collection, region: Outline) -> Climate:
    inside = [region.contains(*split.target.x[:, :2].numpy().T) for split in tests.splits]
    columns = training.columns
    assert columns is not None
    return Climate(
        training.standardised(), tests.standardised(), inside, float(columns.y_scale[0]), float(columns.y_shift[0])
    )


def _invented() -> tuple[Collection, Collection]:
    """Rain where a random wave is high, cold where it rains."""
    random = np.random.default_rng(0)
    longitude, latitude = (g.ravel() for g in np.meshgrid(np.linspace(19.5, 20.8, 6), np.linspace(43.5, 44.5, 5)))
    tasks = []
    for number in range(6):
        wave = np.sin(3 * longitude + random.uniform(0, 6)) + np.sin(4 * latitude + random.uniform(0, 6))
        rain = np.maximum(wave - 0.3, 0)
        x = np.stack([longitude, latitude, 280 - 2 * rain + 0.1 * random.normal(size=len(rain))], axis=1)
        tasks.append(Task.of(x, rain, f"invented {number}"))
    names = {"x_names": ("longitude", "latitude", "temperature"), "y_names": ("precipitation",)}
    columns = Columns.of(*stacked(tasks[:4]), names["x_names"], names["y_names"])
    inside = torch.from_numpy(read_outline(REGION).contains(longitude, latitude))
    splits = [split_outside(task, inside, 6, torch.Generator().manual_seed(0), "region") for task in tasks[4:]]
    return collect(tasks[:4], columns=columns, **names), collect(tasks[4:], columns=columns, splits=splits, **names)
