"""Amortised inference over the weights of a network, layer by layer (paper, section 2.2)."""

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Protocol, Self

import torch
from numpy.typing import ArrayLike
from torch import nn

from bnnp import priors
from bnnp._random import Seed, as_integer, normal
from bnnp._shapes import Bool, Float, Tensor
from bnnp._workers import in_parallel
from bnnp.gaussian import CAREFUL, Observations, UnitPrior, Update, UpdateNoise, condition, log_prior, with_missing
from bnnp.inverse import FactorisationError
from bnnp.layers import AmortisedLinear, AttentionNetwork, PointEncoder, SetEncoder, side_by_side
from bnnp.likelihoods import Gaussian, Likelihood
from bnnp.models.base import MetaLearner, check_num_samples
from bnnp.models.draws import Draws
from bnnp.models.posterior import WeightPosterior
from bnnp.network import AnyNetwork, run
from bnnp.tasks.chunks import Pieces
from bnnp.tasks.standardise import Standardiser
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
        self.prior.link = self.likelihood.mean
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
        num_samples: int = 1000,
        seed: Seed = 0,
        chunk_size: int | None = None,
        progress: bool = False,
    ) -> WeightPosterior:
        """The posterior over the weights for one data set, as weight samples. Without points it is the prior.

        chunk_size: stream the context through every layer in chunks of so many points (paper, Algorithm 2): memory
            depends on the chunk, the posterior and its samples do not. Arrays may then be a `numpy.memmap`; or give, in
            place of `x` and `y`, `bnnp.tasks.from_parquet(...)`, something that can be iterated over again and again
            and yields pairs `(x, y)`, or a function that returns an iterator of such pairs.
        progress: a progress bar, for contexts of millions of points.

        Example: `post = model.condition(x, y, num_samples=1000, seed=0)`; then `post.predict(x_new).mean`.
        """
        check_num_samples(num_samples)
        number = as_integer(seed)
        if chunk_size is not None:
            from bnnp.models import streaming  # it runs any model, so it cannot come first

            return streaming.condition(self, x, y, num_samples, number, chunk_size, progress)
        if y is None:
            raise ValueError("y: got nothing, expected the outputs; a context that is read in pieces needs chunk_size")
        task = in_canonical_order(self.checked_task(x, y))  # pyright: ignore[reportArgumentType]
        context = self.prepare(TaskBatch.of([task], device=self.device))
        chunks = sample_chunks(num_samples, self._numbers_per_sample(len(task)))

        def infer(samples: range) -> InferredWeights:
            draws = Draws(number, samples, self.dtype, self.device)
            noise = [self.layer_draws(draws, layer, 0, len(task)) for layer in range(self.network.num_layers)]
            return self.infer(context, len(samples), noise, careful=True)

        with torch.no_grad():
            parts = in_parallel(infer, chunks)
        return WeightPosterior.joined(self, parts, number, len(task), context)

    def layer_draws(self, draws: Draws, layer: int, start: int, stop: int) -> UpdateNoise:
        """The draws for a layer's weights and for the points from number `start` up to `stop`."""
        outputs = self.network.weight_shapes[layer][1]
        return draws.update(layer, self.prior.unit_shape(layer), outputs, self.prior.couples_outputs, start, stop)

    def set_prior_learnability(self, share: float) -> Self:
        """Make the prior of the first `round(share |W|)` weights trainable and fix the rest (paper, section 2.5)."""
        self.prior.set_learnability(share)
        return self

    @property
    def standardiser(self) -> Standardiser:
        return self.prior.standardiser

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
        weights, kls, log_densities = [], [], []
        whitened: list[Tensor] = []
        points = context.x.shape[1]
        known = self._observations_at_once(context)
        h = (context.x if others is None else torch.cat([context.x, others], 1)).unsqueeze(1)

        def outputs(layer: int, features: Tensor) -> Tensor:
            nonlocal h
            prior = self.prior.layer(layer, whitened)
            phi, before = features, h
            if others is not None:
                phi, before = phi[:, :, :points], before[:, :, :points] if self.inference_sees_hidden else before
            phi, seen = self.evidence(layer, context, before, phi, known.get(layer))
            draws = self.random_draws(layer, phi, num_samples, random)
            if careful:
                prior, phi, seen, draws = prior.to(CAREFUL), phi.to(CAREFUL), seen.to(CAREFUL), draws.to(CAREFUL)
            update = self.named_update(layer, condition, prior, phi, seen, draws)
            if self.prior.couples_layers:
                whitened.append(update.whitened.to(self.dtype))
            units = update.centred + prior.mean
            if careful:
                log_densities.append(_log_density(prior, update.whitened, units, phi, seen, update))
            weights.append(self.prior.from_units(layer, units.to(self.dtype)))
            kls.append(update.kl.sum(-1))
            h = features @ weights[-1]
            return h

        result = run(self.network.program(h, _beside_samples(context.mask)), outputs)
        return InferredWeights(weights, kls, result, log_densities)

    def infer_and_score(
        self, batch: SplitBatch, num_samples: int, random: torch.Generator
    ) -> tuple[InferredWeights, Tensor, Tensor]:
        """Contexts and targets go through the network together, where their points do not see each other."""
        if self.network.mixes_points:
            return super().infer_and_score(batch, num_samples, random)
        inferred = self.infer(batch.context, num_samples, random, others=batch.target.x)
        sizes = [batch.context.x.shape[1], batch.target.x.shape[1]]
        of_context, of_target = self._log_prob(inferred.outputs, batch.joined()).split(sizes, dim=-1)
        return inferred, of_context, of_target

    def infer_with_targets(
        self, context: TaskBatch, everything: TaskBatch, num_samples: int, random: torch.Generator
    ) -> InferredWeights:
        """Samples given all points of the tasks, with their KL to the posterior given the contexts alone."""
        return infer_with_targets(self, context, everything, num_samples, random)

    def log_density(
        self, weights: Sequence[Float[Tensor, "tasks samples _d _out"]], context: TaskBatch
    ) -> Float[Tensor, "tasks samples"]:
        """`log q(W | context)` of given weights, by Bayes' rule in each layer."""
        terms: list[Tensor] = []
        whitened: list[Tensor] = []
        h = context.x.unsqueeze(1)

        def outputs(layer: int, features: Tensor) -> Tensor:
            nonlocal h
            prior = self.prior.layer(layer, whitened)
            phi, seen = self.evidence(layer, context, h, features)
            units = self.prior.to_units(weights[layer])
            v = prior.whiten(units)
            zeros = UpdateNoise(torch.zeros_like(v), torch.zeros(*v.shape[:-1], phi.shape[-2], dtype=v.dtype))
            update = self.named_update(layer, condition, prior, phi, seen, zeros)
            terms.append(_log_density(prior, v, units, phi, seen, update))
            whitened.append(v)
            h = features @ weights[layer]
            return h

        run(self.network.program(h, _beside_samples(context.mask)), outputs)
        return torch.stack(torch.broadcast_tensors(*terms)).sum(0)

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
        seen = self._observations(layer, context, h) if known is None else known
        if not context.is_full:
            seen = with_missing(seen, context.mask)
        if self.prior.couples_outputs:
            return _block_features(features, seen.y.shape[-2]), _joined(seen)
        return features, seen

    def _observations(self, layer: int, context: TaskBatch, h: Tensor) -> Observations:
        if layer == len(self.layers):
            assert isinstance(self.likelihood, Gaussian)
            y = context.y.mT.unsqueeze(1)
            return Observations(y, (1 / self.likelihood.noise)[:, None].expand(y.shape))
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


