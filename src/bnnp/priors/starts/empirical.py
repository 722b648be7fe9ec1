"""The start that is fitted to the tasks in closed form: empirical Bayes on features that are spread over the inputs."""

import itertools
from dataclasses import dataclass, replace

import torch

from bnnp._core.random import as_integer
from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import AnyNetwork, features_of_layer
from bnnp.numerics.bends import bends_at, bends_over, in_units
from bnnp.priors.base import Prior
from bnnp.priors.starts.base import Examples, SmoothNoise, Start
from bnnp.priors.starts.features import Shape, hidden_weights
from bnnp.priors.starts.freedom import left_out_score, most_freedom
from bnnp.priors.starts.mixed import COMMON, FIRST, NOISE, MixedModel, fit_mixed
from bnnp.priors.starts.noise import fit_noise, varied_noise
from bnnp.priors.starts.sensitivity import HIDDEN_NOISE, moves_of_functions
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
NOTHING = -6.0
"""Log standard deviation of what tasks have in common, if there is one task."""


@dataclass(frozen=True)
class Empirical(Start):
    """Start with the prior that the tasks themselves suggest, found in closed form.

    The hidden layers have features that are spread over the inputs, and little uncertainty. The last layer is that of a
    linear mixed model on these features: it has a mean, which is what tasks have in common, and a covariance, which is
    how they differ. How rough the features are, which inputs matter and how large the noise is are chosen by the
    evidence of the tasks. How far the covariance leaves a simple form is chosen by tasks that are left out in turn:
    with few tasks it stays simple.

    Labels are taken as numbers, which is close to their log-odds where no class is certain.

    Cost: some seconds for up to 128 tasks, of which the fit looks at no more.

    Example:
        >>> small = bnnp.BNNP(1, 1, hidden=(8, 8))
        >>> bnnp.start_prior(small, tasks, bnnp.starts.Empirical(), seed=0)
        >>> small.prior.is_standard()
        False
    """

    tasks = 128

    @torch.no_grad()
    def set(self, prior: Prior, examples: Examples, generator: torch.Generator) -> SmoothNoise | None:
        """Set the hidden layers and the last layer, and give the noise that goes with them."""
        seen = _Seen.of(examples)
        if not seen.outputs:
            return None
        search = _Search(prior.network, seen, as_integer(generator), prior.layer(0, []).is_diagonal)
        fitted = search.best()
        bends, coefficients = bends_over(seen.x[0], []), seen.y[0].new_zeros(0, len(seen.outputs))
        if examples.noise_may_vary:
            fitted, bends, coefficients = search.with_varied_noise(fitted) or (fitted, bends, coefficients)
        model, sums = most_freedom(fitted.tasks, fitted.model, seen.held)
        mean, covariance = fitted.in_weights(*model.of_new_task(sums))
        seen.assign(prior, fitted.hidden, mean, covariance, model.noise)
        noise = examples.output_scale.double().cpu().clone()
        noise[seen.outputs] = model.noise * seen.y_scale
        varies = noise.new_zeros(len(bends), len(noise))
        varies[:, seen.outputs] = coefficients
        return SmoothNoise(noise, in_units(bends, seen.x_shift, seen.x_scale), varies)


