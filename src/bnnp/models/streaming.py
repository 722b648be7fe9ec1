"""Contexts of any size, in chunks (paper, Algorithm 2): only the sums that a posterior needs are kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from bnnp._core.progress import points_bar
from bnnp._core.ranks import ALONE, Ranks
from bnnp.models.contexts import Context, ContextInParts
from bnnp.models.draws import Draws, sample_chunks
from bnnp.models.evidence import WeightModel
from bnnp.models.inferring import InferredWeights
from bnnp.models.layerwise import Turn, Updated, through_layers
from bnnp.models.posterior import WeightPosterior
from bnnp.models.sums import check_can_be_cut, conditioned_on, no_inputs
from bnnp.tasks.parts import Parts


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
    if isinstance(x, Parts):
        if y is not None or ranks.size > 1:
            raise ValueError("x: got a context in parts together with y or group, expected it alone")
        context = ContextInParts(model, x, chunk_size)
    else:
        context = Context.of(model, x, y, chunk_size, ranks)

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


@dataclass(frozen=True)
class FromStream:
    """An update that conditions a layer on sums over points that are read one chunk after the other.

    Attributes:
        model: The model.
        context: The points.
        draws: The normal draws behind the samples.
        advance: Is called with the number of points after each chunk.
    """

    model: WeightModel
    context: Context | ContextInParts
    draws: Draws
    advance: Callable[[int], object]

    def __call__(self, turn: Turn) -> Updated:
        new = conditioned_on(turn, self.context.sums(turn, self.draws, self.advance), self.draws)
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
