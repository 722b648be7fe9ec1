"""Cells of mouse bone marrow (Paul et al., 2015) as tasks: how far a cell has developed, from its expressed genes."""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bnnp._core.columns import Columns
from bnnp._core.files import write_atomically
from bnnp._core.optional import optional_module
from bnnp._core.random import Seed, as_generator
from bnnp.tasks.datasets.folder import DataFile, cache_path, data_path, family_folder, read_decompressed
from bnnp.tasks.source import Collection, collect
from bnnp.tasks.split import ContextShare, check_split, random_split
from bnnp.tasks.task import Task, stacked

COMPONENTS, TEST_CLUSTER, CONTEXT_SHARE = 100, "2Ery", 0.2
_SAVED = "paul15_pca100_dpt.npz"
_COUNTS = DataFile(
    "paul15",
    "paul15.h5ad",
    "https://raw.githubusercontent.com/vjcitn/Simba4Bioc/85ccd7bfa642c6d91a1ba4d5fdcad6b9c995d274/inst/extdata",
    "9ae8d5567ef58e3fdcac912504dcc6bc1171da65883bdea880b6fcd9d6767a70",
)


@dataclass(frozen=True)
class Cells:
    """Cells as tasks need them.

    Attributes:
        components: Principal components (cells, components).
        pseudotime: How far each cell has developed (cells).
        clusters: Name of each cell's cluster (cells).
    """

    components: np.ndarray
    pseudotime: np.ndarray
    clusters: np.ndarray


@dataclass(frozen=True)
class Counts:
    """Cells as they were measured.

    Attributes:
        counts: How often each gene was counted (cells, genes).
        clusters: Name of each cell's cluster (cells).
        root: Index of the cell where development starts.
    """

    counts: np.ndarray
    clusters: np.ndarray
    root: int


def paul15(split: str = "train", *, seed: Seed = 0, folder: str | Path | None = None) -> Collection:
    """Pseudotime of blood cells from 100 principal components of 3451 genes, one task per cluster (paper, section 4.4).

    `columns` has the mean and standard deviation of all cells, which a model takes over in training; `standardised()`
    gives standardised tasks.

    Args:
        split: "train" for ten clusters, every second name in alphabetical order; "test" for the cluster 2Ery, with a
            fixed context of a fifth of its 329 cells.
        seed: Seed of the choice of context cells.
        folder: The folder whose sub-folder `paul15` holds the saved components, `paul15_pca100_dpt.npz`, or the counts,
            `paul15.h5ad.gz`. If None, that of the environment variable BNNP_DATA; without it a cache, to which the
            counts are downloaded. From counts, scanpy (`pip install 'bnnp[cells]'`) computes components and pseudotime
            once; they are kept in the cache.

    Returns:
        The tasks.

    Raises:
        FileNotFoundError: If there is no file and none can be downloaded.
        ImportError: If there are only counts, and scanpy is not installed.
        ValueError: If `split` is another word, or the file is damaged.

    Example:
        >>> try:
        ...     train = bnnp.tasks.paul15("train", folder="my_data")
        ... except FileNotFoundError:
        ...     train = None  # put paul15_pca100_dpt.npz or paul15.h5ad.gz into my_data/paul15
    """
    check_split(split)
    cells = _cells(folder)
    names = sorted(set(cells.clusters.tolist()))
    if TEST_CLUSTER not in names:
        raise ValueError(f"paul15: got the clusters {', '.join(names)}, expected {TEST_CLUSTER} to be one of them")
    x_names = [f"component_{i}" for i in range(cells.components.shape[1])]
    columns = Columns.of(*stacked([_task(cells, names)]), x_names, ["pseudotime"])
    if split == "train":
        tasks = [_task(cells, [name]) for name in names[::2]]
        return collect(tasks, x_names=x_names, y_names=["pseudotime"], columns=columns)
    task = _task(cells, [TEST_CLUSTER])
    parts = random_split(task, ContextShare(CONTEXT_SHARE, CONTEXT_SHARE), as_generator(seed))
    return collect([task], x_names=x_names, y_names=["pseudotime"], columns=columns, splits=[parts])


