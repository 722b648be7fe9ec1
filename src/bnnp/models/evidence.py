"""What the layers of a network see of a data set: features, and pseudo-observations from inference networks."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from bnnp import priors
from bnnp._core.checks import check_dtype
from bnnp._core.random import normal
from bnnp._core.shapes import Float, Tensor
from bnnp.inference_nets.base import Encoders
from bnnp.inference_nets.choices import to_config
from bnnp.inference_nets.pointwise import PointEncoder, side_by_side
from bnnp.inference_nets.pseudo import LOG_NOISE_OF_SILENCE, AmortisedLinear
from bnnp.likelihoods.base import Likelihood, checked_likelihood
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.base import MetaLearner
from bnnp.models.draws import Draws
from bnnp.models.estimates import Points
from bnnp.models.layerwise import Turn, arrive
from bnnp.networks.functions import View
from bnnp.networks.perceptron import Network
from bnnp.networks.transformer import AttentionNetwork
from bnnp.numerics.gaussian import Observations, UpdateDraws, with_missing
from bnnp.tasks.task import TaskBatch


class WeightModel(MetaLearner):
    """A network with a prior over its weights, a likelihood, and an inference network for every layer.

    Args:
        network: The network, a pure function of its weights.
        prior: The name of a prior, or a prior over the weights of this network, of which the model takes a copy.
        likelihood: The likelihood of an observation; `Gaussian()` if None.
        inference: The choice of inference networks.
        last_layer: What the last layer is conditioned on, as for `bnnp.BNNP`.
        dtype: Precision of the model.
        generator: The generator of the inference networks' starting weights.

    Attributes:
        network: The network, a pure function of its weights.
        prior: The prior over its weights.
        inference: The choice of inference networks.
        last_layer: What the last layer is conditioned on: "predicted", "likelihood" or "pseudo".
        layers: The inference networks.
        consistent: Whether a prediction at one input does not depend on the other inputs of the same call.
    """

    consistent = True

    def __init__(
        self,
        network: Network | AttentionNetwork,
        prior: str | priors.Prior,
        likelihood: Likelihood | None,
        inference: Encoders,
        last_layer: str | None,
        dtype: torch.dtype,
        generator: torch.Generator,
    ):
        likelihood = Gaussian() if likelihood is None else checked_likelihood(likelihood)
        if likelihood.outputs_per_target != 1:
            raise ValueError(
                f"likelihood: got {type(likelihood).__name__}, which is for neural processes; expected Gaussian, "
                "Bernoulli or Categorical"
            )
        super().__init__(network.sizes[0], network.sizes[-1], likelihood)
        self.last_layer = _checked_last_layer(last_layer, likelihood)
        self.inference = inference
        self.network = network
        self.prior = _own_prior(prior, network, check_dtype(dtype))
        self.prior.view = View(self.columns, self.likelihood.mean)
        self.layers = nn.ModuleList(self._inference_networks(network, generator))
        self.to(dtype)

    def _inference_networks(
        self, network: Network | AttentionNetwork, generator: torch.Generator
    ) -> list[AmortisedLinear]:
        """One inference network per layer; none for a last layer that has the likelihood's own noise."""
        layers, last = [], network.num_layers - 1
        points = network.sizes[0] + network.sizes[-1]
        for layer, (d, out) in enumerate(network.weight_shapes):
            if layer == last and self.last_layer == "likelihood":
                continue
            true_outputs = layer == last and self.last_layer == "predicted"
            seen = points + (d - 1 if self.inference.sees_hidden and layer > 0 else 0)
            encoder = self.inference.encoder(
                seen, AmortisedLinear.outputs(out, true_outputs), network.activation, generator
            )
            noise = self.inference.min_pseudo_noise
            layers.append(AmortisedLinear(encoder, out, true_outputs=true_outputs, min_noise=noise))
        return layers

    @property
    def weight_prior(self) -> priors.Prior:
        return self.prior

    def config(self) -> dict[str, Any]:
        names = [name for name, kind in priors.PRIORS.items() if type(self.prior) is kind]
        return {
            **super().config(),
            "prior": names[0] if names else self.prior,
            "inference": to_config(self.inference),
            "last_layer": self.last_layer,
        }

    def silence_inference(self) -> None:
        """Let the inference networks of the hidden layers say next to nothing, until they learn otherwise."""
        for layer in self.layers[: self.network.num_layers - 1]:
            if isinstance(layer, AmortisedLinear):
                layer.start_noise(LOG_NOISE_OF_SILENCE)

    # --- what a layer sees -----------------------------------------------------------------------------------------

    def evidence(self, turn: Turn, context: TaskBatch, known: Observations | None = None) -> Points:
        """Features and pseudo-observations of a layer, in the units that the prior keeps independent.

        Args:
            turn: The layer, with the features of the points of the context.
            context: Prepared points.
            known: The pseudo-observations, where they have been computed before.
        """
        seen = self.pseudo_observations(turn.index, context, turn.outputs) if known is None else known
        return self._in_units(seen, turn.features, context)

    def pseudo_observations(
        self, layer: int, context: TaskBatch, before: Float[Tensor, "tasks _samples points _h"]
    ) -> Observations:
        """The pseudo-observations of one layer.

        Args:
            layer: Number of the layer.
            context: Prepared points.
            before: The outputs of the layer before, for inference networks that see them.
        """
        if layer == len(self.layers):
            return _with_noise(context, self.noise_at(context.x))
        inputs = self._points(context)
        if self.inference.sees_hidden and layer > 0:
            inputs = torch.cat([inputs.expand(-1, before.shape[1], -1, -1), before], dim=-1)
        return self.layers[layer](inputs, context.y, context.mask)

    def pseudo_observations_at_once(self, context: TaskBatch) -> dict[int, Observations]:
        """The pseudo-observations of all layers at once, by layer.

        Empty unless every inference network sees each point by itself, and nothing but the point.
        """
        layers = [layer for layer in self.layers if isinstance(layer, AmortisedLinear)]
        encoders = [layer.encoder for layer in layers if isinstance(layer.encoder, PointEncoder)]
        if self.inference.sees_hidden or not encoders or len(encoders) < len(layers):
            return {}
        outputs = side_by_side(encoders, self._points(context))
        return {i: layer.observations(outputs[i], context.y) for i, layer in enumerate(layers)}

    def _points(self, context: TaskBatch) -> Float[Tensor, "tasks one points features"]:
        """The points as inference networks see them."""
        return torch.cat([context.x, self.likelihood.encode(context.y)], dim=-1).unsqueeze(1)

    def _in_units(self, seen: Observations, features: Tensor, context: TaskBatch) -> Points:
        if not context.is_full:
            seen = with_missing(seen, context.mask)
        if self.prior.couples_outputs:
            return Points(_block_features(features, seen.y.shape[-2]), _joined(seen))
        return Points(features, seen)

    # --- the last layer --------------------------------------------------------------------------------------------

    @property
    def can_integrate(self) -> bool:
        """Whether the last layer's weights have a closed form: under a Gaussian likelihood."""
        return isinstance(self.likelihood, Gaussian)

    @property
    def outputs_of_a_unit(self) -> int:
        """How many outputs share a unit of the last layer's prior."""
        return self.network.sizes[-1] if self.prior.couples_outputs else 1

    def last_features(
        self, hidden: Sequence[Float[Tensor, "_tasks _samples _d _out"]], batch: TaskBatch
    ) -> Float[Tensor, "tasks samples points d"]:
        """The features that enter the last layer at the points of a batch, given the weights of all other layers."""
        return arrive(self.network, self.prior, batch.x, hidden, batch.mask).features

    def observed(
        self,
        features: Float[Tensor, "tasks samples points d"],
        batch: TaskBatch,
        noise: Float[Tensor, "tasks points y"] | None = None,
    ) -> Points:
        """Points as the last layer sees them.

        Args:
            features: The features that enter the last layer.
            batch: Prepared points.
            noise: Standard deviation of their noise; the likelihood's own if None.
        """
        noise = self.noise_at(batch.x) if noise is None else noise
        return self._in_units(_with_noise(batch, noise), features, batch)

    def noise_at(self, x: Float[Tensor, "*batch points x"]) -> Float[Tensor, "*batch points y"]:
        """The likelihood's noise at prepared inputs, where it is Gaussian."""
        assert isinstance(self.likelihood, Gaussian)
        return self.likelihood.noise_at(x)

    # --- the draws that samples are made of ------------------------------------------------------------------------

    def layer_draws(self, draws: Draws, layer: int, start: int, stop: int) -> UpdateDraws:
        """The draws for a layer's weights and for the points from number `start` up to `stop`."""
        outputs = self.network.weight_shapes[layer][1]
        return draws.update(layer, self.prior.unit_shape(layer), outputs, self.prior.couples_outputs, start, stop)

    def random_draws(
        self, layer: int, phi: Tensor, num_samples: int, random: torch.Generator | Sequence[UpdateDraws]
    ) -> UpdateDraws:
        """The draws for one layer.

        Args:
            layer: Number of the layer.
            phi: Features of the points.
            num_samples: Weight samples per task.
            random: A generator, or the draws themselves, one record per layer.
        """
        if not isinstance(random, torch.Generator):
            return random[layer]
        units, size = self.prior.unit_shape(layer)
        weights, points = (
            normal((phi.shape[0], num_samples, n, units), phi, random).mT for n in (size, phi.shape[-2])
        )  # units last in memory, as the update wants them
        return UpdateDraws(weights, points)


