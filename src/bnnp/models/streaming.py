"""Contexts of any size, in chunks (paper, Algorithm 2): the sums that a posterior needs, and no more, are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from bnnp._core.progress import points_bar
from bnnp._core.shapes import Float, Tensor
from bnnp.models.draws import Draws
from bnnp.models.posterior import WeightPosterior
from bnnp.networks.base import features_of_layer
from bnnp.numerics.gaussian import (
    CAREFUL,
    NaturalParameters,
    UnitPrior,
    condition_on,
    log_density_at_sample,
    natural_parameters,
)
from bnnp.tasks.pieces import ArrayPieces, ParquetPieces, pieces_of
from bnnp.tasks.task import TaskBatch

if TYPE_CHECKING:
    from bnnp.models.amortised import AmortisedModel, InferredWeights


def sampler(
    model: AmortisedModel, x: Any, y: Any, seed: int, chunk_size: int, progress: bool
) -> Callable[[range], WeightPosterior]:
    """Any samples of the posterior, by their numbers; the context is read anew for each call and layer."""
    from bnnp.models.amortised import sample_chunks

    check_chunk_size(model, chunk_size)
    context = _Context.of(model, x, y, chunk_size)

    def posterior(samples: range) -> WeightPosterior:
        runs = sample_chunks(samples, _numbers_per_sample(model, chunk_size))
        with torch.no_grad(), points_bar(progress) as bar:
            total = None if context.points is None else context.points * model.network.num_layers * len(runs)
            shown = bar.add_task("conditioning, points x layers", total=total)
            parts = [
                _infer(model, context, Draws(seed, some, model.dtype, model.device), lambda n: bar.advance(shown, n))
                for some in runs
            ]
        points = context.points
        assert points is not None
        inferred = [part for part, _ in parts]
        return WeightPosterior.joined(model, inferred, seed, points, None, [natural for _, natural in parts])

    return posterior


def can_be_cut(model: AmortisedModel) -> bool:
    """Whether the points of a context do not see each other, so that sums over parts of it are all there is to it."""
    return model.pointwise and not model.network.mixes_points


def check_chunk_size(model: AmortisedModel, chunk_size: Any) -> None:
    if isinstance(chunk_size, bool) or not isinstance(chunk_size, int) or chunk_size < 1:
        raise ValueError(f"chunk_size: got {chunk_size!r}, expected a positive number of points")
    check_can_be_cut(model, "chunk_size")


def check_can_be_cut(model: AmortisedModel, what: str) -> None:
    """Refuse models in which the points of a context see each other."""
    if model.network.mixes_points:
        raise ValueError(
            f"{what}: points of a context attend to each other in this network, so that chunks of them have other "
            "activations than the whole; give the whole context to `condition`"
        )
    if not model.pointwise:
        raise ValueError(
            f"{what}: the inference networks of an AttBNNP let the points of a context attend to each other, so that "
            "chunks of them give another posterior than the whole (paper, section 2.6); give the whole context to "
            "`condition`, or use a BNNP"
        )


@dataclass
class _Context:
    """Chunks of a context, prepared for a model. `points` is known after the first reading at the latest."""

    model: AmortisedModel
    read: Callable[[], Iterator[tuple[Any, Any]]]
    chunk_size: int
    points: int | None

    @staticmethod
    def of(model: AmortisedModel, x: Any, y: Any, chunk_size: int) -> _Context:
        from bnnp.models.amortised import in_canonical_order

        if y is None:
            return _Context(model, pieces_of(x), chunk_size, len(x) if isinstance(x, ParquetPieces) else None)
        if hasattr(x, "filename"):  # a memmap: too large to sort, so taken in its own order
            pieces = ArrayPieces(x, y, chunk_size)
        else:
            task = in_canonical_order(model.checked_task(x, y))
            pieces = ArrayPieces(task.x, task.y, chunk_size)
        return _Context(model, lambda: iter(pieces), chunk_size, len(pieces))

    def chunks(self) -> Iterator[tuple[int, TaskBatch]]:
        """Each chunk with the number of its first point."""
        start = 0
        for x, y in self.read():
            task = self.model.checked_task(x, y)
            for first in range(0, len(task), self.chunk_size):
                part = task.take(torch.arange(first, min(first + self.chunk_size, len(task))))
                yield start, self.model.prepare(TaskBatch.of([part], device=self.model.device))
                start += len(part)
        if self.points is None:
            self.points = start
        if start != self.points:
            raise ValueError(
                f"x: got {start} points in one reading of the context and {self.points} in another, expected the same "
                "points in every reading"
            )


def _infer(
    model: AmortisedModel, context: _Context, draws: Draws, advance: Callable[[int], None]
) -> tuple[InferredWeights, NaturalParameters]:
    """Sample the posterior; also gives the sums of the last layer."""
    from bnnp.models.amortised import InferredWeights

    weights: list[Tensor] = []
    kls, log_densities = [], []
    whitened: list[Tensor] = []
    natural = None
    for layer in range(model.network.num_layers):
        prior = model.prior.layer(layer, whitened)
        natural = no_points(model, layer, len(draws.samples))
        for start, batch in context.chunks():
            natural = natural + sums_over(model, layer, prior, weights, batch, draws, start)
            advance(batch.x.shape[1])
        sample = model.named_update(layer, condition_on, prior, natural, layer_noise(model, draws, layer))
        double = prior.to(CAREFUL)
        log_densities.append(log_density_at_sample(double, sample, natural).sum(-1))
        kls.append(sample.kl.sum(-1))
        if model.prior.couples_layers:
            whitened.append(sample.whitened.to(model.dtype))
        weights.append(model.prior.from_units(layer, (double.mean + sample.centred).to(model.dtype)))
    assert natural is not None
    no_outputs = torch.empty(1, len(draws.samples), 0, model.network.sizes[-1])
    return InferredWeights(weights, kls, no_outputs, log_densities), natural


def sums_over(
    model: AmortisedModel,
    layer: int,
    prior: UnitPrior,
    weights: list[Float[Tensor, "one samples _d _out"]],
    batch: TaskBatch,
    draws: Draws,
    start: int,
) -> NaturalParameters:
    """What a chunk adds to a layer's natural parameters, given the weights of earlier layers."""
    x = batch.x.unsqueeze(1)
    features = features_of_layer(model.network.program(x), weights)
    before = outputs_before(model, x, weights)
    phi, seen = model.evidence(layer, batch, before, features)
    noise = model.layer_draws(draws, layer, start, start + batch.x.shape[1])
    return natural_parameters(prior.mean, phi, seen, noise.points)


