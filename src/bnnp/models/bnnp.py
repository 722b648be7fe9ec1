"""The Bayesian neural network process (paper, section 2)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from numpy.typing import ArrayLike
from torch import nn

from bnnp import likelihoods, priors
from bnnp._random import Seed, as_generator, as_integer, child, normal
from bnnp._shapes import Float, Tensor
from bnnp._workers import in_parallel
from bnnp.gaussian import Observations, UnitPrior, Update, UpdateNoise, condition, with_missing
from bnnp.inverse import FactorisationError
from bnnp.layers.linear import AmortisedLinear
from bnnp.likelihoods import Gaussian, Likelihood
from bnnp.models.posterior import WeightPosterior
from bnnp.network import Network
from bnnp.tasks.standardise import Standardiser
from bnnp.tasks.task import Task, TaskBatch, as_columns

MIN_PSEUDO_NOISE = 1e-3
SAMPLES_AT_ONCE = 2**24
"""Numbers in the largest array of one chunk of weight samples while conditioning: 64 MB in float32."""


@dataclass(frozen=True)
class InferredWeights:
    """Weight samples of every layer for a batch of tasks, and the KL of each layer's posterior to its prior.

    outputs: of the network at the context's inputs, which inference has computed anyway.
    """

    weights: list[Float[Tensor, "tasks samples _d _out"]]
    kl: list[Float[Tensor, "tasks _kl_samples"]]
    outputs: Float[Tensor, "tasks samples points out"]

    def total_kl(self) -> Float[Tensor, "tasks"]:
        """The KL of the whole posterior: layerwise terms summed, averaged over samples of the earlier layers."""
        return torch.stack([kl.mean(1) for kl in self.kl]).sum(0)


class BNNP(nn.Module):
    """A neural network with a learnable prior over its weights and an amortised posterior for each data set.

    in_size, out_size: input columns and network outputs (for `Categorical`, the number of classes).
    hidden: units of the hidden layers;  activation: a name or a function of a tensor.
    prior: "factorised", "unitwise", "layerwise" or "networkwise". Starts as the standard prior: mean 0, variance
        1/(d_in + 1).
    likelihood: `bnnp.Gaussian(...)`, `bnnp.Bernoulli()` or `bnnp.Categorical(k)`.
    inference_hidden: units of the inference networks; those of the network where not given.
    inference_sees_hidden: feed the previous layer's activations to the inference networks too (paper, footnote 2).
    last_layer: "predicted" conditions the last layer on the true outputs with a predicted noise, "likelihood" with the
        likelihood's own noise, "pseudo" on pseudo-observations like the other layers. The default is "predicted" for a
        Gaussian likelihood and "pseudo" for all others.
    min_pseudo_noise: lower bound of every predicted noise.

    Example:
        model = bnnp.BNNP(in_size=1, out_size=1, hidden=(64, 64), likelihood=bnnp.Gaussian(0.05), seed=0)
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden: Sequence[int] = (64, 64),
        activation: str | Callable[[Tensor], Tensor] = "relu",
        prior: str = "unitwise",
        likelihood: Likelihood | None = None,
        *,
        inference_hidden: Sequence[int] | None = None,
        inference_sees_hidden: bool = False,
        last_layer: str | None = None,
        min_pseudo_noise: float = MIN_PSEUDO_NOISE,
        dtype: torch.dtype = torch.float32,
        seed: Seed = 0,
    ):
        super().__init__()
        likelihood = likelihood if likelihood is not None else Gaussian()
        if last_layer is None:
            last_layer = "predicted" if isinstance(likelihood, Gaussian) else "pseudo"
        _check_last_layer(last_layer, likelihood)
        if not min_pseudo_noise > 0:
            raise ValueError(f"min_pseudo_noise: got {min_pseudo_noise}, expected a positive number")
        generator = as_generator(seed)
        self.network = Network((in_size, *hidden, out_size), activation)
        self.likelihood = likelihood.for_outputs(out_size)
        self.prior = priors.by_name(prior, self.network, dtype)
        self.prior.link = self.likelihood.mean
        self.last_layer = last_layer
        self.inference_sees_hidden = inference_sees_hidden
        self.columns: dict[str, list[str]] = {
            "x": [f"x{i}" for i in range(in_size)],
            "y": [f"y{i}" for i in range(self.y_size)],
        }
        inference_hidden = tuple(hidden if inference_hidden is None else inference_hidden)
        self._config = {
            "in_size": in_size,
            "out_size": out_size,
            "hidden": list(hidden),
            "activation": activation,
            "prior": prior,
            "inference_hidden": list(inference_hidden),
            "inference_sees_hidden": inference_sees_hidden,
            "last_layer": last_layer,
            "min_pseudo_noise": min_pseudo_noise,
        }
        self.layers = nn.ModuleList(
            AmortisedLinear(
                in_size + out_size + (size_in if inference_sees_hidden and layer > 0 else 0),
                size_out,
                inference_hidden,
                activation,
                true_outputs=layer == self.network.num_layers - 1 and last_layer == "predicted",
                min_noise=min_pseudo_noise,
                generator=generator,
            )
            for layer, (size_in, size_out) in enumerate(zip(self.network.sizes, self.network.sizes[1:], strict=False))
            if not (layer == self.network.num_layers - 1 and last_layer == "likelihood")
        )
        self.to(dtype)

    # --- what users call -------------------------------------------------------------------------------------------

    def condition(
        self, x: ArrayLike | Tensor, y: ArrayLike | Tensor, *, num_samples: int = 1000, seed: Seed = 0
    ) -> WeightPosterior:
        """The posterior over the weights for one data set, as weight samples. Without points it is the prior.

        Example: `post = model.condition(x, y, num_samples=1000, seed=0)`; then `post.predict(x_new).mean`.
        """
        if num_samples < 1:
            raise ValueError(f"num_samples: got {num_samples}, expected a positive number")
        task = self.checked_task(x, y)
        context = self.prepare(TaskBatch.of([in_canonical_order(task)], device=self.device))
        number = as_integer(seed)
        chunks = sample_chunks(num_samples, self._numbers_per_sample(len(task)))
        with torch.no_grad():
            parts = in_parallel(
                lambda chunk: self.infer(context, chunk[1], child(number, chunk[0])), list(enumerate(chunks))
            )
            weights = [torch.cat(layer, dim=1)[0] for layer in zip(*(part.weights for part in parts), strict=True)]
            kl = [
                torch.cat([kl.expand(1, part.weights[0].shape[1]) for kl, part in zip(layer, parts, strict=True)], 1)[0]
                for layer in zip(*(part.kl for part in parts), strict=True)
            ]
        return WeightPosterior(self, context, weights, kl)

    def save(self, path: str | Path) -> Path:
        """Write the model to one file; `bnnp.load(path)` gives it back."""
        from bnnp.models import saving  # saving knows every model, so it cannot come first

        return saving.save(self, path)

    def set_prior_learnability(self, share: float) -> Self:
        """Make the prior of the first `round(share |W|)` weights trainable and fix the rest (paper, section 2.5)."""
        self.prior.set_learnability(share)
        return self

    @property
    def standardiser(self) -> Standardiser:
        return self.prior.standardiser

    @property
    def dtype(self) -> torch.dtype:
        return self.standardiser.x_shift.dtype

    @property
    def device(self) -> torch.device:
        return self.standardiser.x_shift.device

    @property
    def y_size(self) -> int:
        """Number of observed columns."""
        return self.likelihood.y_size(self.network.sizes[-1])

    def checked_task(self, x: ArrayLike | Tensor, y: ArrayLike | Tensor) -> Task:
        """A user's data as a task that fits this model."""
        inputs, outputs = as_columns(x, "x", self.network.sizes[0]), as_columns(y, "y", self.y_size)
        if len(inputs) != len(outputs):
            raise ValueError(f"x and y: got {len(inputs)} and {len(outputs)} points, expected as many of each")
        self.likelihood.check(outputs)
        return Task(inputs, outputs)

    # --- the mathematics -------------------------------------------------------------------------------------------

    def prepare(self, batch: TaskBatch) -> TaskBatch:
        """The batch in the model's own units and precision; the units are changed in the batch's precision, float64."""
        y = self.standardiser.y(batch.y) if self.likelihood.real_valued else batch.y
        return TaskBatch(self.standardiser.x(batch.x).to(self.dtype), y.to(self.dtype), batch.mask)

    def infer(
        self, context: TaskBatch, num_samples: int, random: torch.Generator | Sequence[UpdateNoise]
    ) -> InferredWeights:
        """Sample the posterior layer by layer, each given the samples of those before (paper, eqs. 5-9).

        context: prepared points;  random: a generator, or the normal draws themselves, one record a layer.

        Cost per task and sample: `O(n d min(n, d) out + min(n, d)^3 out)` a layer; the first layer's matrices are
        shared by all samples.
        """
        weights, kls = [], []
        whitened: list[Tensor] = []
        h = context.x.unsqueeze(1)
        for layer in range(self.network.num_layers):
            prior = self.prior.layer(layer, whitened)
            features = self.network.features(layer, h)
            phi, seen = self._evidence(layer, context, h, features)
            draws = self._draws(layer, phi, num_samples, random)
            update = self._update(layer, prior, phi, seen, draws)
            if self.prior.couples_layers:
                whitened.append(update.whitened)
            weights.append(self.prior.from_units(layer, prior.mean + update.centred))
            kls.append(update.kl.sum(-1))
            h = features @ weights[-1]
        return InferredWeights(weights, kls, h)

    def log_density(
        self, weights: Sequence[Float[Tensor, "tasks samples _d _out"]], context: TaskBatch
    ) -> Float[Tensor, "tasks samples"]:
        """`log q(W | context)` of given weights, by Bayes' rule in each layer."""
        total = torch.zeros((), dtype=self.dtype)
        whitened: list[Tensor] = []
        h = context.x.unsqueeze(1)
        for layer, w in enumerate(weights):
            prior = self.prior.layer(layer, whitened)
            features = self.network.features(layer, h)
            phi, seen = self._evidence(layer, context, h, features)
            units = self.prior.to_units(w)
            v = prior.whiten(units)
            zeros = UpdateNoise(torch.zeros_like(v), torch.zeros(*v.shape[:-1], phi.shape[-2], dtype=v.dtype))
            update = self._update(layer, prior, phi, seen, zeros)
            misfit = ((seen.y - units @ phi.mT) * seen.inverse_noise).square().sum((-1, -2))
            log_prior = priors.base.standard_normal_log_prob(v).sum(-1) - prior.log_determinant()
            total = total + log_prior - 0.5 * misfit - update.log_evidence.sum(-1)
            whitened.append(v)
            h = features @ w
        return total

    def log_likelihood(
        self, weights: Sequence[Float[Tensor, "tasks samples _d _out"]], batch: TaskBatch
    ) -> Float[Tensor, "tasks samples points"]:
        """Log-density of every point under every weight sample; 0 where there is no point."""
        return self._log_prob(self.network(weights, batch.x.unsqueeze(1)), batch)

    def context_log_likelihood(
        self, inferred: InferredWeights, context: TaskBatch
    ) -> Float[Tensor, "tasks samples points"]:
        """`log_likelihood` of the context that the weights were inferred from, without running the network again."""
        return self._log_prob(inferred.outputs, context)

    def _log_prob(self, outputs: Tensor, batch: TaskBatch) -> Tensor:
        return self.likelihood.log_prob(outputs, batch.y.unsqueeze(1)) * batch.mask.unsqueeze(1)

    def _evidence(self, layer: int, context: TaskBatch, h: Tensor, features: Tensor) -> tuple[Tensor, Observations]:
        """Features and pseudo-observations of a layer, in the units that the prior keeps independent."""
        seen = with_missing(self._observations(layer, context, h), context.mask)
        if self.prior.couples_outputs:
            return _block_features(features, seen.y.shape[-2]), _joined(seen)
        return features, seen

    def _observations(self, layer: int, context: TaskBatch, h: Tensor) -> Observations:
        if layer == len(self.layers):
            assert isinstance(self.likelihood, Gaussian)
            y = context.y.mT.unsqueeze(1)
            return Observations(y, (1 / self.likelihood.noise)[:, None].expand(y.shape))
        inputs = torch.cat([context.x, self.likelihood.encode(context.y)], dim=-1).unsqueeze(1)
        if self.inference_sees_hidden and layer > 0:
            inputs = torch.cat([inputs.expand(-1, h.shape[1], -1, -1), h], dim=-1)
        return self.layers[layer](inputs, context.y)

    def _draws(
        self, layer: int, phi: Tensor, num_samples: int, random: torch.Generator | Sequence[UpdateNoise]
    ) -> UpdateNoise:
        if not isinstance(random, torch.Generator):
            return random[layer]
        units, size = self.prior.unit_shape(layer)
        shape = (phi.shape[0], num_samples, units)
        return UpdateNoise(normal((*shape, size), phi, random), normal((*shape, phi.shape[-2]), phi, random))

    def _update(self, layer: int, prior: UnitPrior, phi: Tensor, seen: Observations, draws: UpdateNoise) -> Update:
        try:
            return condition(prior, phi, seen, draws)
        except FactorisationError as error:
            raise FactorisationError(
                f"layer {layer + 1}, task {error.task} of the batch: {error}", error.task
            ) from None

    def _numbers_per_sample(self, points: int) -> int:
        """Size of the largest array that conditioning makes for one weight sample."""
        sizes = []
        for layer in range(self.network.num_layers):
            units, size = self.prior.unit_shape(layer)
            n = points * (self.network.sizes[layer + 1] if self.prior.couples_outputs else 1)
            sizes.append(units * size * min(n, size) + units * min(n, size) ** 2)
        return max(1, *sizes)

    def config(self) -> dict:
        """Everything but the parameters, as plain values; the constructor takes it back."""
        return {**self._config, "likelihood": self.likelihood.config()}


def from_config(config: dict, dtype: torch.dtype) -> BNNP:
    arguments = dict(config)
    likelihood = likelihoods.from_config(arguments.pop("likelihood"))
    return BNNP(**arguments, likelihood=likelihood, dtype=dtype)


def in_canonical_order(task: Task) -> Task:
    """Points sorted by all columns, so that the same seed gives the same samples however the points are ordered."""
    order = torch.arange(len(task))
    for column in torch.cat([task.x, task.y], dim=1).T.flip(0):
        order = order[torch.sort(column[order], stable=True).indices]
    return task.take(order)


def sample_chunks(num_samples: int, numbers_per_sample: int) -> list[int]:
    """Sizes of chunks of samples that keep memory bounded."""
    size = max(1, min(num_samples, SAMPLES_AT_ONCE // numbers_per_sample))
    count = math.ceil(num_samples / size)
    return [size] * (count - 1) + [num_samples - size * (count - 1)]


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
