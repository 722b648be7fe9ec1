"""Data sets that belong together: a user's own, and the paper's synthetic processes."""

from bnnp.tasks.chunks import ParquetPieces, from_parquet
from bnnp.tasks.exact import ExactPredictive
from bnnp.tasks.images import mnist
from bnnp.tasks.paper_tests import posterior_quality_test, sawtooth_tests
from bnnp.tasks.source import Collection, TaskSource, from_arrays
from bnnp.tasks.split import random_split
from bnnp.tasks.synthetic import SOURCES, bnn, gp, heaviside, sawtooth
from bnnp.tasks.tables import from_table
from bnnp.tasks.task import Split, SplitBatch, Task, TaskBatch

__all__ = [
    "SOURCES",
    "Collection",
    "ExactPredictive",
    "ParquetPieces",
    "Split",
    "SplitBatch",
    "Task",
    "TaskBatch",
    "TaskSource",
    "bnn",
    "from_arrays",
    "from_parquet",
    "from_table",
    "gp",
    "heaviside",
    "mnist",
    "posterior_quality_test",
    "random_split",
    "sawtooth",
    "sawtooth_tests",
]
