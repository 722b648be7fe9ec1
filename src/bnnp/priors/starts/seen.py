"""Tasks as a start sees them: every column with mean 0 and variance 1."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import AnyNetwork
from bnnp.priors.base import Prior
from bnnp.priors.starts.base import Examples
from bnnp.priors.starts.mixed import COMMON, FIRST, NOISE
from bnnp.priors.starts.sensitivity import HIDDEN_NOISE, moves_of_functions

NOTHING = -6.0
"""Log standard deviation of what tasks have in common, if there is one task."""


@dataclass(frozen=True)
class Seen:
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
    def of(examples: Examples) -> "Seen":
        x, y = ([one.double().cpu() for one in many] for many in (examples.x, examples.y))
        everything = torch.cat(y)
        outputs = ((everything - everything[0]) != 0).any(0).nonzero()[:, 0].tolist()
        y = [one[:, outputs] for one in y]
        (x_shift, x_scale), (y_shift, y_scale) = (_moments(torch.cat(many)) for many in (x, y))
        noise = None if examples.noise is None else examples.noise.double().cpu()[outputs] / y_scale
        return Seen(
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

    def first(self, points: int) -> "Seen":
        """The first tasks that have at least so many points together, or all tasks."""
        totals = itertools.accumulate(len(one) for one in self.x)
        count = 1 + sum(total < points for total in totals)
        log_noise = None if self.log_noise is None else self.log_noise[:count]
        return replace(self, x=self.x[:count], y=self.y[:count], log_noise=log_noise)

    def split(self, values: Float[Tensor, "points columns"]) -> list[Float[Tensor, "_n columns"]]:
        """Values at all points, by task."""
        return list(values.split([len(one) for one in self.x]))

    def assign(
        self,
        prior: Prior,
        network: AnyNetwork,
        hidden: Sequence[Tensor],
        mean: Float[Tensor, "out d"],
        covariance: Float[Tensor, "out d d"],
        noise: Float[Tensor, "points out"],
    ) -> None:
        """Set features, and the units of the layer above them, for inputs and outputs as the network sees them.

        Args:
            prior: The prior.
            network: The part of its network up to these units.
            hidden: Weights of the features. They get so much uncertainty that functions move by a share of the noise.
            mean: Means of the units' weights, for inputs and outputs as they are here.
            covariance: Their covariances.
            noise: The noise of each output at all points, as it is here.
        """
        moves = moves_of_functions(network, hidden, torch.cat(self.x), mean, torch.linalg.cholesky(covariance), noise)
        for layer, weights in enumerate(hidden):
            scale = (HIDDEN_NOISE / moves[layer]).amin().expand(weights.shape)
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
            prior.assign_unit(len(hidden), unit, weights, own * size**2)


def _moments(values: Float[Tensor, "points columns"]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each column; 1 where it is constant."""
    scale = values.std(0, correction=0)
    return values.mean(0), torch.where(scale > 0, scale, 1.0)