def _own_prior(prior: str | priors.Prior, network: Network | AttentionNetwork, dtype: torch.dtype) -> priors.Prior:
    """The prior that a name stands for, or a copy of the one given."""
    if not isinstance(prior, priors.Prior):
        return priors.by_name(prior, network, dtype)
    prior.check_fits(network)
    own = copy.deepcopy(prior).to(dtype)
    object.__setattr__(own, "network", network)  # whose own parameters, if any, are the model's
    return own


def _checked_last_layer(last_layer: str | None, likelihood: Likelihood) -> str:
    choices = ("predicted", "likelihood", "pseudo") if isinstance(likelihood, Gaussian) else ("pseudo",)
    if last_layer is None:
        return choices[0]
    if last_layer not in choices:
        raise ValueError(
            f"last_layer: got {last_layer!r}, expected one of {', '.join(choices)} for {type(likelihood).__name__}"
        )
    return last_layer


def _with_noise(batch: TaskBatch, noise: Float[Tensor, "tasks points y"]) -> Observations:
    """The observed outputs, with the given noise."""
    return Observations(batch.y.mT.unsqueeze(1), noise.reciprocal().mT.unsqueeze(1))


def _block_features(phi: Float[Tensor, "tasks samples points d"], outputs: int) -> Tensor:
    """`I (x) phi`: features of all outputs' weights in one vector (the 'vec trick' of the paper's App. B)."""
    eye = torch.eye(outputs, dtype=phi.dtype, device=phi.device)
    blocks = torch.einsum("ij,tsnd->tsinjd", eye, phi)
    tasks, samples, n, d = phi.shape
    return blocks.reshape(tasks, samples, outputs * n, outputs * d)


def _joined(seen: Observations) -> Observations:
    """All outputs' observations as those of one unit, in the order of `_block_features`."""
    return Observations(seen.y.flatten(-2).unsqueeze(-2), seen.inverse_noise.flatten(-2).unsqueeze(-2))
