"""Data sets that belong together: a user's own, the paper's synthetic processes, and the paper's real data."""

from bnnp.tasks.curves import curves
from bnnp.tasks.datasets.abalone import abalone
from bnnp.tasks.datasets.cds import download_era5
from bnnp.tasks.datasets.cells import paul15
from bnnp.tasks.datasets.climate import era5
from bnnp.tasks.datasets.ecg import ecg
from bnnp.tasks.datasets.images import mnist, pixel_grid
from bnnp.tasks.datasets.paper_tests import posterior_quality_test, sawtooth_tests
from bnnp.tasks.datasets.registry import SOURCES
from bnnp.tasks.exact import ExactPredictive
from bnnp.tasks.parquet import ParquetTasks
from bnnp.tasks.parts import Parts
from bnnp.tasks.pieces import ParquetPieces, from_parquet
from bnnp.tasks.source import Collection, TaskSource, from_arrays
from bnnp.tasks.split import ContextCount, random_split
from bnnp.tasks.synthetic import bnn, gp, heaviside, sawtooth
from bnnp.tasks.tables import Table, from_table, read_table
from bnnp.tasks.task import Split, SplitBatch, Task, TaskBatch

__all__ = [
    "SOURCES",
    "Collection",
    "ContextCount",
    "ExactPredictive",
    "ParquetPieces",
    "ParquetTasks",
    "Parts",
    "Split",
    "SplitBatch",
    "Table",
    "Task",
    "TaskBatch",
    "TaskSource",
    "abalone",
    "bnn",
    "curves",
    "download_era5",
    "ecg",
    "era5",
    "from_arrays",
    "from_parquet",
    "from_table",
    "gp",
    "heaviside",
    "mnist",
    "paul15",
    "pixel_grid",
    "posterior_quality_test",
    "random_split",
    "read_table",
    "sawtooth",
    "sawtooth_tests",
]
