"""A BNNP beside simple methods, on data sets that are left out."""

from bnnp.comparison.run import Comparison, compare

__all__ = ["Comparison", "compare"]
