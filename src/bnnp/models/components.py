"""The posterior's predictions in closed form: one Gaussian over functions per sample of the hidden layers."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.models.estimates import Points
from bnnp.models.evidence import WeightModel
from bnnp.models.layerwise import Turn
from bnnp.numerics.densities import log_density_of_groups, log_density_of_sums, sums_of_targets
from bnnp.numerics.gaussian import CAREFUL, NaturalParameters, Observations
from bnnp.numerics.last_layer import InWeightSpace, LastLayer, check_accurate, condition_last_layer
from bnnp.prediction.mixture import MixturePredictive
from bnnp.prediction.weights import NUMBERS_AT_ONCE, check_room, fill_in_blocks, network_outputs
from bnnp.tasks.task import TaskBatch


def last_layer_given(turn: Turn, sums: NaturalParameters) -> LastLayer:
    """The last layer's Gaussian given every sample of the hidden layers and sums over the points, in float64."""
    tasks, samples, d, units = sums.shift.shape
    nothing = sums.shift.new_zeros(tasks, samples, units, 0)
    phi = sums.shift.new_zeros(tasks, samples, 0, d)
    layer = condition_last_layer(turn.prior.to(CAREFUL), phi, Observations(nothing, nothing), rest=sums)
    assert isinstance(layer.form, InWeightSpace)
    check_accurate(layer.form)
    return layer


@dataclass(frozen=True)
class LastLayerAt:
    """The Gaussians over functions of a posterior at some inputs: the `Components` of a `MixturePredictive`.

    Attributes:
        model: The model that was conditioned.
        weights: Samples of every layer.
        last_layer: The Gaussian of the last layer given every sample of the others.
        x: Prepared inputs.
    """

    model: WeightModel
    weights: list[Float[Tensor, "samples _d _out"]]
    last_layer: LastLayer
    x: Float[Tensor, "points x"]

    @torch.no_grad()
    def predictive(self) -> MixturePredictive:
        """Predictions. Cost: `O(K n d^2)` for K samples and n inputs, in blocks that keep memory bounded."""
        noise = self.model.noise_at(self.x).to(CAREFUL)
        return MixturePredictive(*self.moments, noise, self, self.model.likelihood, self.model.columns)

    @property
    def exact(self) -> bool:
        return self.model.network.num_layers == 1

    def functions(self) -> Float[Tensor, "samples points out"]:
        return network_outputs(self.model.network, self.weights, self.x).to(CAREFUL)

    @cached_property
    def moments(self) -> tuple[Float[Tensor, "samples points out"], Float[Tensor, "samples points out"]]:
        """Means and variances of the function."""
        out = self.model.network.sizes[-1]
        check_room(self._samples, len(self.x), 2 * out)
        both = self.x.new_empty(self._samples, len(self.x), 2 * out, dtype=CAREFUL)

        def compute(some: slice, here: slice) -> Tensor:
            layer, points = self._layer(some), self._points(some, here)
            found = (layer.means(points.phi), layer.variances(points.phi, points.seen.inverse_noise))
            return torch.cat([values[0].flatten(1).unflatten(1, (out, -1)).mT for values in found], dim=-1)

        fill_in_blocks(both, compute, self._numbers, whole_rows=self.model.network.mixes_points)
        return both[..., :out], both[..., out:]

    @torch.no_grad()
    def log_density(
        self, y: Float[Tensor, "points out"], noise: Float[Tensor, "points out"], *, together: bool
    ) -> Float[Tensor, "samples _groups"]:
        if not together and self.model.outputs_of_a_unit == 1:
            means, variances = self.moments
            deviation = (variances + noise.square()).sqrt()
            return torch.distributions.Normal(means, deviation).log_prob(y).sum(-1)
        parts = []
        for some in self._sample_blocks():
            layer, outputs = self._layer(some), self.model.outputs_of_a_unit
            points = (self._points(some, here, y, noise) for here in self._point_blocks())
            if together:
                sums = reduce(operator.add, [sums_of_targets(layer, part.phi, part.seen) for part in points])
                parts.append(log_density_of_sums(layer, sums)[0].unsqueeze(-1))
            else:
                terms = [log_density_of_groups(layer, part.phi, part.seen, 1, outputs)[0] for part in points]
                parts.append(torch.cat(terms, dim=-1))
        return torch.cat(parts)

    @property
    def _samples(self) -> int:
        return self.last_layer.mean.shape[1]

    @property
    def _numbers(self) -> int:
        """How many numbers are held at once for one sample at one point."""
        units, size = self.model.prior.unit_shape(self.model.network.num_layers - 1)
        return max(self.model.network.sizes) + 1 + 4 * units * size * self.model.outputs_of_a_unit

    def _point_blocks(self) -> Iterator[slice]:
        whole = self.model.network.mixes_points
        size = max(1, len(self.x) if whole else NUMBERS_AT_ONCE // self._numbers)
        return (slice(start, start + size) for start in range(0, max(1, len(self.x)), size))

    def _sample_blocks(self) -> Iterator[slice]:
        size = max(1, NUMBERS_AT_ONCE // (self._numbers * max(1, len(self.x))))
        return (slice(start, min(start + size, self._samples)) for start in range(0, self._samples, size))

    def _layer(self, some: slice) -> LastLayer:
        return self.last_layer.of_samples(some)

    def _points(self, some: slice, here: slice, y: Tensor | None = None, noise: Tensor | None = None) -> Points:
        model = self.model
        x = self.x[here].unsqueeze(0)
        values = x.new_zeros(*x.shape[:2], model.network.sizes[-1]) if y is None else y[here].unsqueeze(0)
        batch = TaskBatch(x, values, torch.ones(x.shape[:2], dtype=torch.bool, device=x.device))
        features = model.last_features([w[some].unsqueeze(0) for w in self.weights[:-1]], batch)
        given = model.noise_at(x) if noise is None else noise[here].unsqueeze(0)
        return model.observed(features, batch, given).to(CAREFUL)
