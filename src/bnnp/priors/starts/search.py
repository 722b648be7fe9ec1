"""The search for features that suit the tasks: how rough they are and which inputs matter, by evidence."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import AnyNetwork, features_of_layer
from bnnp.numerics.bends import bends_at, bends_over
from bnnp.priors.starts.features import Shape, hidden_weights
from bnnp.priors.starts.fitting import fit_mixed
from bnnp.priors.starts.freedom import left_out_score
from bnnp.priors.starts.mixed import MixedModel
from bnnp.priors.starts.noise import fit_noise, varied_noise
from bnnp.priors.starts.seen import Seen
from bnnp.priors.starts.sums import Sums, TaskPoints

SLOPES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Slopes of the first layer that are tried, from smooth functions to rough ones."""
DENSITIES = (0.0, 0.5, 1.0)
"""Choices of how far units are steeper where inputs are dense."""
RELEVANCES = (1.0, 0.3, 0.1, 0.0)
"""Choices of how much an input matters."""
SWEEPS = 2
"""How often each number of the shape is chosen in turn."""
SEARCH_POINTS = 1500
"""Features are chosen by the first tasks that have at least this many points."""
LEAST_VALUE = 1e-9
"""Directions of the features with a smaller share of the largest variance are left out of the fit."""


@dataclass(frozen=True)
class Fitted:
    """Features, and the mixed model on them without freedom.

    Attributes:
        shape: The shape of the features.
        hidden: Weights of the hidden layers.
        directions: Directions in the space of the last layer's weights that the model is given in.
        tasks: The points of every task, with features in these directions.
        model: The model.
        value: Its log-evidence plus the log-density of its parameters.
    """

    shape: Shape
    hidden: list[Float[Tensor, "_d _out"]]
    directions: Float[Tensor, "d kept"]
    tasks: list[TaskPoints]
    model: MixedModel
    value: float

    def in_weights(self, mean: Tensor, covariance: Tensor) -> tuple[Float[Tensor, "out d"], Float[Tensor, "out d d"]]:
        """Mean and covariance in terms of all weights of the last layer.

        Directions without data get the smallest variance of the others, which keeps the covariance regular.
        """
        v = self.directions
        least = covariance.diagonal(dim1=-2, dim2=-1).amin(-1)
        outside = torch.eye(len(v), dtype=v.dtype) - v @ v.mT
        return mean @ v.mT, v @ covariance @ v.mT + least[:, None, None] * outside


@dataclass
class Search:
    """Chooses the shape of the features by evidence.

    Attributes:
        network: The network.
        seen: The tasks.
        seed: Seed of the features.
        diagonal: Whether the prior keeps weights independent.
    """

    network: AnyNetwork
    seen: Seen
    seed: int
    diagonal: bool

    def best(self) -> Fitted:
        """The best features, and the mixed model on them.

        The evidence compares all shapes. Inputs that are the same at all points of a task, as a dose or a weight, could
        be learned by heart where there are few tasks; so left-out tasks decide whether these inputs matter at all.
        """
        inputs, within = range(self.seen.x[0].shape[1]), self.seen.within
        choices = [self.fitted(self._best_shape(list(inputs)))]
        if 0 < len(within) < len(inputs) and self.network.num_layers > 2:
            choices.append(self.fitted(self._best_shape(within)))
        return max(choices, key=lambda choice: left_out_score(choice.tasks, choice.model, self.seen.held))

    def with_varied_noise(
        self, one: Fitted
    ) -> tuple[Fitted, Float[Tensor, "terms 4"], Float[Tensor, "terms out"]] | None:
        """Features and model with a noise that varies with the inputs, its bends and their coefficients.

        None if one noise is as good. How rough the features are is chosen anew, because they may have followed the
        noise where it is large.
        """
        x, held, found = torch.cat(self.seen.x), self.seen.held, []
        for inputs in {tuple(self.seen.within), tuple(range(x.shape[1]))}:
            table = bends_over(x, inputs)
            bends = self.seen.split(bends_at(table, x))
            varied = varied_noise(one.tasks, bends, one.model, held) if len(table) else None
            found += [] if varied is None else [(varied, table, bends)]
        if not found:
            return None
        varied, table, bends = max(found, key=lambda choice: choice[0].gain)
        noisy = replace(self, seen=replace(self.seen, log_noise=varied.log_noise(bends)))
        again = noisy.fitted(_with_best_roughness(one.shape, noisy._values()))
        varied = fit_noise(again.tasks, bends, again.model, held)
        return replace(again, tasks=varied.on(again.tasks, bends), model=varied.model), table, varied.coefficients

    def _best_shape(self, inputs: list[int]) -> Shape:
        """The shape of highest evidence, found by changing one of its numbers at a time; other inputs do not matter."""
        value, count = self._values(), self.seen.x[0].shape[1]
        shape = Shape(SLOPES[0], DENSITIES[0], tuple(float(j in inputs) for j in range(count)))
        for _ in range(SWEEPS):
            shape = _with_best_roughness(shape, value)
            if count > 1 and self.network.num_layers > 2:
                for column in inputs:
                    shape = max(_with_relevance(shape, column), key=value)
        return shape

    def _values(self) -> Callable[[Shape], float]:
        """The evidence of shapes by the first tasks; each is computed once."""
        few = replace(self, seen=self.seen.first(SEARCH_POINTS))
        return cache(lambda shape: few.fitted(shape).value)

    def fitted(self, shape: Shape) -> Fitted:
        """The features of a shape, and the mixed model on them, fitted to the first tasks."""
        x = torch.cat(self.seen.x)
        hidden = hidden_weights(self.network, x, shape, self.seed)
        phi = features_of_layer(self.network.program(x), hidden)
        gram = phi.mT @ phi / len(phi)
        values, vectors = (gram.diagonal(), torch.eye(len(gram)).to(gram)) if self.diagonal else torch.linalg.eigh(gram)
        kept = values > LEAST_VALUE * values.max()
        noise = self.seen.log_noise or [None] * len(self.seen.x)
        features = self.seen.split(phi @ vectors[:, kept])
        tasks = [TaskPoints(*points) for points in zip(features, self.seen.y, noise, strict=True)]
        sums = Sums.of(tasks[: len(self.seen.first(SEARCH_POINTS).x)])
        model, value = fit_mixed(sums, MixedModel.first(values[kept], len(self.seen.y_scale)), held=self.seen.held)
        return Fitted(shape, hidden, vectors[:, kept], tasks, model, value)


def _with_best_roughness(shape: Shape, value: Callable[[Shape], float]) -> Shape:
    """The shape with the slope and then the density of highest value."""
    shape = max((replace(shape, slope=slope) for slope in SLOPES), key=value)
    return max((replace(shape, density=density) for density in DENSITIES), key=value)


def _with_relevance(shape: Shape, column: int) -> list[Shape]:
    before, after = shape.relevance[:column], shape.relevance[column + 1 :]
    return [replace(shape, relevance=(*before, relevance, *after)) for relevance in RELEVANCES]
