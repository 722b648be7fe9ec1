"""Models with an amortised posterior over the weights: what users condition, and what objectives are sums of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from torch import Generator

from bnnp._core.checks import check_samples
from bnnp._core.random import Seed, as_integer
from bnnp._core.ranks import ALONE, Ranks
from bnnp._core.shapes import Tensor
from bnnp._core.threads import in_parallel
from bnnp.models import enough, streaming
from bnnp.models.draws import Draws, in_canonical_order, sample_chunks
from bnnp.models.estimates import Integrated, Sampled
from bnnp.models.inferring import InferredWeights, InferringModel
from bnnp.models.many import WeightPosteriors, checked_tasks
from bnnp.models.posterior import WeightPosterior
from bnnp.networks.transformer import AttentionNetwork
from bnnp.tasks.parts import Parts
from bnnp.tasks.pieces import Pieces
from bnnp.tasks.task import SplitBatch, Task, TaskBatch


class AmortisedModel(InferringModel):
    """A network with a learnable prior over its weights and an amortised posterior for each data set.

    This is what `BNNP`, `AttBNNP` and `BNAM` share; each of them chooses a network and its inference networks.
    """

    # --- what users call -------------------------------------------------------------------------------------------

    def condition(
        self,
        x: ArrayLike | Tensor | Pieces | Parts,
        y: ArrayLike | Tensor | None = None,
        *,
        num_samples: int | None = None,
        seed: Seed = 0,
        chunk_size: int | None = None,
        progress: bool = False,
        group: Any = None,
    ) -> WeightPosterior:
        """Give the posterior over the weights for one data set, as weight samples. Without points it is the prior.

        Args:
            x: Inputs (points, in). With `chunk_size` also a `numpy.memmap`, or, in place of `x` and `y`, pieces: what
                `bnnp.tasks.from_parquet` gives, an iterable of pairs `(x, y)`, or a function that gives an iterator; or
                `bnnp.tasks.Parts`, which other processes or machines read.
            y: Outputs (points, out).
            num_samples: Number of weight samples. By default as many as predictions need (`bnnp.models.enough`), 32 to
                1000; without a Gaussian likelihood, 1000.
            seed: Seed of the draws.
            chunk_size: Points per chunk: the context is streamed through every layer in chunks (paper, Algorithm 2).
                Memory depends on the size of a chunk; the posterior and its samples do not.
            progress: Whether to show a progress bar, for contexts of millions of points.
            group: A process group of torch, as `torch.distributed.group.WORLD`. Every process of it makes the same call
                with its own part of the context, and gets the posterior of the whole; needs `chunk_size`. Their points
                are numbered in the order of the processes.

        Returns:
            The posterior, which predicts, draws functions and takes in more points.

        Raises:
            ValueError: If the data do not fit the model, or if `chunk_size` is given for a model whose points see each
                other.

        Example:
            >>> post = model.condition([0.0, 1.0], [0.5, -0.5], num_samples=8, seed=0)
            >>> post.num_samples, post.points
            (8, 2)
        """
        number = as_integer(seed)
        if num_samples is not None:
            check_samples(num_samples)
            self.prior.check_room(num_samples)
        if chunk_size is not None:
            ranks = ALONE if group is None else Ranks.of(group)
            sampler = streaming.sampler(self, x, y, number, chunk_size, progress, ranks)
        elif group is not None:
            raise ValueError("group: got a process group without chunk_size, expected both, as in chunk_size=4096")
        elif y is None:
            raise ValueError("y: got nothing, expected the outputs; a context that is read in pieces needs chunk_size")
        else:
            sampler = self._sampler(self.checked_task(x, y), number)  # pyright: ignore[reportArgumentType]
        if num_samples is None:
            return enough.samples(sampler) if self.can_integrate else sampler(range(enough.MOST))
        return sampler(range(num_samples))

    def condition_many(
        self, tasks: Sequence[tuple[Any, Any] | Task], *, num_samples: int | None = None, seed: Seed = 0
    ) -> WeightPosteriors:
        """Give the posteriors of many data sets, which are computed side by side.

        Args:
            tasks: Tasks, or pairs `(x, y)` of inputs (points, in) and outputs (points, out); sizes may differ.
            num_samples: Number of weight samples per data set, as for `condition`.
            seed: Seed of the draws. Every data set has the draws that `condition` gives it with this seed.

        Returns:
            The posteriors. A prediction does not depend on the other data sets, to the last bit.

        Raises:
            ValueError: If the data of a data set do not fit the model; the message has its number.

        Example:
            >>> posts = model.condition_many([(x, y), ([0.0, 1.0], [0.5, -0.5])], num_samples=8, seed=0)
            >>> len(posts), [prediction.mean.shape for prediction in posts.predict([x_new, [0.5]])]
            (2, [(2, 1), (1, 1)])
        """
        if num_samples is not None:
            check_samples(num_samples)
            self.prior.check_room(num_samples)
        return WeightPosteriors(self, checked_tasks(self, tasks), num_samples, as_integer(seed))

    def set_prior_learnability(self, share: float) -> Self:
        """Make the prior of the first `round(share |W|)` weights trainable and fix the rest (paper, section 2.5).

        Args:
            share: Between 0, all fixed, and 1, all learnable.

        Returns:
            The model itself.

        Raises:
            ValueError: If `share` is not between 0 and 1.

        Example:
            >>> bnnp.BNNP(1, 1, hidden=(4,)).set_prior_learnability(0.5).prior.learnability
            0.5
        """
        self.prior.set_learnability(share)
        return self

    def summary(self) -> dict[str, object]:
        return {
            "network": " - ".join(str(size) for size in self.network.sizes),
            "activation": self.network.activation,
            "weights": self.network.num_weights,
            "prior": type(self.prior).__name__.lower(),
            "learnable share of the prior": self.prior.learnability,
        }

    # --- one data set ----------------------------------------------------------------------------------------------

    def _sampler(self, task: Task, seed: int) -> Callable[[range], WeightPosterior]:
        """A function that gives samples of the posterior by their numbers."""
        task = in_canonical_order(task)
        context = self.prepare(TaskBatch.of([task], device=self.device))

        def infer(samples: range) -> InferredWeights:
            draws = Draws(seed, samples, self.dtype, self.device)
            of_layers = [self.layer_draws(draws, layer, 0, len(task)) for layer in range(self.network.num_layers)]
            return self.infer(context, len(samples), of_layers, careful=True)

        def posterior(samples: range) -> WeightPosterior:
            with torch.no_grad():
                parts = in_parallel(infer, sample_chunks(samples, self.numbers_per_sample(len(task))))
            return WeightPosterior.joined(self, parts, seed, len(task), context)

        return posterior

    def numbers_per_sample(self, points: int) -> int:
        """Size of the largest array that conditioning makes for one weight sample."""
        sizes = []
        for layer in range(self.network.num_layers):
            units, size = self.prior.unit_shape(layer)
            n = points * (self.network.weight_shapes[layer][1] if self.prior.couples_outputs else 1)
            sizes.append(units * size * min(n, size) + units * min(n, size) ** 2)
        if isinstance(self.network, AttentionNetwork):
            sizes.append(self.network.heads * points**2)
        return max(1, *sizes)

    # --- batches, for objectives -----------------------------------------------------------------------------------

    def estimate(
        self, batch: SplitBatch, num_samples: int, random: Generator, *, integrate: bool, group_size: int | None = None
    ) -> Sampled | Integrated:
        if not (integrate and self.can_integrate):
            inferred, of_context, of_target = self.infer_and_score(batch, num_samples, random)
            return Sampled(inferred, lambda: of_context, lambda: of_target, group_size)
        apart = self.network.mixes_points
        inferred = self.infer_hidden(batch.context, num_samples, random, None if apart else batch.target.x)
        points = batch.context.x.shape[1]
        of_target = self.last_features(inferred.weights, batch.target) if apart else inferred.features[:, :, points:]
        return Integrated(
            inferred.kl,
            inferred.prior,
            inferred.given,
            self.observed(inferred.features[:, :, :points], batch.context),
            self.observed(of_target, batch.target),
            self.outputs_of_a_unit,
            group_size,
        )

    def estimate_with_targets(
        self, batch: SplitBatch, num_samples: int, random: Generator, *, integrate: bool
    ) -> Sampled | Integrated:
        if not (integrate and self.can_integrate):
            return super().estimate_with_targets(batch, num_samples, random, integrate=False)
        everything = batch.joined()
        inferred = self.infer_hidden(everything, num_samples, random)
        given_all, _ = self.log_density_up_to(inferred.weights, everything)
        given_context, last = self.log_density_up_to(inferred.weights, batch.context)
        of_target = self.last_features(inferred.weights, batch.target)
        return Integrated(
            given_all - given_context,
            inferred.prior,
            inferred.given,
            self.observed(last.features, batch.context),
            self.observed(of_target, batch.target),
            self.outputs_of_a_unit,
            observed_given=False,
            against=self.evidence(last, batch.context),
        )
