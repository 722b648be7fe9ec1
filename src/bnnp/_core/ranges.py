"""The range of every column in training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from bnnp._core.shapes import Bool, Float, Tensor
from bnnp._core.show import listed

MARGIN = 1e-9
"""Share of a range by which an input may lie beyond its ends: the error of numbers that were rounded on their way."""

Pairs = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Ranges:
    """The smallest and the largest value of every column.

    Attributes:
        x: One pair per input column.
        y: One pair per output column.
    """

    x: Pairs
    y: Pairs

    @staticmethod
    def of(x: Float[Tensor, "points x"], y: Float[Tensor, "points y"]) -> Ranges:
        """The ranges of some points, of which there is at least one."""
        return Ranges(_pairs(x), _pairs(y))

    def widened(self, share: float) -> Ranges:
        """Ranges that go beyond both ends by a share of their width."""

        def wider(pairs: Pairs) -> Pairs:
            return tuple((low - share * (high - low), high + share * (high - low)) for low, high in pairs)

        return Ranges(wider(self.x), wider(self.y))

    def with_others(self, other: Ranges | None) -> Ranges:
        """The smallest ranges that hold both."""
        if other is None:
            return self

        def wider(ours: Pairs, theirs: Pairs) -> Pairs:
            return tuple((min(a, c), max(b, d)) for (a, b), (c, d) in zip(ours, theirs, strict=True))

        return Ranges(wider(self.x, other.x), wider(self.y, other.y))

    def outside(self, x: Float[Tensor, "points x"]) -> Bool[Tensor, "points"]:
        """Which inputs lie outside the range of an input column."""
        low, high = torch.tensor(self.x, dtype=torch.float64, device=x.device).T
        margin = MARGIN * (high - low)
        return ((x < low - margin) | (x > high + margin)).any(1)

    def of_inputs(self, names: Sequence[str]) -> str:
        """The ranges of the inputs in words, as in `hour: 0 to 24`."""
        return listed([f"{name}: {low:g} to {high:g}" for name, (low, high) in zip(names, self.x, strict=True)])

    def record(self) -> dict[str, Any]:
        """The ranges as plain values, for a file."""
        return {"x": [list(pair) for pair in self.x], "y": [list(pair) for pair in self.y]}

    @staticmethod
    def of_record(record: Any, in_size: int, out_size: int) -> Ranges:
        """The ranges that `record` gave.

        Raises:
            ValueError: If these are not as many ranges of finite numbers.
        """
        x, y = (tuple((float(low), float(high)) for low, high in record[which]) for which in ("x", "y"))
        fine = all(-math.inf < low <= high < math.inf for low, high in (*x, *y))
        if not fine or (len(x), len(y)) != (in_size, out_size):
            raise ValueError("ranges of columns do not fit the model")
        return Ranges(x, y)


def _pairs(values: Tensor) -> Pairs:
    low, high = values.double().amin(0).tolist(), values.double().amax(0).tolist()
    return tuple(zip(low, high, strict=True))