class _Densities(Protocol):
    """A model whose posterior has a density: an `AmortisedModel`, in chunks or not."""

    def infer(self, context: TaskBatch, num_samples: int, random: torch.Generator) -> InferredWeights: ...

    def log_density(self, weights: Sequence[Tensor], context: TaskBatch) -> Tensor: ...


def infer_with_targets(
    model: _Densities, context: TaskBatch, everything: TaskBatch, num_samples: int, random: torch.Generator
) -> InferredWeights:
    """Samples of `q(W | D)` with `KL[q(W | D) || q(W | D_c)]`.

    The KL between the two posteriors has no closed form and is estimated by the samples, without bias.
    """
    inferred = model.infer(everything, num_samples, random)
    log_ratio = model.log_density(inferred.weights, everything) - model.log_density(inferred.weights, context)
    return replace(inferred, kl=[log_ratio])


def in_canonical_order(task: Task) -> Task:
    """Points sorted by all columns, so that the same seed gives the same samples however the points are ordered."""
    order = torch.arange(len(task))
    for column in torch.cat([task.x, task.y], dim=1).T.flip(0):
        order = order[torch.sort(column[order], stable=True).indices]
    return task.take(order)


def sample_chunks(num_samples: int, numbers_per_sample: int) -> list[range]:
    """Samples in chunks that keep memory bounded."""
    size = max(1, min(num_samples, SAMPLES_AT_ONCE // numbers_per_sample))
    return [range(start, min(start + size, num_samples)) for start in range(0, num_samples, size)]


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