def layer_noise(model: AmortisedModel, draws: Draws, layer: int) -> Float[Tensor, "one samples units d"]:
    return draws.weights(layer, *model.prior.unit_shape(layer))


def no_points(model: AmortisedModel, layer: int, samples: int) -> NaturalParameters:
    units, size = model.prior.unit_shape(layer)
    shared = 1 if layer == 0 else samples  # the first layer's features are those of every sample

    def zeros(*shape: int) -> Tensor:
        return torch.zeros(1, *shape, dtype=CAREFUL, device=model.device)

    pairs = size * (size + 1) // 2
    return NaturalParameters(
        zeros(shared, pairs, units), zeros(shared, size, units), zeros(samples, size, units), zeros(shared, units)
    )


def outputs_before(model: AmortisedModel, x: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Outputs of the layer before, which only inference networks that see hidden units need."""
    if not model.inference_sees_hidden or not weights:
        return x
    return features_of_layer(model.network.program(x), weights[:-1]) @ weights[-1]


def _numbers_per_sample(model: AmortisedModel, chunk_size: int) -> int:
    """Size of the largest array that a chunk makes for one weight sample."""
    sizes = []
    for layer in range(model.network.num_layers):
        units, size = model.prior.unit_shape(layer)
        points = chunk_size * (model.network.weight_shapes[layer][1] if model.prior.couples_outputs else 1)
        sizes.append(max(2 * units * size * (size + 1) // 2, points * (size + 2 * units)))
    return max(sizes)
