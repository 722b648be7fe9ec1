"""Inference of the weights for a batch of data sets, layer by layer (paper, section 2.2)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.likelihoods.gaussian import at_points
from bnnp.models.estimates import Points
from bnnp.models.evidence import WeightModel
from bnnp.models.layerwise import LayerUpdate, Turn, Updated, through_layers
from bnnp.numerics.gaussian import (
    CAREFUL,
    NaturalParameters,
    Observations,
    UnitPrior,
    Update,
    UpdateDraws,
    condition,
    log_prior,
)
from bnnp.tasks.task import SplitBatch, TaskBatch

Rest = Callable[[Turn], NaturalParameters]
"""Gives the sums that points outside the context add to a layer."""


@dataclass(frozen=True)
class InferredWeights:
    """Weight samples of every layer for a batch of tasks.

    Attributes:
        weights: Samples of every layer.
        kl: KL of each layer's posterior to its prior.
        outputs: Outputs of the network at the inputs of the context, and after them at other inputs, where such were
            given.
        log_density: Log-density of each layer's posterior at its samples, where it was computed.
    """

    weights: list[Float[Tensor, "tasks samples _d _out"]]
    kl: list[Float[Tensor, "tasks _kl_samples"]]
    outputs: Float[Tensor, "tasks samples points out"]
    log_density: Sequence[Float[Tensor, "tasks _samples"]] = ()

    @staticmethod
    def of(end: Turn) -> InferredWeights:
        """The samples that a walk through all layers has made."""
        density = [layer.log_density for layer in end.done if layer.log_density is not None]
        return InferredWeights(end.weights, _kl(end), end.features, density)

    @property
    def latent(self) -> list[Float[Tensor, "tasks samples _d _out"]]:
        """The weights: what objectives call the latent variable."""
        return self.weights

    def total_kl(self) -> Float[Tensor, "tasks"]:
        """The KL of the whole posterior: the sum over layers of the mean over samples of the earlier layers."""
        return reduce(operator.add, [kl.mean(1) for kl in self.kl])


@dataclass(frozen=True)
class InferredHidden:
    """Samples of all layers but the last.

    Attributes:
        weights: Samples of these layers.
        kl: KL of these layers to their priors.
        prior: Prior of the last layer.
        given: The pseudo-observations that the last layer is conditioned on.
        features: The features that enter the last layer at the context, and after it at other inputs, where such were
            given.
        rest: The sums that points outside the context add to the last layer.
    """

    weights: list[Float[Tensor, "tasks samples _d _out"]]
    kl: Float[Tensor, "tasks _samples"]
    prior: UnitPrior
    given: Points
    features: Float[Tensor, "tasks samples points d"]
    rest: NaturalParameters | None = None


@dataclass(frozen=True)
class FromPoints:
    """An update that conditions a layer on the pseudo-observations of contexts, with derivatives.

    Attributes:
        model: The model.
        context: Prepared points, the first of those that go through the network.
        num_samples: Weight samples per task.
        random: A generator, or the normal draws themselves, one record per layer.
        careful: Whether to solve in float64 whatever the model's precision.
        densities: Whether to give log-densities of the samples.
        rest: Gives the sums that points outside the context add to a layer, without derivatives.
        known: Pseudo-observations by layer, where they do not depend on samples.
        priors: Priors by layer in float64, which to solve in, where they do not depend on samples and are known.
        among_others: Whether other points go through the network after those of the context.
    """

    model: WeightModel
    context: TaskBatch
    num_samples: int
    random: torch.Generator | Sequence[UpdateDraws]
    careful: bool = False
    densities: bool = False
    rest: Rest | None = None
    known: Mapping[int, Observations] = field(default_factory=dict)
    priors: Mapping[int, UnitPrior] = field(default_factory=dict)
    among_others: bool = False

    def evidence(self, turn: Turn) -> Points:
        here = turn.at_first(self.context.x.shape[1]) if self.among_others else turn
        return self.model.evidence(here, self.context, self.known.get(turn.index))

    def prior(self, turn: Turn) -> UnitPrior:
        known = self.priors.get(turn.index)
        return turn.prior if known is None else known

    def __call__(self, turn: Turn) -> Updated:
        prior = self.prior(turn)  # first, since `rest` has no derivatives
        rest = None if self.rest is None else self.rest(turn)
        points = self.evidence(turn)
        draws = self.model.random_draws(turn.index, points.phi, self.num_samples, self.random)
        if self.careful:
            prior, points, draws = prior.to(CAREFUL), points.to(CAREFUL), draws.to(CAREFUL)
        update = condition(prior, points.phi, points.seen, draws, rest)
        units = update.centred + prior.mean
        density = _log_density(prior, update.whitened, units, points, update) if self.densities else None
        weights = turn.of.from_units(turn.index, units.to(self.model.dtype))
        return Updated(weights, lambda: update.whitened, update.kl.sum(-1), density)


@dataclass(frozen=True)
class DensityOf:
    """An update that takes given weights and computes their log-density under the posterior given contexts.

    Attributes:
        weights: The weights of every layer.
        model: The model.
        context: Prepared points.
    """

    weights: Sequence[Float[Tensor, "tasks _samples _d _out"]]
    model: WeightModel
    context: TaskBatch

    def __call__(self, turn: Turn) -> Updated:
        w, points = self.weights[turn.index], self.model.evidence(turn, self.context)
        units = turn.of.to_units(w)
        v = turn.prior.whiten(units)
        rows = points.phi.shape[-2]
        zeros = UpdateDraws(torch.zeros_like(v), torch.zeros(*v.shape[:-1], rows, dtype=v.dtype, device=v.device))
        update = condition(turn.prior, points.phi, points.seen, zeros)
        return Updated(w, lambda: v, log_density=_log_density(turn.prior, v, units, points, update))


class InferringModel(WeightModel):
    """A `WeightModel` that infers its weights for batches of data sets."""

    def infer(
        self,
        context: TaskBatch,
        num_samples: int,
        random: torch.Generator | Sequence[UpdateDraws],
        *,
        careful: bool = False,
        others: Float[Tensor, "tasks others x"] | None = None,
        rest: Rest | None = None,
    ) -> InferredWeights:
        """Sample the posterior layer by layer, each given the samples of those before (paper, eqs. 5-9).

        Cost per task and sample: `O(n d min(n, d) out + min(n, d)^3 out)` per layer; the first layer's matrices are
        shared by all samples.

        Args:
            context: Prepared points.
            num_samples: Weight samples per task.
            random: A generator, or the normal draws themselves, one record per layer.
            careful: Whether to solve in float64 whatever the model's precision, and to give the samples' log-densities.
            others: More inputs to run the network at, for networks whose points do not see each other.
            rest: Gives the sums that points outside the context add to a layer, without derivatives.
        """
        known = self.pseudo_observations_at_once(context)
        update = FromPoints(self, context, num_samples, random, careful, careful, rest, known, {}, others is not None)
        return InferredWeights.of(self._through_layers(update, context, others))

    def infer_hidden(
        self,
        context: TaskBatch,
        num_samples: int,
        random: torch.Generator | Sequence[UpdateDraws],
        others: Float[Tensor, "tasks others x"] | None = None,
        rest: Rest | None = None,
        *,
        careful_priors: Mapping[int, UnitPrior] | None = None,
    ) -> InferredHidden:
        """Sample all layers but the last, as `infer` does, with the same arguments.

        With `careful_priors`, layers are solved for in float64; it holds priors that are known in it, by layer.

        Returns:
            The samples, with the prior of the last layer and the points that it is conditioned on.
        """
        known, index = self.pseudo_observations_at_once(context), self.network.num_layers - 1
        among_others = others is not None
        careful, priors = careful_priors is not None, careful_priors or {}
        update = FromPoints(self, context, num_samples, random, careful, False, rest, known, priors, among_others)
        last = self._through_layers(update, context, others, index)
        prior = update.prior(last)  # before `rest`, which has no derivatives
        given = self.evidence(last.at_first(context.x.shape[1]), context, known.get(index))
        kl = reduce(operator.add, _kl(last)) if last.done else context.x.new_zeros(len(context), 1)
        return InferredHidden(last.weights, kl, prior, given, last.features, None if rest is None else rest(last))

    def _through_layers(
        self, update: LayerUpdate, context: TaskBatch, others: Tensor | None = None, count: int | None = None
    ) -> Turn:
        """Walk through the layers with the points of a context; `others` follow where points do not see each other."""
        x, mask = (context.x, context.mask) if others is None else (torch.cat([context.x, others], 1), None)
        return through_layers(self.network, self.prior, x, update, mask=mask, count=count)

    def infer_and_score(
        self, batch: SplitBatch, num_samples: int, random: torch.Generator
    ) -> tuple[InferredWeights, Tensor, Tensor]:
        """Sample the weights given the contexts, and score contexts and targets under them.

        Contexts and targets go through the network together, where their points do not see each other.

        Args:
            batch: Prepared contexts and targets.
            num_samples: Weight samples per task.
            random: The generator of the draws.

        Returns:
            The samples, the log-density of every point of the contexts, and that of every target.
        """
        if self.network.mixes_points:
            inferred = self.infer(batch.context, num_samples, random)
            of_target = self.log_likelihood(inferred.weights, batch.target)
            return inferred, self.context_log_likelihood(inferred, batch.context), of_target
        inferred = self.infer(batch.context, num_samples, random, others=batch.target.x)
        sizes = [batch.context.x.shape[1], batch.target.x.shape[1]]
        of_context, of_target = self._log_prob(inferred.outputs, batch.joined()).split(sizes, dim=-1)
        return inferred, of_context, of_target

    def infer_with_targets(
        self, context: TaskBatch, everything: TaskBatch, num_samples: int, random: torch.Generator
    ) -> InferredWeights:
        """Samples of `q(W | D)`, with an unbiased estimate of `KL[q(W | D) || q(W | D_c)]` from the same samples."""
        inferred = self.infer(everything, num_samples, random)
        log_ratio = self.log_density(inferred.weights, everything) - self.log_density(inferred.weights, context)
        return replace(inferred, kl=[log_ratio])

    def log_density(
        self, weights: Sequence[Float[Tensor, "tasks samples _d _out"]], context: TaskBatch
    ) -> Float[Tensor, "tasks samples"]:
        """`log q(W | context)` of given weights, by Bayes' rule in each layer."""
        return self.log_density_up_to(weights, context)[0]

    def log_density_up_to(
        self, weights: Sequence[Float[Tensor, "tasks _samples _d _out"]], context: TaskBatch
    ) -> tuple[Float[Tensor, "tasks _samples"], Turn]:
        """The log-density of the weights of the first layers, and the turn of the layer after them."""
        end = self._through_layers(DensityOf(weights, self, context), context, count=len(weights))
        densities = [layer.log_density for layer in end.done if layer.log_density is not None]
        return reduce(operator.add, densities, context.x.new_zeros(len(context), 1)), end

    def log_likelihood(
        self, weights: Sequence[Float[Tensor, "tasks samples _d _out"]], batch: TaskBatch
    ) -> Float[Tensor, "tasks samples points"]:
        """Log-density of every point under every weight sample; 0 where there is no point."""
        return self._log_prob(self.network(weights, batch.x.unsqueeze(1), batch.mask.unsqueeze(1)), batch)

    def context_log_likelihood(
        self, inferred: InferredWeights, context: TaskBatch
    ) -> Float[Tensor, "tasks samples points"]:
        """`log_likelihood` of the context that the weights were inferred from, without running the network again."""
        return self._log_prob(inferred.outputs, context)

    def _log_prob(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        likelihood = at_points(self.likelihood, batch.x.unsqueeze(1))
        values = likelihood.log_prob(outputs, batch.y.unsqueeze(1))
        return values if batch.is_full else values * batch.mask.unsqueeze(1)


def _kl(end: Turn) -> list[Tensor]:
    return [layer.kl for layer in end.done if layer.kl is not None]


def _log_density(
    prior: UnitPrior, v: Tensor, units: Tensor, points: Points, update: Update
) -> Float[Tensor, "tasks samples"]:
    """Log-density of a layer's posterior at the weights `units = mu + L v`: prior times likelihood over evidence."""
    misfit = ((points.seen.y - units @ points.phi.mT) * points.seen.inverse_noise).square().sum(-1)
    return (log_prior(v, prior) - 0.5 * misfit - update.log_evidence).sum(-1)
