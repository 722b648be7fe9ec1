"""Measures how fast the library is on this machine, against a plain transcription of the paper and against a limit.

The *limit* is the time of only those large matrix products that a setting needs in any case: features times
covariances (or weights times pairs of features), Gram matrices, the network itself, and the products of their
derivatives. Times of one run are compared with each other, so that the noise of the machine cancels.
"""

from bnnp.bench.measuring import Measurement, measure, measure_in_process, run, table, to_json
from bnnp.bench.settings import SETTINGS, Setting
from bnnp.bench.work import library_work, limit_work, products

__all__ = [
    "SETTINGS",
    "Measurement",
    "Setting",
    "library_work",
    "limit_work",
    "measure",
    "measure_in_process",
    "products",
    "run",
    "table",
    "to_json",
]
