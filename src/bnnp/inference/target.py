"""What every method of inference gets: the data sets, the prior, and the log posterior density up to a constant.

Many data sets and many samples (chains, or draws of an approximation) lie on leading axes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from numpy.typing import ArrayLike

from bnnp._core.arrays import as_columns
from bnnp._core.shapes import Float, Tensor
from bnnp.inference.gradient import by_autograd, by_backpropagation
from bnnp.inference.points import beside_each_other, log_likelihood, random_rows, rows_of
from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.gaussian import at_points
from bnnp.networks.base import AnyNetwork
from bnnp.networks.perceptron import Network
from bnnp.numerics.gaussian import UnitPrior, log_prior, unit_products
from bnnp.priors.base import Prior
from bnnp.tasks.source import as_pairs
from bnnp.tasks.task import Task, TaskBatch

LOG_TWO_PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Target:
    """The posteriors of a network's weights given each of several data sets. `Target.of` makes it from raw data.

    A *position* is all weights of a network as one vector, in one of two sets of coordinates: the weights themselves
    (layer by layer, unit by unit), or, with `whitened`, the `v` with `w = mu + L v`. These are standard normal under
    the prior, so that one step size suits all of them.

    Args:
        prior: The prior over the weights.
        network: The network.
        likelihood: The likelihood.
        data: Prepared points, in the units of the model.
        whitened: Which coordinates positions have.

    Example:
        >>> target = bnnp.inference.Target.of(model.prior, model.network, [(x, y)], model.likelihood)
        >>> target.sets, target.size
        (1, 97)
    """

    prior: Prior
    network: AnyNetwork
    likelihood: Likelihood
    data: TaskBatch
    whitened: bool = True

    @staticmethod
    def of(
        prior: Prior,
        network: AnyNetwork,
        data_sets: Sequence[tuple[ArrayLike | Tensor, ArrayLike | Tensor] | Task],
        likelihood: Likelihood,
        whitened: bool = True,
    ) -> "Target":
        """A target from data sets `(x, y)` in the user's units; the other arguments are those of `Target`."""
        own = likelihood.for_outputs(network.sizes[-1]).to(prior.dtype)
        return Target(prior, network, own, _prepared(prior, network, own, data_sets), whitened)

    @property
    def sets(self) -> int:
        """Number of data sets."""
        return self.data.x.shape[0]

    @property
    def size(self) -> int:
        """Number of weights of the network."""
        return self.network.num_weights

    def draw_prior(self, samples: int, generator: torch.Generator) -> Float[Tensor, "sets samples size"]:
        """Positions drawn from the prior."""
        shape = (self.sets, samples, self.size)
        v = torch.randn(*shape, generator=generator, dtype=self.data.x.dtype).to(self.data.x.device)
        return v if self.whitened else self.position_of(self._weights_of_whitened(v))

    def weights(self, position: Float[Tensor, "sets samples size"]) -> list[Float[Tensor, "sets samples _d _out"]]:
        """The weights of every layer."""
        if self.whitened:
            return self._weights_of_whitened(position)
        return [self.prior.from_units(layer, units) for layer, units in enumerate(self._units(position))]

    def position_of(
        self, weights: Sequence[Float[Tensor, "sets samples _d _out"]]
    ) -> Float[Tensor, "sets samples size"]:
        """The position with these weights; the inverse of `weights`."""
        units = [self.prior.to_units(w) for w in weights]
        if self.whitened:
            earlier: list[Tensor] = []
            for layer, unit in enumerate(units):
                earlier.append(self._prior(layer, earlier).whiten(unit))
            units = earlier
        return _joined(units)

    def log_prior(self, position: Float[Tensor, "sets samples size"]) -> Float[Tensor, "sets samples"]:
        """Log-density of the prior in the coordinates of the position; up to a constant if they are whitened."""
        if self.whitened:
            return -0.5 * position.square().sum(-1)
        earlier: list[Tensor] = []
        total = position.new_zeros(())
        for layer, units in enumerate(self._units(position)):
            prior = self._prior(layer, earlier)
            earlier.append(prior.whiten(units))
            total = total + log_prior(earlier[-1], prior).sum(-1)
        return total

    def log_likelihood(
        self, position: Float[Tensor, "sets samples size"], data: TaskBatch | None = None
    ) -> Float[Tensor, "sets samples points"]:
        """Log-density of every point, or of every point of `data` if given; 0 for padding."""
        batch = self.data if data is None else data
        return log_likelihood(self.network, self.likelihood, self.weights(position), batch)

    def log_density(self, position: Float[Tensor, "sets samples size"]) -> Float[Tensor, "sets samples"]:
        """Log-density of the posterior, up to a constant."""
        return self.log_prior(position) + self.log_likelihood(position).sum(-1)

    def value_and_gradient(
        self, position: Float[Tensor, "sets samples size"], power: Float[Tensor, "sets"] | None = None
    ) -> tuple[Float[Tensor, "sets samples"], Float[Tensor, "sets samples size"]]:
        """`log_density` and its gradient, with the likelihood raised to `power` if given."""
        return self._value_and_gradient(position, self.data, power)

    def minibatch(self, size: int, generator: torch.Generator) -> tuple[TaskBatch, Float[Tensor, "sets"]]:
        """`size` points of every data set, drawn without replacement, and the factor `n / b` of their likelihood."""
        counts = self.data.mask.sum(1)
        rows = random_rows(self.data, size, generator)
        mask = self.data.mask.gather(1, rows)
        batch = TaskBatch(rows_of(self.data.x, rows), rows_of(self.data.y, rows), mask)
        return batch, counts / mask.sum(1).clamp(min=1)

    def minibatch_value_and_gradient(
        self, position: Float[Tensor, "sets samples size"], size: int, generator: torch.Generator
    ) -> tuple[Float[Tensor, "sets samples"], Float[Tensor, "sets samples size"]]:
        """Unbiased estimates of `log_density` and its gradient from `size` points of every data set."""
        batch, share = self.minibatch(size, generator)
        return self._value_and_gradient(position, batch, share)

    def _value_and_gradient(
        self, position: Tensor, data: TaskBatch, power: Float[Tensor, "sets"] | None
    ) -> tuple[Tensor, Tensor]:
        if not isinstance(self.network, Network) or self.prior.couples_layers:

            def density(position: Tensor) -> Tensor:
                likelihood = self.log_likelihood(position, data).sum(-1)
                return self.log_prior(position) + (
                    likelihood if power is None else power.to(likelihood)[:, None] * likelihood
                )

            return by_autograd(density, position)
        with torch.no_grad():
            return self._by_backpropagation(position, data, power)

    def _by_backpropagation(
        self, position: Tensor, data: TaskBatch, power: Float[Tensor, "sets"] | None
    ) -> tuple[Tensor, Tensor]:
        assert isinstance(self.network, Network)
        samples = position.shape[1]
        parts, priors, shapes = self._units(position), self._priors, self.network.weight_shapes
        units = [prior.weights(part) for prior, part in zip(priors, parts, strict=True)] if self.whitened else parts
        x, y, share = self.beside_each_other(samples) if data is self.data else beside_each_other(data, samples)
        if power is not None:
            share = share * power.to(share).repeat_interleave(samples)[:, None]
        likelihood = at_points(self.likelihood, x)
        outputs, slopes = by_backpropagation(
            self.network,
            [u.reshape(-1, out, d) for u, (d, out) in zip(units, shapes, strict=True)],
            x,
            lambda f: likelihood.slope(f, y) * share.unsqueeze(-1),
        )
        value = (likelihood.log_prob(outputs, y) * share).sum(-1).view(-1, samples)
        gradients = [slope.view(part.shape) for slope, part in zip(slopes, parts, strict=True)]
        if self.whitened:
            v = position
            gradients = [prior.scale_transposed(g) for prior, g in zip(priors, gradients, strict=True)]
            pull = v
        else:
            centred = [part - prior.mean for prior, part in zip(priors, parts, strict=True)]
            white = [unit_products(w, c) for w, c in zip(self._whiteners, centred, strict=True)]
            v = _joined(white)
            pull = _joined(
                [unit_products(w.mT if w.ndim == 3 else w, c) for w, c in zip(self._whiteners, white, strict=True)]
            )
        return value - 0.5 * v.square().sum(-1) + self._log_prior_constant, _joined(gradients).sub_(pull)

    def _units(self, position: Tensor) -> list[Float[Tensor, "sets samples _units _d"]]:
        parts = position.split([units * size for units, size in self._unit_shapes], dim=-1)
        return [part.view(*part.shape[:-1], *shape) for part, shape in zip(parts, self._unit_shapes, strict=True)]

    def _weights_of_whitened(self, v: Tensor) -> list[Tensor]:
        parts = self._units(v)
        return [
            self.prior.from_units(layer, self._prior(layer, parts[:layer]).weights(part))
            for layer, part in enumerate(parts)
        ]

    def _prior(self, layer: int, earlier: Sequence[Tensor]) -> UnitPrior:
        """The prior of a layer, given the whitened weights of the layers before it."""
        return self.prior.layer(layer, earlier) if self.prior.couples_layers else self._priors[layer]

    @cached_property
    def _priors(self) -> list[UnitPrior]:
        """The priors of all layers if layers do not depend on each other: the same at every step."""
        with torch.no_grad():
            return [_slim(self.prior.layer(layer, [])) for layer in range(self.network.num_layers)]

    def beside_each_other(self, samples: int) -> tuple[Tensor, Tensor, Tensor]:
        """The data repeated for `samples` samples; the last result is kept for the next call."""
        if samples not in self._repeated:
            self._repeated.clear()
            self._repeated[samples] = beside_each_other(self.data, samples)
        return self._repeated[samples]

    @cached_property
    def _unit_shapes(self) -> list[tuple[int, int]]:
        return [self.prior.unit_shape(layer) for layer in range(self.network.num_layers)]

    @cached_property
    def _repeated(self) -> dict[int, tuple[Tensor, Tensor, Tensor]]:
        return {}

    @cached_property
    def _whiteners(self) -> list[Tensor]:
        """`L^-1` of every unit of every layer, as exact as the dtype can hold."""
        return [prior.to(torch.float64).whitener.to(prior.factor.dtype) for prior in self._priors]

    @cached_property
    def _log_prior_constant(self) -> Tensor:
        """`log_prior` without `-|v|^2/2`."""
        zero = self.data.x.new_zeros(())
        if self.whitened:
            return zero
        return zero - sum(float(prior.log_determinants.sum()) for prior in self._priors) - 0.5 * self.size * LOG_TWO_PI


