"""The last layer given samples of all others: its sums, and how it takes in new points (paper, App. D)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.models.draws import Draws
from bnnp.models.evidence import WeightModel
from bnnp.models.layerwise import Given, Turn, Updated, arrive, through_layers
from bnnp.models.sums import can_be_cut, conditioned_on, no_inputs, no_points, sums_with_draws
from bnnp.numerics.gaussian import NaturalParameters
from bnnp.tasks.task import TaskBatch

POINTS_AT_ONCE = 1024


@dataclass(frozen=True)
class Hidden:
    """Samples of all layers but the last, for one data set.

    Attributes:
        model: The model.
        weights: Samples of every hidden layer.
        draws: The normal draws behind the samples.
    """

    model: WeightModel
    weights: list[Float[Tensor, "one samples _d _out"]]
    draws: Draws

    @torch.no_grad()
    def last_turn(self) -> Turn:
        """The last layer's turn, with its prior given these samples."""
        return arrive(self.model.network, self.model.prior, no_inputs(self.model), self.weights)

    @torch.no_grad()
    def sums(self, batch: TaskBatch, start: int) -> NaturalParameters:
        """The sums that points add to the last layer; the first of them has number `start`."""
        return _sums(self, self.last_turn(), batch, start)

    @torch.no_grad()
    def renewed(self, sums: NaturalParameters, new: TaskBatch, start: int) -> Updated:
        """The last layer after new points. Cost per sample and output: `O(n d^2)`, and `O(d^3)` for the new sample.

        Args:
            sums: The sums over the points before.
            new: Prepared points.
            start: The number of the first new point.
        """
        update = RenewedLast(self, sums, new, start)
        return through_layers(self.model.network, self.model.prior, no_inputs(self.model), update).done[-1]


@dataclass(frozen=True)
class RenewedLast:
    """An update that takes given weights for all layers but the last, and conditions the last one on new points too.

    Attributes:
        hidden: Samples of all layers but the last.
        sums: The last layer's sums over the points before.
        new: Prepared new points.
        start: The number of the first new point.
    """

    hidden: Hidden
    sums: NaturalParameters
    new: TaskBatch
    start: int

    def __call__(self, turn: Turn) -> Updated:
        if turn.index < len(self.hidden.weights):
            return Given(self.hidden.weights)(turn)
        sums = self.sums + _sums(self.hidden, turn, self.new, self.start)
        return conditioned_on(turn, sums, self.hidden.draws)


def _sums(hidden: Hidden, turn: Turn, batch: TaskBatch, start: int) -> NaturalParameters:
    """`Hidden.sums`, in parts that keep memory bounded where points do not see each other."""
    model, points = hidden.model, batch.x.shape[1]
    total = no_points(model, turn.index, len(hidden.draws.samples))
    size = POINTS_AT_ONCE if can_be_cut(model) else max(1, points)
    for first in range(0, points, size):
        here = slice(first, first + size)
        part = TaskBatch(batch.x[:, here], batch.y[:, here], batch.mask[:, here])
        total = total + sums_with_draws(model, turn, part, hidden.draws, start + first)
    return total
