"""Amortised inference over the weights of a network, layer by layer (paper, section 2.2)."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Self

import torch
from numpy.typing import ArrayLike
from torch import nn

from bnnp import priors
from bnnp._core.random import Seed, as_integer, normal
from bnnp._core.shapes import Bool, Float, Tensor
from bnnp._core.threads import in_parallel
from bnnp.inference_nets.attentive import SetEncoder
from bnnp.inference_nets.pointwise import PointEncoder, side_by_side
from bnnp.inference_nets.pseudo import AmortisedLinear
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.base import MetaLearner, check_num_samples
from bnnp.models.draws import Draws
from bnnp.models.estimates import Integrated, Points, Sampled
from bnnp.models.posterior import WeightPosterior
from bnnp.networks.base import AnyNetwork, advance, features_of_layer
from bnnp.networks.functions import View
from bnnp.networks.transformer import AttentionNetwork
from bnnp.numerics.gaussian import (
    CAREFUL,
    NaturalParameters,
    Observations,
    UnitPrior,
    Update,
    UpdateNoise,
    condition,
    log_prior,
    with_missing,
)
from bnnp.numerics.solve import FactorisationError
from bnnp.tasks.pieces import Pieces
from bnnp.tasks.task import SplitBatch, Task, TaskBatch

MIN_PSEUDO_NOISE = 1e-3
SAMPLES_AT_ONCE = 2**24
"""Numbers in the largest array of one chunk of weight samples while conditioning: 128 MB."""


@dataclass(frozen=True)
class Choices:
    """What users choose for any model of the family; `BNNP` says what each choice means."""

    prior: str
    likelihood: Likelihood | None
    inference_sees_hidden: bool
    last_layer: str | None
    min_pseudo_noise: float


@dataclass(frozen=True)
class InferredWeights:
    """Weight samples of every layer for a batch of tasks, and the KL of each layer's posterior to its prior.

    outputs: of the network at the inputs of the context, which inference has computed anyway, and after them at others
        that were asked for.
    log_density: of each layer's posterior at its sample, where it was asked for.
    """

    weights: list[Float[Tensor, "tasks samples _d _out"]]
    kl: list[Float[Tensor, "tasks _kl_samples"]]
    outputs: Float[Tensor, "tasks samples points out"]
    log_density: Sequence[Float[Tensor, "tasks _samples"]] = ()

    @property
    def latent(self) -> list[Float[Tensor, "tasks samples _d _out"]]:
        """The weights: what objectives call the latent variable."""
        return self.weights

    def total_kl(self) -> Float[Tensor, "tasks"]:
        """The KL of the whole posterior: layerwise terms summed, averaged over samples of the earlier layers."""
        return reduce(operator.add, [kl.mean(1) for kl in self.kl])


@dataclass(frozen=True)
class InferredHidden:
    """Samples of all layers but the last.

    kl: of these layers to their priors.
    prior, given: of the last layer, and the pseudo-observations that it is conditioned on.
    features: that come to the last layer at the context, and after it at other inputs that were asked for.
    rest: what points beside the context add to the last layer.
    """

    weights: list[Float[Tensor, "tasks samples _d _out"]]
    kl: Float[Tensor, "tasks _samples"]
    prior: UnitPrior
    given: Points
    features: Float[Tensor, "tasks samples points d"]
    rest: NaturalParameters | None = None


Rest = Callable[[int, UnitPrior, Sequence[Tensor]], NaturalParameters]
"""What points beside the context add to a layer, given its prior and the weights of the layers before."""


@dataclass
class _Drawn:
    """Layers sampled so far.

    known: pseudo-observations of all layers, where they do not depend on samples.
    outputs: of the last of these layers (at first, the inputs);  features: that come to the next one.
    """

    known: dict[int, Observations]
    outputs: Tensor
    features: Tensor
    weights: list[Tensor] = field(default_factory=list)
    kl: list[Tensor] = field(default_factory=list)
    log_density: list[Tensor] = field(default_factory=list)
    whitened: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class _Density:
    """total: log-density of some layers;  outputs: of the last of them;  features: that come to the next one."""

    total: Float[Tensor, "tasks samples"]
    outputs: Tensor
    features: Tensor


class AmortisedModel(MetaLearner):
    """A network with a learnable prior over its weights and an amortised posterior for each data set.

    What all models of the family share; `BNNP` and `BNAM` say which network, and with which inference networks.
    """

    pointwise = True
    """Whether inference networks see each point of a context by itself."""
    consistent = True
    """Whether predictions at some inputs are the same whatever other inputs are asked for beside them."""

    def __init__(
        self,
        network: AnyNetwork,
        choices: Choices,
        make_encoder: Callable[[int, int], PointEncoder | SetEncoder],
        dtype: torch.dtype,
    ):
        likelihood = choices.likelihood if choices.likelihood is not None else Gaussian()
        if likelihood.numbers_an_output != 1:
            raise ValueError(
                f"likelihood: got {type(likelihood).__name__}, which is for neural processes; expected Gaussian, "
                "Bernoulli or Categorical"
            )
        super().__init__(network.sizes[0], network.sizes[-1], likelihood)
        last_layer = choices.last_layer
        if last_layer is None:
            last_layer = "predicted" if isinstance(likelihood, Gaussian) else "pseudo"
        _check_last_layer(last_layer, likelihood)
        if not choices.min_pseudo_noise > 0:
            raise ValueError(f"min_pseudo_noise: got {choices.min_pseudo_noise}, expected a positive number")
        self.network = network
        in_size, out_size = network.sizes[0], network.sizes[-1]
        self.prior = priors.by_name(choices.prior, network, dtype)
        self.prior.view = View(self.columns, self.likelihood.mean)
        self.last_layer = last_layer
        self.inference_sees_hidden = choices.inference_sees_hidden
        self._config = {
            "prior": choices.prior,
            "last_layer": last_layer,
            "min_pseudo_noise": choices.min_pseudo_noise,
        }
        layers = []
        for layer, (d, out) in enumerate(network.weight_shapes):
            is_last = layer == network.num_layers - 1
            if is_last and last_layer == "likelihood":
                continue
            true_outputs = is_last and last_layer == "predicted"
            seen = in_size + out_size + (d - 1 if choices.inference_sees_hidden and layer > 0 else 0)
            encoder = make_encoder(seen, AmortisedLinear.outputs(out, true_outputs))
            layers.append(AmortisedLinear(encoder, out, true_outputs=true_outputs, min_noise=choices.min_pseudo_noise))
        self.layers = nn.ModuleList(layers)
        self.to(dtype)

    # --- what users call -------------------------------------------------------------------------------------------

    def condition(
        self,
        x: ArrayLike | Tensor | Pieces,
        y: ArrayLike | Tensor | None = None,
        *,
        num_samples: int | None = None,
        seed: Seed = 0,
        chunk_size: int | None = None,
        progress: bool = False,
    ) -> WeightPosterior:
        """The posterior over the weights for one data set, as weight samples. Without points it is the prior.

        num_samples: where not given, as many as predictions need: from 32 on, until one more would hardly change them
            (`bnnp.models.enough`), and 1000 at most. Without a Gaussian likelihood, 1000.
        chunk_size: stream the context through every layer in chunks of so many points (paper, Algorithm 2): memory
            depends on the chunk, the posterior and its samples do not. Arrays may then be a `numpy.memmap`; or give, in
            place of `x` and `y`, `bnnp.tasks.from_parquet(...)`, something that can be iterated over again and again
            and yields pairs `(x, y)`, or a function that returns an iterator of such pairs.
        progress: a progress bar, for contexts of millions of points.

        Example: `post = model.condition(x, y, seed=0)`; then `post.predict(x_new).mean`.
        """
        from bnnp.models import enough, streaming  # they run any model, so they cannot come first

        number = as_integer(seed)
        if num_samples is not None:
            check_num_samples(num_samples)
        if chunk_size is not None:
            sampler = streaming.sampler(self, x, y, number, chunk_size, progress)
        elif y is None:
            raise ValueError("y: got nothing, expected the outputs; a context that is read in pieces needs chunk_size")
        else:
            sampler = self._sampler(self.checked_task(x, y), number)  # pyright: ignore[reportArgumentType]
        if num_samples is None:
            return enough.samples(sampler) if self.can_integrate else sampler(range(enough.MOST))
        return sampler(range(num_samples))

    def _sampler(self, task: Task, seed: int) -> Callable[[range], WeightPosterior]:
        """Any samples of the posterior, by their numbers."""
        task = in_canonical_order(task)
        context = self.prepare(TaskBatch.of([task], device=self.device))

        def infer(samples: range) -> InferredWeights:
            draws = Draws(seed, samples, self.dtype, self.device)
            noise = [self.layer_draws(draws, layer, 0, len(task)) for layer in range(self.network.num_layers)]
            return self.infer(context, len(samples), noise, careful=True)

        def posterior(samples: range) -> WeightPosterior:
            with torch.no_grad():
                parts = in_parallel(infer, sample_chunks(samples, self._numbers_per_sample(len(task))))
            return WeightPosterior.joined(self, parts, seed, len(task), context)

        return posterior

    def layer_draws(self, draws: Draws, layer: int, start: int, stop: int) -> UpdateNoise:
        """The draws for a layer's weights and for the points from number `start` up to `stop`."""
        outputs = self.network.weight_shapes[layer][1]
        return draws.update(layer, self.prior.unit_shape(layer), outputs, self.prior.couples_outputs, start, stop)

    def set_prior_learnability(self, share: float) -> Self:
        """Make the prior of the first `round(share |W|)` weights trainable and fix the rest (paper, section 2.5)."""
        self.prior.set_learnability(share)
        return self

    @property
    def weight_prior(self) -> priors.Prior:
        return self.prior

    def summary(self) -> dict[str, object]:
        return {
            "network": " - ".join(str(size) for size in self.network.sizes),
            "activation": self._config["activation"],
            "weights": self.network.num_weights,
            "prior": type(self.prior).__name__.lower(),
            "learnable share of the prior": self.prior.learnability,
        }

    # --- the mathematics -------------------------------------------------------------------------------------------

    def infer(
        self,
        context: TaskBatch,
        num_samples: int,
        random: torch.Generator | Sequence[UpdateNoise],
        *,
        careful: bool = False,
        others: Float[Tensor, "tasks others x"] | None = None,
    ) -> InferredWeights:
        """Sample the posterior layer by layer, each given the samples of those before (paper, eqs. 5-9).

        context: prepared points;  random: a generator, or the normal draws themselves, one record a layer.
        careful: solve in float64 whatever the model's precision, and give the log-density of every sample too.
        others: inputs to run the network at too, for networks whose points do not see each other.

        Cost per task and sample: `O(n d min(n, d) out + min(n, d)^3 out)` a layer; the first layer's matrices are
        shared by all samples.
        """
        drawn = self.sample_layers(
            self.network.num_layers, context, num_samples, random, careful=careful, others=others
        )
        return InferredWeights(drawn.weights, drawn.kl, drawn.features, drawn.log_density)

    def infer_hidden(
        self,
        context: TaskBatch,
        num_samples: int,
        random: torch.Generator,
        others: Float[Tensor, "tasks others x"] | None = None,
        rest: "Rest | None" = None,
    ) -> "InferredHidden":
        """Sample all layers but the last, as `infer` does; what the last layer is conditioned on comes with them."""
        last = self.network.num_layers - 1
        drawn = self.sample_layers(last, context, num_samples, random, others=others, rest=rest)
        points = context.x.shape[1]
        before = drawn.outputs[:, :, :points] if self.inference_sees_hidden else drawn.outputs
        given = Points(*self.evidence(last, context, before, drawn.features[:, :, :points], drawn.known.get(last)))
        kl = reduce(operator.add, drawn.kl) if drawn.kl else context.x.new_zeros(len(context), 1)
        prior = self.prior.layer(last, drawn.whitened)
        others_add = None if rest is None else rest(last, prior, drawn.weights)
        return InferredHidden(drawn.weights, kl, prior, given, drawn.features, others_add)

    def sample_layers(
        self,
        count: int,
        context: TaskBatch,
        num_samples: int,
        random: torch.Generator | Sequence[UpdateNoise],
        *,
        careful: bool = False,
        others: Float[Tensor, "tasks others x"] | None = None,
        rest: "Rest | None" = None,
    ) -> "_Drawn":
        """The first `count` layers, and the features that come to the layer after them (or the network's outputs)."""
        points = context.x.shape[1]
        h = (context.x if others is None else torch.cat([context.x, others], 1)).unsqueeze(1)
        program = self.network.program(h, _beside_samples(context.mask))
        drawn = _Drawn(self._observations_at_once(context), h, next(program))
        for layer in range(count):
            prior = self.prior.layer(layer, drawn.whitened)
            others_add = None if rest is None else rest(layer, prior, drawn.weights)
            phi, before = drawn.features, drawn.outputs
            if others is not None:
                phi, before = phi[:, :, :points], before[:, :, :points] if self.inference_sees_hidden else before
            phi, seen = self.evidence(layer, context, before, phi, drawn.known.get(layer))
            draws = self.random_draws(layer, phi, num_samples, random)
            if careful:
                prior, phi, seen, draws = prior.to(CAREFUL), phi.to(CAREFUL), seen.to(CAREFUL), draws.to(CAREFUL)
            update = self.named_update(layer, condition, prior, phi, seen, draws, others_add)
            if self.prior.couples_layers:
                drawn.whitened.append(update.whitened.to(self.dtype))
            units = update.centred + prior.mean
            if careful:
                drawn.log_density.append(_log_density(prior, update.whitened, units, phi, seen, update))
            drawn.weights.append(self.prior.from_units(layer, units.to(self.dtype)))
            drawn.kl.append(update.kl.sum(-1))
            drawn.outputs = drawn.features @ drawn.weights[-1]
            drawn.features = advance(program, drawn.outputs)
        return drawn

    def infer_and_score(
        self, batch: SplitBatch, num_samples: int, random: torch.Generator
    ) -> tuple[InferredWeights, Tensor, Tensor]:
        """Samples given the contexts, with the log-densities of contexts and targets under them.

        Contexts and targets go through the network together, where their points do not see each other.
        """
        if self.network.mixes_points:
            inferred = self.infer(batch.context, num_samples, random)
            of_target = self.log_likelihood(inferred.weights, batch.target)
            return inferred, self.context_log_likelihood(inferred, batch.context), of_target
        inferred = self.infer(batch.context, num_samples, random, others=batch.target.x)
        sizes = [batch.context.x.shape[1], batch.target.x.shape[1]]
        of_context, of_target = self._log_prob(inferred.outputs, batch.joined()).split(sizes, dim=-1)
        return inferred, of_context, of_target

    def estimate(
        self,
        batch: SplitBatch,
        num_samples: int,
        random: torch.Generator,
        *,
        integrate: bool = True,
        group_size: int | None = None,
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
        self, batch: SplitBatch, num_samples: int, random: torch.Generator, *, integrate: bool = True
    ) -> Sampled | Integrated:
        if not (integrate and self.can_integrate):
            return super().estimate_with_targets(batch, num_samples, random)
        everything, last = batch.joined(), self.network.num_layers - 1
        inferred = self.infer_hidden(everything, num_samples, random)
        given_all = self._log_density(inferred.weights, everything)
        given_context = self._log_density(inferred.weights, batch.context)
        of_target = self.last_features(inferred.weights, batch.target)
        return Integrated(
            given_all.total - given_context.total,
            inferred.prior,
            inferred.given,
            self.observed(given_context.features, batch.context),
            self.observed(of_target, batch.target),
            self.outputs_of_a_unit,
            observed_given=False,
            against=Points(*self.evidence(last, batch.context, given_context.outputs, given_context.features)),
        )

    @property
    def can_integrate(self) -> bool:
        """Whether the last layer's weights have a closed form: under a Gaussian likelihood."""
        return isinstance(self.likelihood, Gaussian)

    @property
    def outputs_of_a_unit(self) -> int:
        """How many outputs share a unit of the last layer's prior."""
        return self.network.sizes[-1] if self.prior.couples_outputs else 1

    def last_features(
        self, hidden: Sequence[Float[Tensor, "tasks samples _d _out"]], batch: TaskBatch
    ) -> Float[Tensor, "tasks samples points d"]:
        """What comes to the last layer at the points of a batch, given the weights of all others."""
        program = self.network.program(batch.x.unsqueeze(1), _beside_samples(batch.mask))
        return features_of_layer(program, hidden)

    def observed(
        self,
        features: Float[Tensor, "tasks samples points d"],
        batch: TaskBatch,
        noise: Float[Tensor, "tasks points y"] | None = None,
    ) -> Points:
        """Points as the last layer sees them, with the likelihood's own noise, or with that which is given."""
        noise = self.noise_at(batch.x) if noise is None else noise
        seen = Observations(batch.y.mT.unsqueeze(1), noise.reciprocal().mT.unsqueeze(1))
        return Points(*self._in_units(seen, features, batch))

    def noise_at(self, x: Float[Tensor, "*batch points x"]) -> Float[Tensor, "*batch points y"]:
        """The likelihood's noise at prepared inputs, where it is Gaussian."""
        assert isinstance(self.likelihood, Gaussian)
        return self.likelihood.noise_at(x)

    def infer_with_targets(
        self, context: TaskBatch, everything: TaskBatch, num_samples: int, random: torch.Generator
    ) -> InferredWeights:
        """Samples of `q(W | D)` with `KL[q(W | D) || q(W | D_c)]`, which is estimated by them, without bias."""
        inferred = self.infer(everything, num_samples, random)
        log_ratio = self.log_density(inferred.weights, everything) - self.log_density(inferred.weights, context)
        return replace(inferred, kl=[log_ratio])

    def log_density(
        self, weights: Sequence[Float[Tensor, "tasks samples _d _out"]], context: TaskBatch
    ) -> Float[Tensor, "tasks samples"]:
        """`log q(W | context)` of given weights, by Bayes' rule in each layer."""
        return self._log_density(weights, context).total

    def _log_density(self, weights: Sequence[Tensor], context: TaskBatch) -> "_Density":
        """The log-density of the first layers, as many as there are weights, and what comes to the layer after them."""
        total = context.x.new_zeros(len(context), 1)
        whitened: list[Tensor] = []
        h = context.x.unsqueeze(1)
        program = self.network.program(h, _beside_samples(context.mask))
        features = next(program)
        for layer, w in enumerate(weights):
            prior = self.prior.layer(layer, whitened)
            phi, seen = self.evidence(layer, context, h, features)
            units = self.prior.to_units(w)
            v = prior.whiten(units)
            zeros = UpdateNoise(torch.zeros_like(v), torch.zeros(*v.shape[:-1], phi.shape[-2], dtype=v.dtype))
            update = self.named_update(layer, condition, prior, phi, seen, zeros)
            total = total + _log_density(prior, v, units, phi, seen, update)
            whitened.append(v)
            h = features @ w
            features = advance(program, h)
        return _Density(total, h, features)

    def log_likelihood(
        self, weights: Sequence[Float[Tensor, "tasks samples _d _out"]], batch: TaskBatch
    ) -> Float[Tensor, "tasks samples points"]:
        """Log-density of every point under every weight sample; 0 where there is no point."""
        return self._log_prob(self.network(weights, batch.x.unsqueeze(1), _beside_samples(batch.mask)), batch)

    def context_log_likelihood(
        self, inferred: InferredWeights, context: TaskBatch
    ) -> Float[Tensor, "tasks samples points"]:
        """`log_likelihood` of the context that the weights were inferred from, without running the network again."""
        return self._log_prob(inferred.outputs, context)

    def _log_prob(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        values = self.likelihood.log_prob(outputs, batch.y.unsqueeze(1))
        return values if batch.is_full else values * batch.mask.unsqueeze(1)

    def evidence(
        self, layer: int, context: TaskBatch, h: Tensor, features: Tensor, known: Observations | None = None
    ) -> tuple[Tensor, Observations]:
        """Features and pseudo-observations of a layer, in the units that the prior keeps independent.

        h: outputs of the layer before, for inference networks that see them.
        known: the pseudo-observations, where they have been computed before.
        """
        return self._in_units(self._observations(layer, context, h) if known is None else known, features, context)

    def _in_units(self, seen: Observations, features: Tensor, context: TaskBatch) -> tuple[Tensor, Observations]:
        if not context.is_full:
            seen = with_missing(seen, context.mask)
        if self.prior.couples_outputs:
            return _block_features(features, seen.y.shape[-2]), _joined(seen)
        return features, seen

    def _observations(self, layer: int, context: TaskBatch, h: Tensor) -> Observations:
        if layer == len(self.layers):
            return Observations(context.y.mT.unsqueeze(1), self.noise_at(context.x).reciprocal().mT.unsqueeze(1))
        inputs = self._points(context)
        if self.inference_sees_hidden and layer > 0:
            inputs = torch.cat([inputs.expand(-1, h.shape[1], -1, -1), h], dim=-1)
        return self.layers[layer](inputs, context.y, context.mask)

    def _observations_at_once(self, context: TaskBatch) -> dict[int, Observations]:
        """Of all layers whose inference networks see each point by itself, and nothing but the point."""
        layers = [layer for layer in self.layers if isinstance(layer, AmortisedLinear)]
        encoders = [layer.encoder for layer in layers if isinstance(layer.encoder, PointEncoder)]
        if self.inference_sees_hidden or not encoders or len(encoders) < len(layers):
            return {}
        outputs = side_by_side(encoders, self._points(context))
        return {i: layer.observations(outputs[i], context.y) for i, layer in enumerate(layers)}

    def _points(self, context: TaskBatch) -> Float[Tensor, "tasks one points features"]:
        """Points as inference networks see them."""
        return torch.cat([context.x, self.likelihood.encode(context.y)], dim=-1).unsqueeze(1)

    def random_draws(
        self, layer: int, phi: Tensor, num_samples: int, random: torch.Generator | Sequence[UpdateNoise]
    ) -> UpdateNoise:
        if not isinstance(random, torch.Generator):
            return random[layer]
        units, size = self.prior.unit_shape(layer)
        weights, points = (
            normal((phi.shape[0], num_samples, n, units), phi, random).mT for n in (size, phi.shape[-2])
        )  # units last in memory, as the update wants them
        return UpdateNoise(weights, points)

    def named_update(self, layer: int, form: Callable[..., Update], *arguments: Any) -> Update:
        """An update whose error names the layer."""
        try:
            return form(*arguments)
        except FactorisationError as error:
            raise FactorisationError(
                f"layer {layer + 1}, task {error.task} of the batch: {error}", error.task
            ) from None

    def _numbers_per_sample(self, points: int) -> int:
        """Size of the largest array that conditioning makes for one weight sample."""
        sizes = []
        for layer in range(self.network.num_layers):
            units, size = self.prior.unit_shape(layer)
            n = points * (self.network.weight_shapes[layer][1] if self.prior.couples_outputs else 1)
            sizes.append(units * size * min(n, size) + units * min(n, size) ** 2)
        if isinstance(self.network, AttentionNetwork):
            sizes.append(self.network.heads * points**2)
        return max(1, *sizes)


def in_canonical_order(task: Task) -> Task:
    """Points sorted by all columns, so that the same seed gives the same samples however the points are ordered."""
    order = torch.arange(len(task))
    for column in torch.cat([task.x, task.y], dim=1).T.flip(0):
        order = order[torch.sort(column[order], stable=True).indices]
    return task.take(order)


def sample_chunks(samples: range, numbers_per_sample: int) -> list[range]:
    """Samples in chunks that keep memory bounded."""
    size = max(1, min(len(samples), SAMPLES_AT_ONCE // numbers_per_sample))
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def _beside_samples(mask: Bool[Tensor, "tasks points"]) -> Bool[Tensor, "tasks one points"]:
    """The mask for arrays with samples."""
    return mask.unsqueeze(1)


def _log_density(
    prior: UnitPrior, v: Tensor, units: Tensor, phi: Tensor, seen: Observations, update: Update
) -> Float[Tensor, "tasks samples"]:
    """Log-density of a layer's posterior at the weights `units = mu + L v`: prior times likelihood over evidence."""
    misfit = ((seen.y - units @ phi.mT) * seen.inverse_noise).square().sum(-1)
    return (log_prior(v, prior) - 0.5 * misfit - update.log_evidence).sum(-1)


def _check_last_layer(last_layer: str, likelihood: Likelihood) -> None:
    choices = ("predicted", "likelihood", "pseudo") if isinstance(likelihood, Gaussian) else ("pseudo",)
    if last_layer not in choices:
        raise ValueError(
            f"last_layer: got {last_layer!r}, expected one of {', '.join(choices)} for {type(likelihood).__name__}"
        )


def _block_features(phi: Float[Tensor, "tasks samples points d"], outputs: int) -> Tensor:
    """`I (x) phi`: features of all outputs' weights in one vector (the 'vec trick' of the paper's App. B)."""
    eye = torch.eye(outputs, dtype=phi.dtype, device=phi.device)
    blocks = torch.einsum("ij,tsnd->tsinjd", eye, phi)
    tasks, samples, n, d = phi.shape
    return blocks.reshape(tasks, samples, outputs * n, outputs * d)


def _joined(seen: Observations) -> Observations:
    """All outputs' observations as those of one unit, in the order of `_block_features`."""
    return Observations(seen.y.flatten(-2).unsqueeze(-2), seen.inverse_noise.flatten(-2).unsqueeze(-2))
