"""Training with contexts in chunks: derivatives go through one chunk, chosen at random (paper, App. C)."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils.checkpoint import checkpoint

from bnnp._shapes import Float, Tensor
from bnnp.gaussian import NaturalParameters, UnitPrior, UpdateNoise, natural_parameters, weight_space
from bnnp.models.amortised import AmortisedModel, InferredWeights, infer_with_targets
from bnnp.models.base import MetaLearner
from bnnp.models.streaming import check_chunk_size, outputs_before
from bnnp.network import features_of_layer, run
from bnnp.tasks.task import SplitBatch, TaskBatch


@dataclass(frozen=True)
class InChunks:
    """A model as an objective sees it, whose contexts are inferred from in chunks of so many points.

    All chunks enter every layer's posterior, so that samples are those of the whole context, but only one of them, the
    same for all layers, has derivatives there. Likelihoods are those of all points, with derivatives by the weights;
    they too are computed chunk by chunk, and once more when they are differentiated. Memory depends on the chunk alone.
    NPVI is the exception: it asks for the density of given weights, and so goes through whole contexts.
    """

    model: AmortisedModel
    chunk_size: int

    def __post_init__(self):
        check_chunk_size(self.model, self.chunk_size)

    def infer(self, context: TaskBatch, num_samples: int, random: torch.Generator) -> InferredWeights:
        points = context.x.shape[1]
        if points <= self.chunk_size:
            return self.model.infer(context, num_samples, random)
        order = torch.randperm(points, generator=random, device=random.device).to(context.x.device)
        parts = [_take(context, rows) for rows in order.split(self.chunk_size)]
        chosen = int(torch.randint(len(parts), (), generator=random, device=random.device))
        return self._infer(parts[chosen], parts[:chosen] + parts[chosen + 1 :], num_samples, random)

    def _infer(
        self, chosen: TaskBatch, others: Sequence[TaskBatch], num_samples: int, random: torch.Generator
    ) -> InferredWeights:
        model = self.model
        weights: list[Tensor] = []
        kls: list[Tensor] = []
        whitened: list[Tensor] = []
        h = chosen.x.unsqueeze(1)

        def outputs(layer: int, features: Tensor) -> Tensor:
            nonlocal h
            prior = model.prior.layer(layer, whitened)
            rest = self._sums(layer, prior, weights, others, num_samples, random)
            phi, seen = model.evidence(layer, chosen, h, features)
            noise = model.random_draws(layer, phi, num_samples, random)
            update = model.named_update(layer, weight_space, prior, phi, seen, noise, rest)
            if model.prior.couples_layers:
                whitened.append(update.whitened)
            weights.append(model.prior.from_units(layer, prior.mean + update.centred))
            kls.append(update.kl.sum(-1))
            h = features @ weights[-1]
            return h

        result = run(model.network.program(h), outputs)
        return InferredWeights(weights, kls, result)

    def infer_and_score(
        self, batch: SplitBatch, num_samples: int, random: torch.Generator
    ) -> tuple[InferredWeights, Tensor, Tensor]:
        if max(batch.context.x.shape[1], batch.target.x.shape[1]) <= self.chunk_size:
            return self.model.infer_and_score(batch, num_samples, random)
        inferred = self.infer(batch.context, num_samples, random)
        of_target = self.log_likelihood(inferred.weights, batch.target)
        return inferred, self.context_log_likelihood(inferred, batch.context), of_target

    @torch.no_grad()
    def _sums(
        self,
        layer: int,
        prior: UnitPrior,
        weights: Sequence[Float[Tensor, "tasks samples _d _out"]],
        parts: Sequence[TaskBatch],
        num_samples: int,
        random: torch.Generator,
    ) -> NaturalParameters:
        """What the chunks without derivatives add; their activations are computed anew for every layer."""
        model, total = self.model, None
        for part in parts:
            x = part.x.unsqueeze(1)
            features = features_of_layer(model.network.program(x), weights)
            phi, seen = model.evidence(layer, part, outputs_before(model, x, weights), features)
            noise: UpdateNoise = model.random_draws(layer, phi, num_samples, random)
            added = natural_parameters(prior.mean, phi, seen, noise.points)
            total = added if total is None else total + added
        assert total is not None
        return total

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

    def infer_with_targets(
        self, context: TaskBatch, everything: TaskBatch, num_samples: int, random: torch.Generator
    ) -> InferredWeights:
        return infer_with_targets(self, context, everything, num_samples, random)

    def log_density(self, weights: Sequence[Tensor], context: TaskBatch) -> Tensor:
        return self.model.log_density(weights, context)


def in_chunks(model: MetaLearner, chunk_size: int) -> InChunks:
    """The model with contexts in chunks, or an error where it has no sums over points to be made of parts."""
    if not isinstance(model, AmortisedModel):
        raise ValueError(f"chunk_size: contexts of a {type(model).__name__} cannot be given in chunks; leave it out")
    return InChunks(model, chunk_size)


def _take(batch: TaskBatch, rows: Tensor) -> TaskBatch:
    return TaskBatch(batch.x[:, rows], batch.y[:, rows], batch.mask[:, rows])