def _slim(prior: UnitPrior) -> UnitPrior:
    """The same prior, stored as a diagonal if all entries off the diagonal are 0, as in a standard prior."""
    if prior.is_diagonal or bool(prior.factor.tril(-1).any()):
        return prior
    return UnitPrior(prior.mean, prior.factor.diagonal(dim1=-2, dim2=-1))


def _joined(units: Sequence[Float[Tensor, "sets samples _units _d"]]) -> Float[Tensor, "sets samples size"]:
    """A position from the parts of all layers, unit by unit."""
    return torch.cat([part.flatten(-2) for part in units], dim=-1)


class Density(Protocol):
    """The log-density that a sampler draws from, with its gradient."""

    def value_and_gradient(
        self, position: Float[Tensor, "sets samples size"]
    ) -> tuple[Float[Tensor, "sets samples"], Float[Tensor, "sets samples size"]]: ...


def _prepared(prior: Prior, network: AnyNetwork, likelihood: Likelihood, data_sets: Sequence) -> TaskBatch:
    """The data sets as a padded batch in the units of the model."""
    y_size = likelihood.y_size(network.sizes[-1])
    tasks = []
    columns = prior.view.columns
    for x, y in as_pairs(data_sets):
        inputs = columns.inputs(x)
        known = len(columns.y_names) == y_size
        outputs = columns.outputs(y, real_valued=likelihood.real_valued) if known else as_columns(y, "y", y_size)
        if len(inputs) != len(outputs):
            raise ValueError(f"x and y: got {len(inputs)} and {len(outputs)} points, expected as many of each")
        likelihood.check(outputs)
        columns.check_positive(outputs, "y")
        tasks.append(Task(inputs, outputs))
    batch = TaskBatch.of(tasks, device=prior.device)
    y = columns.standardise_y(batch.y) if likelihood.real_valued else batch.y
    return TaskBatch(columns.standardise_x(batch.x).to(prior.dtype), y.to(prior.dtype), batch.mask)