def principal_components(counts: np.ndarray, number: int = COMPONENTS) -> np.ndarray:
    """Principal components of genes scaled to mean 0 and variance 1. `O(cells^3)`.

    A gene that does not vary counts for nothing. The sign of a component is arbitrary; here its largest value is
    positive.

    Args:
        counts: Counts (cells, genes).
        number: Number of components.

    Returns:
        The components (cells, number), the one of largest variance first.

    Raises:
        ValueError: If there are not so many components.
    """
    deviation = counts.std(0, ddof=1)
    scaled = (counts - counts.mean(0)) / np.where(deviation > 0, deviation, 1)
    if not 0 < number <= min(scaled.shape):
        raise ValueError(f"number: got {number}, expected 1 to {min(scaled.shape)} components")
    squares, vectors = np.linalg.eigh(scaled @ scaled.T)
    components = vectors[:, : -number - 1 : -1] * np.sqrt(np.maximum(squares[: -number - 1 : -1], 0))
    largest = np.take_along_axis(components, np.abs(components).argmax(0)[None], axis=0)
    return components * np.where(largest < 0, -1.0, 1.0)


def diffusion_pseudotime(components: np.ndarray, root: int) -> np.ndarray:
    """How far each cell is from the root by diffusion between neighbours, as scanpy computes it by default.

    Args:
        components: Principal components (cells, components).
        root: Index of the root cell.
    """
    scanpy = optional_module("scanpy", "computing pseudotime from counts", "cells")
    anndata = optional_module("anndata", "computing pseudotime from counts", "cells")
    data = anndata.AnnData(np.zeros((len(components), 1), np.float32), obsm={"X_pca": components.astype(np.float32)})
    data.uns["iroot"] = root
    scanpy.pp.neighbors(data, use_rep="X_pca")
    scanpy.tl.diffmap(data)
    scanpy.tl.dpt(data)
    return np.asarray(data.obs["dpt_pseudotime"], dtype=np.float64)


def read_counts(path: Path) -> Counts:
    """The table of counts in a file of the h5ad format, which may be compressed by gzip."""
    h5py = optional_module("h5py", "reading counts", "data")
    try:
        with h5py.File(io.BytesIO(read_decompressed(path)), "r") as file:
            column = file["obs/paul15_clusters"]
            names = column["categories"].asstr()[:]
            counts = np.asarray(file["X"][:], dtype=np.float64)
            return Counts(counts, names[column["codes"][:]].astype(str), int(file["uns/iroot"][()]))
    except (OSError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"{path}: expected an h5ad file with a dense X, obs/paul15_clusters and uns/iroot ({error}); "
            f"get {_COUNTS.url}"
        ) from None


def _cells(folder: str | Path | None) -> Cells:
    """Saved components where there are any; else they are computed from the counts, and saved in the cache."""
    cached = cache_path(_COUNTS.family, _SAVED)
    for path in (family_folder(_COUNTS.family, folder) / _SAVED, cached):
        if path.is_file():
            return _saved(path)
    counts = read_counts(data_path(_COUNTS, folder))
    components = principal_components(counts.counts)
    cells = Cells(components, diffusion_pseudotime(components, counts.root), counts.clusters)
    content = io.BytesIO()
    np.savez_compressed(
        content, X_pca=cells.components, dpt_pseudotime=cells.pseudotime, cluster=cells.clusters.astype(str)
    )
    write_atomically(cached, content.getvalue())
    return cells


def _saved(path: Path) -> Cells:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            cells = Cells(file["X_pca"], file["dpt_pseudotime"], file["cluster"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{path}: expected an npz file with X_pca, dpt_pseudotime and cluster ({error}); remove it, so that it is "
            "computed again, or put a new copy in its place"
        ) from None
    shapes = cells.components.shape, cells.pseudotime.shape, cells.clusters.shape
    if cells.components.ndim != 2 or not shapes[1] == shapes[2] == (len(cells.components),):
        raise ValueError(f"{path}: got arrays of shapes {shapes}, expected (cells, components), (cells,) and (cells,)")
    return cells


def _task(cells: Cells, names: list[str]) -> Task:
    rows = np.isin(cells.clusters, names)
    return Task.of(cells.components[rows], cells.pseudotime[rows], names[0] if len(names) == 1 else "all cells")
