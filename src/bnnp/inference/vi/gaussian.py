"""Variational inference with one Gaussian over all weights: from independent weights to full correlation.

MFVI, UCVI, LCVI and FCVI of the paper differ in one thing, which weights may be correlated: none, those into a unit,
those of a layer, all of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.autograd.function import once_differentiable

from bnnp._core.checks import check_choice
from bnnp._core.random import normal
from bnnp._core.shapes import Float, Tensor
from bnnp.inference.target import Target
from bnnp.inference.vi.base import Variational

CORRELATIONS = ("mfvi", "ucvi", "lcvi", "fcvi")
START_SCALE = 0.1
"""Standard deviation of the approximation at its start, divided by that of the prior."""


class GaussianApproximation(nn.Module):
    """`q(w) = N(m, S S^T)` for each data set, `S = diag(s) (I + T/sqrt(size))` lower triangular in blocks.

    Adam moves every entry of `T` by about the learning rate, whatever its gradient. Over the rows of a large block this
    noise adds up; the root of the size makes up for it. Positions are the weights themselves, not whitened, because
    the independence of "mfvi" is that of the weights.

    Args:
        mean: Starting mean for every data set.
        scale: Starting standard deviations.
        blocks: Blocks within which weights are correlated, as (number of blocks, weights in each), in the order of a
            position.
    """

    def __init__(
        self, mean: Float[Tensor, "sets size"], scale: Float[Tensor, "size"], blocks: Sequence[tuple[int, int]]
    ):
        super().__init__()
        sets = len(mean)
        self.blocks = tuple(blocks)
        self.mean = nn.Parameter(mean.clone())
        self.log_scale = nn.Parameter(scale.log().expand(mean.shape).clone())
        self.lower = nn.ParameterList(
            nn.Parameter(mean.new_zeros(sets, count, size, size) if size > 1 else mean.new_zeros(0))
            for count, size in blocks
        )

    def sample(self, samples: int, generator: torch.Generator) -> Float[Tensor, "sets samples size"]:
        """Draws, differentiable in the parameters. Cost: `O(sum of count size^2)` per draw."""
        noise = normal((len(self.mean), samples, self.mean.shape[-1]), self.mean, generator)
        parts = noise.split([count * size for count, size in self.blocks], dim=-1)
        mixed = []
        for part, lower, (count, size) in zip(parts, self.lower, self.blocks, strict=True):
            if size == 1:
                mixed.append(part)
                continue
            v = part.unflatten(-1, (count, size))
            correlated = torch.einsum("tuij,tkuj->tkui", lower.tril(-1), v) / math.sqrt(size)
            mixed.append((v + correlated).flatten(-2))
        return self.mean.unsqueeze(1) + self.log_scale.exp().unsqueeze(1) * torch.cat(mixed, dim=-1)

    def entropy(self) -> Float[Tensor, "sets"]:
        size = self.mean.shape[-1]
        return self.log_scale.sum(-1) + 0.5 * size * (1 + math.log(2 * math.pi))


class _LogDensity(torch.autograd.Function):
    """`target.log_density` as one operation of autograd, which computes the gradient together with the value."""

    @staticmethod
    def forward(ctx, position: Tensor, target: Target):  # pyright: ignore
        value, gradient = target.value_and_gradient(position)
        ctx.save_for_backward(gradient)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx, slope: Tensor):  # pyright: ignore
        (gradient,) = ctx.saved_tensors
        return slope.unsqueeze(-1) * gradient, None


@dataclass(frozen=True)
class GaussianVI(Variational):
    """Variational inference with one Gaussian over all weights.

    Args:
        correlations: Which weights may be correlated: "mfvi" none, "ucvi" those into the same unit, "lcvi" those of
            the same layer, "fcvi" all.

    Raises:
        ValueError: If `correlations` is another word.

    Example:
        >>> ucvi = bnnp.inference.GaussianVI("ucvi")
        >>> found = bnnp.infer(model, x, y, method=ucvi, num_samples=8, steps=5)
        >>> found.num_samples, len(found.diagnostics.elbo)
        (8, 5)
    """

    correlations: str = "mfvi"

    def __post_init__(self):
        check_choice("correlations", self.correlations, CORRELATIONS)

    def approximation(self, target: Target, generator: torch.Generator) -> GaussianApproximation:
        """Means drawn from the prior, small standard deviations."""
        assert not target.whitened
        mean = target.draw_prior(1, generator)[:, 0]
        return GaussianApproximation(mean, START_SCALE * _prior_scales(target), self._blocks(target))

    def bound(
        self, target: Target, approximation: GaussianApproximation, samples: int, generator: torch.Generator
    ) -> Float[Tensor, "sets samples"]:
        """Unbiased estimates of the evidence lower bound, one per sample; the entropy is exact."""
        position = approximation.sample(samples, generator)
        value = _LogDensity.apply(position, target) if position.requires_grad else target.log_density(position)
        return value + approximation.entropy().unsqueeze(1)  # pyright: ignore

    def draw(
        self, target: Target, approximation: GaussianApproximation, samples: int, generator: torch.Generator
    ) -> list[Float[Tensor, "sets samples _d _out"]]:
        return target.weights(approximation.sample(samples, generator))

    def _blocks(self, target: Target) -> list[tuple[int, int]]:
        layers = target.network.weight_shapes
        if self.correlations == "mfvi":
            return [(target.size, 1)]
        if self.correlations == "ucvi":
            return [(out, d) for d, out in layers]
        if self.correlations == "lcvi":
            return [(1, d * out) for d, out in layers]
        return [(1, target.size)]


def _prior_scales(target: Target) -> Float[Tensor, "size"]:
    """Standard deviations of the weights under the prior, each layer given the means of the others."""
    scales = []
    earlier: list[Tensor] = []
    with torch.no_grad():
        for layer in range(target.network.num_layers):
            prior = target.prior.layer(layer, earlier)
            units, size = target.prior.unit_shape(layer)
            earlier.append(prior.factor.new_zeros(1, 1, units, size))
            covariance = prior.covariance
            variance = covariance if prior.is_diagonal else covariance.diagonal(dim1=-2, dim2=-1)
            scales.append(variance.sqrt().flatten())
    return torch.cat(scales)
