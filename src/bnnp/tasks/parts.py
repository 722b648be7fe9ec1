"""A context in parts that are read elsewhere: by threads, processes or machines, by any map there is."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bnnp._core.show import Shown
from bnnp.tasks.pieces import Pieces

Found = TypeVar("Found")
Work = Callable[["Part"], tuple[int, Found]]
"""What is done with a part: it gives the number of the part, and what was found."""


@dataclass(frozen=True, eq=False)
class Part:
    """A part, as it is sent to whoever reads it.

    Attributes:
        number: Its number.
        points: Its points, as `Parts` was given them.
        first: The number of its first point in the whole context.
        count: How many points it has; None before they are counted.
    """

    number: int
    points: Pieces
    first: int = 0
    count: int | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Parts(Shown):
    """One context in parts, for `model.condition(parts, chunk_size=4096)`.

    Each part is read where `map` has it read. What comes back are sums, whose size does not depend on the points: once
    for every layer of the network, after the points have been counted. They are added here.

    Attributes:
        parts: Contexts, each as `condition` takes one in pieces: what `bnnp.tasks.from_parquet` gives, a list of pairs
            `(x, y)`, or a function that gives an iterator over them.
        map: How a function is called with every item of a list: the built-in `map`, that of a
            `concurrent.futures.ProcessPoolExecutor`, or of joblib, Dask, Ray or Spark (`docs/scale.md`). The order in
            which results come does not matter, but to rounding.

    Example:
        >>> parts = bnnp.tasks.Parts([[([0.0, 1.0], [0.5, -0.5])], [([2.0], [0.1])]])
        >>> model.condition(parts, num_samples=8, chunk_size=4096).points
        3
    """

    parts: Sequence[Pieces]
    map: Callable[[Callable[[Any], Any], list[Any]], Iterable[Any]] = builtins.map

    def __post_init__(self):
        if not isinstance(self.parts, Sequence) or not len(self.parts):
            raise ValueError(f"parts: got {self.parts!r}, expected a list with at least one context in it")
        if not callable(self.map):
            raise ValueError(f"map: got {self.map!r}, expected a function such as the built-in map")

    def each(self, work: Work[Found], counts: Sequence[int] | None = None) -> Iterator[tuple[int, Found]]:
        """What is found in every part, with its number, in the order in which it comes.

        Args:
            work: What is done with a part.
            counts: How many points every part has, where that is known.

        Raises:
            ValueError: If `map` has not given one result for every part.
        """
        items, first = [], 0
        for number, points in enumerate(self.parts):
            items.append(Part(number, points, first, None if counts is None else counts[number]))
            first += 0 if counts is None else counts[number]
        seen: set[int] = set()
        for number, found in self.map(work, items):
            if number in seen:
                raise ValueError(f"map: got part {number} twice, expected one result for each part")
            seen.add(number)
            yield number, found
        if len(seen) < len(items):
            raise ValueError(
                f"map: got results for {len(seen)} of {len(items)} parts, expected one for each; give a map that calls "
                "the function with every item of a list"
            )

    def _described(self) -> dict[str, object]:
        return {"parts": len(self.parts), "read by": getattr(self.map, "__qualname__", type(self.map).__name__)}