@dataclass(frozen=True)
class _Seen:
    """The tasks with mean 0 and variance 1 in every column that is not constant, in float64.

    Attributes:
        x: Inputs of every task.
        y: Outputs of every task.
        x_shift: What was taken from the inputs.
        x_scale: What they were divided by.
        y_shift: What was taken from the outputs.
        y_scale: What they were divided by.
        noise: The noise of each output if it is known.
        outputs: The outputs that vary: others, as classes that no task has, are left as they are.
        log_noise: Logarithm of the noise at every point as a share of the common noise, if it varies.
    """

    x: list[Float[Tensor, "_n x"]]
    y: list[Float[Tensor, "_n out"]]
    x_shift: Float[Tensor, "x"]
    x_scale: Float[Tensor, "x"]
    y_shift: Float[Tensor, "out"]
    y_scale: Float[Tensor, "out"]
    noise: Float[Tensor, "out"] | None
    outputs: list[int]
    log_noise: list[Float[Tensor, "_n out"]] | None = None

    @staticmethod
    def of(examples: Examples) -> "_Seen":
        x, y = ([one.double().cpu() for one in many] for many in (examples.x, examples.y))
        everything = torch.cat(y)
        outputs = ((everything - everything[0]) != 0).any(0).nonzero()[:, 0].tolist()
        y = [one[:, outputs] for one in y]
        (x_shift, x_scale), (y_shift, y_scale) = (_moments(torch.cat(many)) for many in (x, y))
        noise = None if examples.noise is None else examples.noise.double().cpu()[outputs] / y_scale
        return _Seen(
            [(one - x_shift) / x_scale for one in x],
            [(one - y_shift) / y_scale for one in y],
            *(x_shift, x_scale, y_shift, y_scale, noise, outputs),
        )

    @property
    def within(self) -> list[int]:
        """The inputs that vary within tasks."""
        inputs = range(self.x[0].shape[1])
        return [j for j in inputs if any(float(x[:, j].max() - x[:, j].min()) > 0 for x in self.x if len(x))]

    @property
    def held(self) -> Float[Tensor, "out 5"]:
        """What is known of the mixed model before it is fitted: a fixed noise, and nothing in common for one task."""
        held = torch.full((len(self.outputs), len(FIRST)), torch.nan, dtype=torch.float64)
        if self.noise is not None:
            held[:, NOISE] = self.noise.log()
        if len(self.x) == 1:  # nothing tells what it shares with others, so it shares nothing
            held[:, COMMON] = NOTHING
        return held

    def first(self, points: int) -> "_Seen":
        """The first tasks that have at least so many points together, or all tasks."""
        totals = itertools.accumulate(len(one) for one in self.x)
        count = 1 + sum(total < points for total in totals)
        log_noise = None if self.log_noise is None else self.log_noise[:count]
        return replace(self, x=self.x[:count], y=self.y[:count], log_noise=log_noise)

    def split(self, values: Float[Tensor, "points columns"]) -> list[Float[Tensor, "_n columns"]]:
        """Values at all points, by task."""
        return list(values.split([len(one) for one in self.x]))

    def assign(
        self, prior: Prior, hidden: list[Tensor], mean: Tensor, covariance: Tensor, noise: Float[Tensor, "out"]
    ) -> None:
        """Set the prior, for inputs and outputs as the network sees them."""
        x, last = torch.cat(self.x), prior.network.num_layers - 1
        moves = moves_of_functions(prior.network, hidden, x, mean, torch.linalg.cholesky(covariance))
        for layer, weights in enumerate(hidden):
            scale = (HIDDEN_NOISE * noise / moves[layer]).amin().expand(weights.shape)
            if layer == 0:
                weights = torch.cat([weights[:-1] / self.x_scale[:, None], weights[-1:]])
                weights[-1] -= self.x_shift @ weights[:-1]
                scale = torch.cat([scale[:-1] / self.x_scale[:, None], scale[-1:]])
            prior.assign_layer(layer, weights, scale)
        for unit, size, shift, own_mean, own in zip(
            self.outputs, self.y_scale, self.y_shift, mean, covariance, strict=True
        ):
            weights = own_mean * size
            weights[-1] += shift
            prior.assign_unit(last, unit, weights, own * size**2)


@dataclass(frozen=True)
class _Fitted:
    """Features, and the mixed model on them without freedom.

    Attributes:
        hidden: Weights of the hidden layers.
        directions: Directions in the space of the last layer's weights that the model is given in.
        tasks: The points of every task, with features in these directions.
        model: The model.
        value: Its log-evidence plus the log-density of its parameters.
    """

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
class _Search:
    """Chooses the shape of the features by evidence.

    Attributes:
        network: The network.
        seen: The tasks.
        seed: Seed of the features.
        diagonal: Whether the prior keeps weights independent.
    """

    network: AnyNetwork
    seen: _Seen
    seed: int
    diagonal: bool

    def best(self) -> _Fitted:
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
        self, one: _Fitted
    ) -> tuple[_Fitted, Float[Tensor, "terms 4"], Float[Tensor, "terms out"]] | None:
        """Features and model with a noise that varies with the inputs, its bends and their coefficients.

        None if one noise is as good. Features are chosen anew, because they may have followed the noise where it is
        large.
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
        again = replace(self, seen=replace(self.seen, log_noise=varied.log_noise(bends))).best()
        varied = fit_noise(again.tasks, bends, again.model, held)
        return replace(again, tasks=varied.on(again.tasks, bends), model=varied.model), table, varied.coefficients

    def _best_shape(self, inputs: list[int]) -> Shape:
        """The shape of highest evidence, found by changing one of its numbers at a time; other inputs do not matter."""
        few, found, count = replace(self, seen=self.seen.first(SEARCH_POINTS)), {}, self.seen.x[0].shape[1]

        def value(shape: Shape) -> float:
            if shape not in found:
                found[shape] = few.fitted(shape).value
            return found[shape]

        shape = Shape(SLOPES[0], DENSITIES[0], tuple(float(j in inputs) for j in range(count)))
        for _ in range(SWEEPS):
            shape = max((replace(shape, slope=slope) for slope in SLOPES), key=value)
            shape = max((replace(shape, density=density) for density in DENSITIES), key=value)
            if count > 1 and self.network.num_layers > 2:
                for column in inputs:
                    shape = max(_with_relevance(shape, column), key=value)
        return shape

    def fitted(self, shape: Shape) -> _Fitted:
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
        return _Fitted(hidden, vectors[:, kept], tasks, model, value)


def _with_relevance(shape: Shape, column: int) -> list[Shape]:
    before, after = shape.relevance[:column], shape.relevance[column + 1 :]
    return [replace(shape, relevance=(*before, relevance, *after)) for relevance in RELEVANCES]


def _moments(values: Float[Tensor, "points columns"]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column; 1 where it is constant."""
    scale = values.std(0, correction=0)
    return values.mean(0), torch.where(scale > 0, scale, 1.0)
