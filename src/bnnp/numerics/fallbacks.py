# replaced when merged
"""How often a computation had to take a slower way."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Counts:
    """Fallbacks of a block of code: updates done again in float64, and updates in whitened space."""

    float64: int = 0
    whitened: int = 0


@contextmanager
def counted() -> Iterator[Counts]:
    """Count the fallbacks of a block of code."""
    yield Counts()
