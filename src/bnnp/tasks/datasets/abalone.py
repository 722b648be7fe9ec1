"""Abalone (Nash et al., 1994) as three tasks: the age of males and females for training, of infants for tests."""

import io
from pathlib import Path

import numpy as np

from bnnp._core.columns import Columns
from bnnp._core.random import Seed, as_generator
from bnnp.tasks.datasets.folder import DataFile, data_path, read_decompressed
from bnnp.tasks.source import Collection, collect
from bnnp.tasks.split import check_split, split_outside
from bnnp.tasks.task import Task, stacked

FEATURES = ("length", "diameter", "height", "whole_weight", "shucked_weight", "viscera_weight", "shell_weight")
CUBE = 0.9677
"""Half the edge of the cube about the training data's mean, in standard deviations, that holds a fifth of infants."""
CONTEXT_SHARE = 0.25
_SEXES = {"M": "male", "F": "female", "I": "infant"}
_FILE = DataFile(
    "abalone",
    "abalone.data",
    "https://archive.ics.uci.edu/ml/machine-learning-databases/abalone",
    "de37cdcdcaaa50c309d514f248f7c2302a5f1f88c168905eba23fe2fbc78449f",
    compressed=False,
)


def abalone(
    split: str = "train", *, cube: float = CUBE, seed: Seed = 0, folder: str | Path | None = None
) -> Collection:
    """The age of abalones, as rings of their shells, from seven measures of size and weight (paper, section 4.4).

    Numbers are in the file's units (200 mm, 200 g, rings). `columns` has the mean and standard deviation of the
    training tasks, which a model takes over in training; `standardised()` gives standardised tasks.

    Args:
        split: "train" for two tasks, males and females; "test" for one task, infants, with a fixed context and target.
            No context point lies in a cube about the mean of the training data, which holds a fifth of the infants.
        cube: Half the cube's edge, in standard deviations of each feature.
        seed: Seed of the choice of context points.
        folder: The folder that holds `abalone/abalone.data`. If None, that of the environment variable BNNP_DATA;
            without it a cache, to which the file is downloaded once.

    Returns:
        The tasks.

    Raises:
        FileNotFoundError: If the file is not there and cannot be downloaded.
        ValueError: If `split` is another word, the cube leaves too few points, or the file is damaged.

    Example:
        >>> try:
        ...     train = bnnp.tasks.abalone("train", folder="my_data")
        ... except FileNotFoundError:
        ...     print("put abalone.data into my_data/abalone")
        put abalone.data into my_data/abalone
    """
    check_split(split)
    tasks = _read(data_path(_FILE, folder))
    training = [tasks["male"], tasks["female"]]
    columns = Columns.of(*stacked(training), FEATURES, ["rings"])
    if split == "train":
        return collect(training, x_names=FEATURES, y_names=["rings"], columns=columns)
    infants = tasks["infant"]
    inside = (columns.standardise_x(infants.x).abs() <= cube).all(dim=1)
    parts = split_outside(infants, inside, round(CONTEXT_SHARE * len(infants)), as_generator(seed), "cube")
    return collect([infants], x_names=FEATURES, y_names=["rings"], columns=columns, splits=[parts])


def _read(path: Path) -> dict[str, Task]:
    import pandas as pd

    names = ["sex", *FEATURES, "rings"]
    try:
        table = pd.read_csv(io.BytesIO(read_decompressed(path)), header=None)
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: expected a table of {len(names)} columns with commas ({error})") from None
    if table.shape[1] != len(names):
        raise ValueError(
            f"{path}: got {table.shape[1]} columns, expected {len(names)} without a header, {', '.join(names)}; "
            f"it is another version of the data, so get {_FILE.url}"
        )
    table.columns = names
    unknown = sorted(set(table["sex"].astype(str)) ^ set(_SEXES))
    if unknown:
        raise ValueError(f"{path}: got or missed the sex {unknown[0]!r}, expected M, F and I; get {_FILE.url}")
    try:
        numbers = table[names[1:]].to_numpy(dtype=np.float64)
        return {
            name: Task.of(numbers[rows, :-1], numbers[rows, -1], name)
            for letter, name in _SEXES.items()
            for rows in [(table["sex"] == letter).to_numpy()]
        }
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
