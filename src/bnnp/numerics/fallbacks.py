"""How often an update needed more than its first attempt: repeats in float64, and updates through the whitened form.

Example:
    with fallbacks.counted() as counts:
        loss = objective(model, batch)
    print(counts.float64, counts.whitened)
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass
class Counts:
    """Numbers of updates, each of one layer for a whole batch.

    Attributes:
        float64: Those that were computed again in float64, because float32 was not accurate enough.
        whitened: Those in which some units went through the whitened form, because their prior is close to singular.
    """

    float64: int = 0
    whitened: int = 0


@contextmanager
def counted() -> Iterator[Counts]:
    """Count what happens within, in this thread and in threads that the library starts for it.

    Counts within counts are part of the outer ones. Threads that the caller starts count for themselves.

    Yields:
        The numbers so far. They stay when the block has ended.
    """
    counts = Counts()
    token = _open.set((*_open.get(), counts))
    try:
        yield counts
    finally:
        _open.reset(token)


def count(*, float64: int = 0, whitened: int = 0) -> None:
    """Add to all counts that are open here."""
    with _lock:
        for counts in _open.get():
            counts.float64 += float64
            counts.whitened += whitened


_open: ContextVar[tuple[Counts, ...]] = ContextVar("_open", default=())
_lock = threading.Lock()
