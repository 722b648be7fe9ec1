"""The checks under their earlier name."""

from bnnp._core.checks import check_count, is_number

__all__ = ["check_count", "is_number"]
