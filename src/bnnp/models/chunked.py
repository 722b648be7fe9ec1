"""Training with contexts in chunks: derivatives go through one chunk, chosen at random (paper, App. C)."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any

import torch
from torch import Generator
from torch.utils.checkpoint import checkpoint

from bnnp._core.shapes import Float, Tensor
from bnnp.models.amortised import AmortisedModel
from bnnp.models.base import MetaLearner, estimate_by_samples
from bnnp.models.estimates import Integrated, Sampled
from bnnp.models.inferring import InferredHidden, InferredWeights, Rest
from bnnp.models.layerwise import Turn
from bnnp.models.streaming import check_chunk_size
from bnnp.models.sums import sums_over
from bnnp.numerics.densities import expected_log_likelihood, log_density_of_groups, log_density_of_sums, sums_of_targets
from bnnp.numerics.gaussian import NaturalParameters, Observations
from bnnp.numerics.last_layer import LastLayer, condition_last_layer
from bnnp.tasks.task import SplitBatch, TaskBatch


@dataclass(frozen=True)
class InChunks:
    """A model as objectives see it, with contexts that go through it in chunks.

    All chunks enter every layer's posterior, so the samples are those of the whole context. Derivatives of a posterior
    go through one chunk only, the same for all layers. Likelihoods are those of all points, with derivatives with
    respect to the weights; they too are computed chunk by chunk, and once more when they are differentiated. Memory
    depends on the size of a chunk alone. NPVI is the exception: it needs the density of given weights, which takes
    whole contexts.

    Attributes:
        model: The model.
        chunk_size: Points per chunk.
    """

    model: AmortisedModel
    chunk_size: int

    def __post_init__(self):
        check_chunk_size(self.model, self.chunk_size)

    def infer(self, context: TaskBatch, num_samples: int, random: Generator) -> InferredWeights:
        if context.x.shape[1] <= self.chunk_size:
            return self.model.infer(context, num_samples, random)
        return self._infer(*self._cut(context, random), num_samples, random)

    def _infer(
        self, chosen: TaskBatch, others: Sequence[TaskBatch], num_samples: int, random: Generator
    ) -> InferredWeights:
        return self.model.infer(chosen, num_samples, random, rest=self._rest(others, num_samples, random))

    def _infer_hidden(self, context: TaskBatch, num_samples: int, random: Generator) -> InferredHidden:
        if context.x.shape[1] <= self.chunk_size:
            return self.model.infer_hidden(context, num_samples, random)
        chosen, others = self._cut(context, random)
        return self.model.infer_hidden(chosen, num_samples, random, rest=self._rest(others, num_samples, random))

    def _cut(self, context: TaskBatch, random: Generator) -> tuple[TaskBatch, list[TaskBatch]]:
        """Cut a context into random chunks; give one of them, and the others."""
        order = torch.randperm(context.x.shape[1], generator=random, device=random.device).to(context.x.device)
        parts = [_take(context, rows) for rows in order.split(self.chunk_size)]
        chosen = int(torch.randint(len(parts), (), generator=random, device=random.device))
        return parts[chosen], parts[:chosen] + parts[chosen + 1 :]

    def _rest(self, others: Sequence[TaskBatch], num_samples: int, random: Generator) -> Rest:
        """The sums that chunks without derivatives add to a layer. Their activations are computed for every layer."""

        def added(turn: Turn, part: TaskBatch) -> NaturalParameters:
            return sums_over(
                self.model, turn, part, lambda phi: self.model.random_draws(turn.index, phi, num_samples, random).points
            )

        @torch.no_grad()
        def rest(turn: Turn) -> NaturalParameters:
            return reduce(operator.add, (added(turn, part) for part in others))

        return rest

    def estimate(
        self, batch: SplitBatch, num_samples: int, random: Generator, *, integrate: bool, group_size: int | None = None
    ) -> "Sampled | Integrated | IntegratedInChunks":
        if max(batch.context.x.shape[1], batch.target.x.shape[1]) <= self.chunk_size:
            return self.model.estimate(batch, num_samples, random, integrate=integrate, group_size=group_size)
        if integrate and self.model.can_integrate:
            inferred = self._infer_hidden(batch.context, num_samples, random)
            return IntegratedInChunks(self.model, self.chunk_size, inferred, batch, group_size)
        return estimate_by_samples(self, batch, self.infer(batch.context, num_samples, random), group_size)

    def estimate_with_targets(
        self, batch: SplitBatch, num_samples: int, random: Generator, *, integrate: bool
    ) -> Sampled | Integrated:
        return self.model.estimate_with_targets(batch, num_samples, random, integrate=integrate)

    def log_likelihood(
        self, weights: Sequence[Float[Tensor, "tasks samples _d _out"]], batch: TaskBatch
    ) -> Float[Tensor, "tasks samples points"]:
        points = torch.arange(batch.x.shape[1], device=batch.x.device)
        parts = [_take(batch, rows) for rows in points.split(self.chunk_size)]
        if len(parts) == 1:
            return self.model.log_likelihood(weights, batch)
        terms = [
            checkpoint(self.model.log_likelihood, list(weights), part, use_reentrant=False, preserve_rng_state=False)
            for part in parts
        ]
        return torch.cat(terms, dim=-1)  # pyright: ignore[reportArgumentType]

    def context_log_likelihood(
        self, inferred: InferredWeights, context: TaskBatch
    ) -> Float[Tensor, "tasks samples points"]:
        return self.log_likelihood(inferred.weights, context)


@dataclass(frozen=True)
class IntegratedInChunks:
    """The same as `bnnp.models.estimates.Integrated`, with points that go through the network chunk by chunk.

    Each group of targets lies within a chunk; one group of all targets is computed from sums over chunks.

    Attributes:
        model: The model.
        chunk_size: Points per chunk.
        inferred: Samples of all layers but the last.
        batch: Prepared contexts and targets.
        group_size: Targets per group; None for all targets in one group.
        dtype: Precision of the last layer; that of the model if None.
    """

    model: AmortisedModel
    chunk_size: int
    inferred: InferredHidden
    batch: SplitBatch
    group_size: int | None = None
    dtype: torch.dtype | None = None

    @cached_property
    def layer(self) -> LastLayer:
        found, dtype = self.inferred, self.dtype or self.model.dtype
        given = found.given.to(dtype)
        return condition_last_layer(
            found.prior.to(dtype), given.phi, given.seen, rest=found.rest, through_weights=self.group_size is None
        )

    def kl(self) -> Float[Tensor, "tasks samples"]:
        return self.inferred.kl + self.layer.kl.sum(-1)

    def context(self) -> Float[Tensor, "tasks samples"]:
        return self._expected(self.batch.context)

    def target(self) -> Float[Tensor, "tasks samples"]:
        return self._expected(self.batch.target)

    def predictive(self) -> Float[Tensor, "tasks samples groups"]:
        target, outputs, layer = self.batch.target, self.model.outputs_of_a_unit, self.layer
        size = self.group_size
        if size is None:
            sums = self._by_chunk(target, self.chunk_size, lambda phi, seen: sums_of_targets(layer, phi, seen))
            return log_density_of_sums(layer, reduce(operator.add, sums)).unsqueeze(-1)
        whole_groups = max(1, self.chunk_size // size) * size
        parts = self._by_chunk(
            target, whole_groups, lambda phi, seen: log_density_of_groups(layer, phi, seen, size, outputs)
        )
        return torch.cat(parts, dim=-1)

    def in_float64(self) -> "IntegratedInChunks":
        return replace(self, dtype=torch.float64)

    def _expected(self, batch: TaskBatch) -> Tensor:
        layer = self.layer
        parts = self._by_chunk(batch, self.chunk_size, lambda phi, seen: expected_log_likelihood(layer, phi, seen))
        return reduce(operator.add, parts)

    def _by_chunk(self, batch: TaskBatch, size: int, compute: Callable[[Tensor, Observations], Any]) -> list[Any]:
        """Call `compute` on each chunk; the features are computed once more when the result is differentiated."""
        dtype = self.dtype or self.model.dtype

        def of_part(part: TaskBatch) -> Any:
            points = self.model.observed(self.model.last_features(self.inferred.weights, part), part).to(dtype)
            return compute(points.phi, points.seen)

        rows = torch.arange(batch.x.shape[1], device=batch.x.device)
        return [
            checkpoint(of_part, _take(batch, some), use_reentrant=False, preserve_rng_state=False)
            for some in rows.split(size)
        ]


def in_chunks(model: MetaLearner, chunk_size: int) -> InChunks:
    """Give the model with contexts in chunks.

    Args:
        model: The model.
        chunk_size: Points per chunk.

    Raises:
        ValueError: If the contexts of the model cannot be cut into chunks, or `chunk_size` is not a positive number.
    """
    if not isinstance(model, AmortisedModel):
        raise ValueError(f"chunk_size: contexts of a {type(model).__name__} cannot be given in chunks; leave it out")
    return InChunks(model, chunk_size)


def _take(batch: TaskBatch, rows: Tensor) -> TaskBatch:
    return TaskBatch(batch.x[:, rows], batch.y[:, rows], batch.mask[:, rows])
