"""Neural processes with a latent variable, samples of which are whole functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

from bnnp._core.checks import check_dtype
from bnnp._core.random import Seed, as_generator
from bnnp._core.shapes import Float, Tensor
from bnnp.inference_nets.pointwise import PointEncoder
from bnnp.likelihoods.base import Likelihood
from bnnp.networks.base import with_bias
from bnnp.neural_processes.aggregate import BayesianAggregation, DiagonalGaussian, MeanAggregation
from bnnp.neural_processes.base import NeuralProcess
from bnnp.neural_processes.path import Codes, DeterministicPath
from bnnp.neural_processes.posterior import ProcessPosterior, SampledFunction
from bnnp.prediction.sampled import SampledPredictive
from bnnp.prediction.weights import fill_in_blocks
from bnnp.tasks.task import Task, TaskBatch

HIDDEN = (128, 128)
"""Units of the hidden layers, unless chosen."""
HEADS = 4


@dataclass(frozen=True)
class Latent:
    """Samples of the latent variable, and the codes of the context points for a deterministic path.

    Attributes:
        z: Samples of the latent variable.
        codes: Codes of the context points; None without a deterministic path.
    """

    z: Float[Tensor, "tasks samples latent"]
    codes: Codes | None


@dataclass(frozen=True)
class InferredLatent:
    """What `infer` returns.

    Attributes:
        latent: Samples of the latent variable.
        kl: KL divergence to the posterior given the contexts alone; None if there is nothing to compare with.
    """

    latent: Latent
    kl: Float[Tensor, "tasks"] | None = None

    def total_kl(self) -> Float[Tensor, "tasks"]:
        assert self.kl is not None
        return self.kl


class LatentProcess(NeuralProcess):
    """`z ~ q(z | context)`, and a decoder that sees `z` and the input.

    With a deterministic path, the decoder also sees the result of attention from the input to the context points. The
    arguments are those of `ANP`; only an `ANP` takes `heads`.
    """

    aggregation_kind: ClassVar[type[MeanAggregation] | type[BayesianAggregation]] = MeanAggregation
    attends: ClassVar[bool] = False

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden: Sequence[int] = HIDDEN,
        activation: str = "silu",
        likelihood: Likelihood | None = None,
        *,
        latent_size: int = 64,
        heads: int | None = None,
        dtype: torch.dtype = torch.float32,
        seed: Seed = 0,
    ):
        super().__init__(in_size, out_size, hidden, activation, likelihood)
        hidden = self._config["hidden"]
        if latent_size < 1:
            raise ValueError(f"latent_size: got {latent_size}, expected a positive whole number, as in 64")
        self.heads = self._checked_heads(heads)
        generator, seen = as_generator(seed), in_size + out_size
        self.aggregation = self.aggregation_kind(seen, latent_size, hidden, activation, generator)
        self.path = None
        if self.heads is not None:
            self.path = DeterministicPath(in_size, seen, hidden, self.heads, activation, generator)
        width = latent_size + in_size + (0 if self.path is None else hidden[-1])
        self.decoder = PointEncoder(width, self.numbers, hidden, activation, generator)
        self._config["latent_size"] = latent_size
        if self.heads is not None:
            self._config["heads"] = self.heads
        self.to(check_dtype(dtype))

    def _checked_heads(self, heads: int | None) -> int | None:
        if not self.attends:
            if heads is not None:
                raise ValueError(f"heads: got {heads}, but a {type(self).__name__} has no attention; use ANP")
            return None
        if heads is not None and heads < 1:
            raise ValueError(f"heads: got {heads}, expected a positive number")
        return HEADS if heads is None else heads

    def given(self, context: TaskBatch) -> DiagonalGaussian:
        """`q(z | context)`."""
        return self.aggregation(self.points_of(context), context.mask)

    def codes(self, context: TaskBatch) -> Codes | None:
        """Codes of the context points for the deterministic path; None without one."""
        return None if self.path is None else self.path.codes(context.x, self.points_of(context), context.mask)

    def infer(self, context: TaskBatch, num_samples: int, random: torch.Generator) -> InferredLatent:
        return InferredLatent(Latent(self.given(context).sample(num_samples, random), self.codes(context)))

    def infer_with_targets(
        self, context: TaskBatch, everything: TaskBatch, num_samples: int, random: torch.Generator
    ) -> InferredLatent:
        """The latent variable given all points; the deterministic path sees the contexts alone, as in prediction."""
        both = self.given(everything)
        latent = Latent(both.sample(num_samples, random), self.codes(context))
        return InferredLatent(latent, both.kl(self.given(context)))

    def decode(self, latent: Latent, x: Float[Tensor, "tasks points x"]) -> Float[Tensor, "tasks samples points out"]:
        features = x
        if self.path is not None and latent.codes is not None:
            features = torch.cat([x, self.path(latent.codes, x)], dim=-1)
        first, size = self.decoder.weights[0], latent.z.shape[-1]
        of_samples, of_points = latent.z @ first[:size], with_bias(features) @ first[size:]  # each computed once
        return self.decoder.from_first_layer(of_samples.unsqueeze(2) + of_points.unsqueeze(1))

    def numbers_per_point(self, context: int) -> int:
        return max(self.decoder.network.sizes) + (self.heads * (context + 1) if self.heads else 0)

    @torch.no_grad()
    def posterior(self, task: Task, num_samples: int, seed: int) -> LatentPosterior:
        inferred = self.infer(self.prepared(task), num_samples, as_generator(seed))
        return LatentPosterior(self, task, num_samples, seed, inferred.latent)


@dataclass(frozen=True, eq=False, repr=False)
class LatentPosterior(ProcessPosterior):
    """Samples of the latent variable given a data set. Each sample is a function."""

    latent: Latent

    def predictive(self, x: Float[Tensor, "points x"]) -> SampledPredictive:
        model: LatentProcess = self.model

        def compute(some: slice, here: slice) -> Tensor:
            return model.decode(replace(self.latent, z=self.latent.z[:, some]), x[None, here])[0]

        outputs = x.new_empty(self.num_samples, len(x), model.numbers)
        outputs = fill_in_blocks(outputs, compute, model.numbers_per_point(len(self.task)))
        return SampledPredictive(outputs, model.likelihood, model.columns)

    def functions(self) -> list[SampledFunction]:
        alone = [replace(self.latent, z=self.latent.z[:, k : k + 1]) for k in range(self.num_samples)]
        return [SampledFunction(replace(self, num_samples=1, latent=latent)) for latent in alone]
