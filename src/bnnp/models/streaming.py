"""Contexts of any size, in chunks (paper, Algorithm 2): only the sums that a posterior needs are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from bnnp._core.progress import points_bar
from bnnp._core.ranks import ALONE, Ranks
from bnnp.models.draws import Draws, in_canonical_order, sample_chunks
from bnnp.models.evidence import WeightModel
from bnnp.models.inferring import InferredWeights
from bnnp.models.layerwise import Turn, Updated, through_layers
from bnnp.models.posterior import WeightPosterior
from bnnp.models.sums import check_can_be_cut, conditioned_on, no_inputs, no_points, sums_with_draws
from bnnp.tasks.pieces import ArrayPieces, ParquetPieces, pieces_of
from bnnp.tasks.task import TaskBatch


def sampler(
    model: WeightModel, x: Any, y: Any, seed: int, chunk_size: int, progress: bool, ranks: Ranks = ALONE
) -> Callable[[range], WeightPosterior]:
    """A function that gives samples of the posterior by their numbers.

    The context is read again for each call and layer.

    Args:
        model: The model to condition.
        x: Inputs, or pieces of a context, as for `AmortisedModel.condition`.
        y: Outputs, or None for pieces.
        seed: Seed of the draws.
        chunk_size: Points per chunk.
        progress: Whether to show a progress bar.
        ranks: The processes that each hold a part of the context.

    Raises:
        ValueError: If the contexts of the model cannot be cut into chunks, or the data do not fit it.
    """
    check_chunk_size(model, chunk_size)
    context = _Context.of(model, x, y, chunk_size, ranks)

    def posterior(samples: range) -> WeightPosterior:
        runs = sample_chunks(samples, _numbers_per_sample(model, chunk_size))
        with torch.no_grad(), points_bar(progress) as bar:
            total = None if context.points is None else context.points * model.network.num_layers * len(runs)
            shown = bar.add_task("conditioning, points x layers", total=total)

            def infer(some: range) -> Turn:
                draws = Draws(seed, some, model.dtype, model.device)
                update = FromStream(model, context, draws, lambda n: bar.advance(shown, n))
                return through_layers(model.network, model.prior, no_inputs(model), update)

            ends = [infer(some) for some in runs]
        points = sum(context.counts())
        sums = [end.done[-1].sums for end in ends]
        inferred = [InferredWeights.of(end) for end in ends]
        return WeightPosterior.joined(model, inferred, seed, points, None, [one for one in sums if one is not None])

    return posterior


def check_chunk_size(model: WeightModel, chunk_size: Any) -> None:
    """Refuse a chunk size that is not a positive number, and models whose contexts cannot be cut into chunks."""
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
        raise ValueError(f"chunk_size: got {chunk_size!r}, expected a positive number of points")
    check_can_be_cut(model, "chunk_size")


@dataclass
class _Context:
    """The chunks of a context, prepared for a model.

    Attributes:
        model: The model.
        read: Gives an iterator over the pieces of the context, from the start.
        chunk_size: Points per chunk.
        points: Number of points; where it is None, the first reading counts them.
        ranks: The processes that each hold a part of the context.
    """

    model: WeightModel
    read: Callable[[], Iterator[tuple[Any, Any]]]
    chunk_size: int
    points: int | None
    ranks: Ranks = ALONE
    _counts: list[int] = field(default_factory=list)

    @staticmethod
    def of(model: WeightModel, x: Any, y: Any, chunk_size: int, ranks: Ranks) -> _Context:
        if y is None:
            return _Context(model, pieces_of(x), chunk_size, len(x) if isinstance(x, ParquetPieces) else None, ranks)
        if hasattr(x, "filename") or ranks.size > 1:  # a memmap or a part: not sorted, so taken in its own order
            pieces = ArrayPieces(x, y, chunk_size)
        else:
            task = in_canonical_order(model.checked_task(x, y))
            pieces = ArrayPieces(task.x, task.y, chunk_size)
        return _Context(model, lambda: iter(pieces), chunk_size, len(pieces), ranks)

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
        first_point = sum(self.counts()[: self.ranks.rank]) if self.ranks.size > 1 else 0
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


@dataclass(frozen=True)
class FromStream:
    """An update that conditions a layer on sums over chunks; no chunk is kept after it was read.

    Attributes:
        model: The model.
        context: The chunks.
        draws: The normal draws behind the samples.
        advance: Is called with the number of points after each chunk.
    """

    model: WeightModel
    context: _Context
    draws: Draws
    advance: Callable[[int], object]

    def __call__(self, turn: Turn) -> Updated:
        sums = no_points(self.model, turn.index, len(self.draws.samples))
        for start, batch in self.context.chunks():
            sums = sums + sums_with_draws(self.model, turn, batch, self.draws, start)
            self.advance(batch.x.shape[1])
        new = conditioned_on(turn, sums.over(self.context.ranks), self.draws)
        last = turn.index == self.model.network.num_layers - 1
        return new if last else replace(new, sums=None)  # sums of other layers are large and not needed


def _numbers_per_sample(model: WeightModel, chunk_size: int) -> int:
    """Size of the largest array that a chunk makes for one weight sample."""
    sizes = []
    for layer in range(model.network.num_layers):
        units, size = model.prior.unit_shape(layer)
        points = chunk_size * (model.network.weight_shapes[layer][1] if model.prior.couples_outputs else 1)
        sizes.append(max(2 * units * size * (size + 1) // 2, points * (size + 2 * units)))
    return max(sizes)
