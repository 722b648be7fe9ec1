"""The standard normal draws behind the weight samples of one data set.

A draw depends on the number of its sample and, where it is for a point, on the number of the point; so any part of the
draws can be made by itself.
"""

from dataclasses import dataclass

import torch

from bnnp._core.random import child
from bnnp._core.shapes import Float, Tensor
from bnnp.numerics.gaussian import UpdateDraws
from bnnp.tasks.task import Task

SAMPLES_AT_ONCE = 2**24
"""Numbers in the largest array of one chunk of weight samples while conditioning: 128 MB."""
SAMPLES_PER_BLOCK = 16
POINTS_PER_BLOCK = 64
_WEIGHTS, _POINTS = 0, 1


@dataclass(frozen=True)
class Draws:
    """Draws by the numbers of samples and points, in blocks with one generator per block.

    A context in chunks, or one that grows, has the same draws as the whole context: the same seed gives the same
    samples.

    Attributes:
        seed: The seed of all draws.
        samples: The numbers of the samples.
        dtype: Precision of the draws.
        device: Device of the draws.
    """

    seed: int
    samples: range
    dtype: torch.dtype
    device: torch.device

    def weights(self, layer: int, units: int, size: int) -> Float[Tensor, "one samples units d"]:
        """The draws of the weights: `size` weights for each of some units."""
        blocks = [
            self._block((layer, _WEIGHTS, block), units, size)
            for block in _blocks(self.samples.start, self.samples.stop, SAMPLES_PER_BLOCK)
        ]
        return _part(torch.cat(blocks), self.samples.start, len(self.samples), 0, SAMPLES_PER_BLOCK).unsqueeze(0)

    def points(self, layer: int, outputs: int, start: int, stop: int) -> Float[Tensor, "one samples outputs points"]:
        """The draws of the points from number `start` up to `stop`."""
        if stop == start:
            return torch.zeros(1, len(self.samples), outputs, 0, dtype=self.dtype, device=self.device)
        rows = []
        for block in _blocks(self.samples.start, self.samples.stop, SAMPLES_PER_BLOCK):
            parts = [
                self._block((layer, _POINTS, block, part), outputs, POINTS_PER_BLOCK)
                for part in _blocks(start, stop, POINTS_PER_BLOCK)
            ]
            rows.append(_part(torch.cat(parts, dim=-1), start, stop - start, -1, POINTS_PER_BLOCK))
        return _part(torch.cat(rows), self.samples.start, len(self.samples), 0, SAMPLES_PER_BLOCK).unsqueeze(0)

    def update(
        self, layer: int, unit_shape: tuple[int, int], outputs: int, coupled: bool, start: int, stop: int
    ) -> UpdateDraws:
        """All draws for one layer.

        Args:
            layer: Number of the layer.
            unit_shape: Units of the layer's prior, and weights per unit.
            outputs: Outputs of the layer.
            coupled: Whether a unit of the prior holds the weights into all outputs.
            start: Number of the first point.
            stop: Number after the last point.
        """
        points = self.points(layer, outputs, start, stop)
        return UpdateDraws(self.weights(layer, *unit_shape), points.flatten(-2).unsqueeze(-2) if coupled else points)

    def _block(self, keys: tuple[int, ...], *shape: int) -> Tensor:
        return torch.randn(SAMPLES_PER_BLOCK, *shape, generator=child(self.seed, *keys), dtype=self.dtype).to(
            self.device
        )


def in_canonical_order(task: Task) -> Task:
    """Points sorted by all columns, so that the same seed gives the same samples however the points are ordered."""
    order = torch.arange(len(task))
    for column in torch.cat([task.x, task.y], dim=1).T.flip(0):
        order = order[torch.sort(column[order], stable=True).indices]
    return task.take(order)


def sample_chunks(samples: range, numbers_per_sample: int) -> list[range]:
    """Divide samples into chunks that keep memory bounded.

    Args:
        samples: The numbers of the samples.
        numbers_per_sample: Size of the largest array for one sample.
    """
    size = max(1, min(len(samples), SAMPLES_AT_ONCE // numbers_per_sample))
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def _blocks(start: int, stop: int, size: int) -> range:
    return range(start // size, (stop + size - 1) // size)


def _part(values: Tensor, start: int, count: int, axis: int, size: int) -> Tensor:
    return values.narrow(axis, start % size, count)
