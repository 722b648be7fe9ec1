"""Work on many rows: cut into chunks that stay in the cache, and dealt into shares for threads.

A row is a task and a sample of the features. Shares depend on sizes alone and sums over them have a fixed order, so
that results do not depend on the number of threads.
"""

import itertools
from collections.abc import Callable
from typing import TypeVar

import torch

from bnnp._core.shapes import Tensor
from bnnp._core.threads import in_parallel

NUMBERS_AT_ONCE = 2**20
"""Numbers in the largest array of one chunk: 4 MB in float32, which the caches of two cores hold."""
NUMBERS_PER_SHARE = 2**18
"""Work that is worth a thread: about a millisecond."""
MOST_SHARES = 4

Result = TypeVar("Result")


def in_shares(
    work: Callable[[list[slice]], Result], count: int, numbers_each: int, device: torch.device, in_chunks: bool = True
) -> list[Result]:
    """Do work on all rows, in threads where it is large.

    Args:
        work: What to do with a share of the rows, which comes as a list of chunks.
        count: How many rows there are.
        numbers_each: Numbers in the largest array that a row needs.
        device: Where the work is done. Only the CPU has threads of ours.
        in_chunks: Whether a share comes in chunks, or all rows of it as one.

    Returns:
        What `work` gives for each share.
    """
    size = max(1, NUMBERS_AT_ONCE // max(1, numbers_each)) if in_chunks else max(1, count)
    shares = min(MOST_SHARES, count * numbers_each // NUMBERS_PER_SHARE) if device.type == "cpu" else 1
    shares = max(1, shares)
    bounds = [count * share // shares for share in range(shares + 1)]
    return in_parallel(work, [_chunks(first, last, size) for first, last in itertools.pairwise(bounds)])


def _chunks(first: int, last: int, size: int) -> list[slice]:
    return [slice(start, min(start + size, last)) for start in range(first, last, size)]


def longest(chunks: list[slice]) -> int:
    """Rows of the largest chunk."""
    return chunks[0].stop - chunks[0].start if chunks else 0


def summed(parts: list[Tensor]) -> Tensor:
    """The sum over shares."""
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)


def rows_of(x: Tensor) -> Tensor:
    """Tasks and samples as one axis."""
    return x.flatten(0, 1).contiguous()


def rows_of_each(x: Tensor, phi: Tensor) -> Tensor:
    """Tasks and samples as one axis, of which each place may stand for several of those of `phi`."""
    if x.shape[:2] != (1, 1) and x.shape[:2] not in (phi.shape[:2], (phi.shape[0], 1)):
        x = x.expand(*phi.shape[:2], *x.shape[2:])
    return rows_of(x)
