"""Contexts whose points are read in pieces, here or elsewhere: what a layer's posterior needs of them are sums."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from bnnp._core.ranks import ALONE, Ranks
from bnnp._core.shapes import Tensor
from bnnp.models.draws import Draws, in_canonical_order
from bnnp.models.evidence import WeightModel
from bnnp.models.layerwise import Turn, arrive
from bnnp.models.sums import no_inputs, no_points, sums_with_draws
from bnnp.numerics.gaussian import NaturalParameters
from bnnp.tasks.parts import Part, Parts
from bnnp.tasks.pieces import ArrayPieces, ParquetPieces, pieces_of
from bnnp.tasks.task import TaskBatch


@dataclass
class Context:
    """The chunks of a context, prepared for a model.

    Attributes:
        model: The model.
        read: Gives an iterator over the pieces of the context, from the start.
        chunk_size: Points per chunk.
        points: Number of points; where it is None, the first reading counts them.
        ranks: The processes that each hold a part of the context.
        first: The number of the first point, where other points come before it.
    """

    model: WeightModel
    read: Callable[[], Iterator[tuple[Any, Any]]]
    chunk_size: int
    points: int | None
    ranks: Ranks = ALONE
    first: int = 0
    _counts: list[int] = field(default_factory=list)

    @staticmethod
    def of(model: WeightModel, x: Any, y: Any, chunk_size: int, ranks: Ranks) -> Context:
        if y is None:
            return Context(model, pieces_of(x), chunk_size, len(x) if isinstance(x, ParquetPieces) else None, ranks)
        if hasattr(x, "filename") or ranks.size > 1:  # a memmap or a part: not sorted, so taken in its own order
            pieces = ArrayPieces(x, y, chunk_size)
        else:
            task = in_canonical_order(model.checked_task(x, y))
            pieces = ArrayPieces(task.x, task.y, chunk_size)
        return Context(model, lambda: iter(pieces), chunk_size, len(pieces), ranks)

    def sums(self, turn: Turn, draws: Draws, advance: Callable[[int], object]) -> NaturalParameters:
        """The sums of a layer over the points of all processes; no chunk is kept after it was read."""
        sums = no_points(self.model, turn.index, len(draws.samples))
        for start, batch in self.chunks():
            sums = sums + sums_with_draws(self.model, turn, batch, draws, start)
            advance(batch.x.shape[1])
        return sums.over(self.ranks)

    def counts(self) -> list[int]:
        """The points of every process; they are counted once."""
        if not self._counts:
            if self.points is None:
                self.points = sum(len(x) for x, _ in self.read())
            counts = torch.zeros(self.ranks.size, dtype=torch.int64)
            counts[self.ranks.rank] = self.points
            self._counts = self.ranks.sum(counts).tolist()
        return self._counts

    def chunks(self) -> Iterator[tuple[int, TaskBatch]]:
        """Each chunk with the number of its first point."""
        first_point = sum(self.counts()[: self.ranks.rank]) if self.ranks.size > 1 else self.first
        start = 0
        for x, y in self.read():
            task = self.model.checked_task(x, y)
            for first in range(0, len(task), self.chunk_size):
                part = task.take(torch.arange(first, min(first + self.chunk_size, len(task))))
                yield first_point + start, self.model.prepare(TaskBatch.of([part], device=self.model.device))
                start += len(part)
        if self.points is None:
            self.points = start
        if start != self.points:
            raise ValueError(
                f"x: got {start} points in one reading of the context and {self.points} in another, expected the same "
                "points in every reading"
            )


@dataclass
class ContextInParts:
    """A context whose parts are read elsewhere.

    Attributes:
        model: The model.
        parts: The parts.
        chunk_size: Points per chunk.
    """

    model: WeightModel
    parts: Parts
    chunk_size: int
    _counts: list[int] = field(default_factory=list)

    @property
    def points(self) -> int:
        return sum(self.counts())

    def counts(self) -> list[int]:
        """The points of every part; they are counted once."""
        if not self._counts:
            self._counts = [count for _, count in sorted(self.parts.each(_count))]
        return self._counts

    def sums(self, turn: Turn, draws: Draws, advance: Callable[[int], object]) -> NaturalParameters:
        """The sums of a layer over the points of all parts."""
        sums = no_points(self.model, turn.index, len(draws.samples))
        work = _SumsOfPart(self.model, turn.weights, draws, self.chunk_size)
        for number, found in self.parts.each(work, self.counts()):
            sums = sums + found
            advance(self.counts()[number])
        return sums


def _count(part: Part) -> tuple[int, int]:
    """The number of a part, and how many points it has."""
    if isinstance(part.points, ParquetPieces):
        return part.number, len(part.points)
    return part.number, sum(len(x) for x, _ in pieces_of(part.points)())


@dataclass(frozen=True, eq=False)  # so that it can be hashed, as joblib does for Dask
class _SumsOfPart:
    """Sums over a part, computed by whoever reads it: all that this needs is sent there.

    Attributes:
        model: The model.
        weights: Samples of the layers before.
        draws: The normal draws behind the samples.
        chunk_size: Points per chunk.
    """

    model: WeightModel
    weights: Sequence[Tensor]
    draws: Draws
    chunk_size: int

    @torch.no_grad()
    def __call__(self, part: Part) -> tuple[int, NaturalParameters]:
        context = Context(self.model, pieces_of(part.points), self.chunk_size, part.count, first=part.first)
        turn = arrive(self.model.network, self.model.prior, no_inputs(self.model), self.weights)
        return part.number, context.sums(turn, self.draws, lambda _: None)
