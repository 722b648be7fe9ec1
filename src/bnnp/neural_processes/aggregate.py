"""From the points of a context to a Gaussian over a latent variable, whatever their number and order."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from bnnp._core.random import normal
from bnnp._core.shapes import Bool, Float, Tensor
from bnnp.inference_nets.pointwise import PointEncoder


@dataclass(frozen=True)
class DiagonalGaussian:
    """A Gaussian with independent entries for every task."""

    mean: Float[Tensor, "tasks latent"]
    log_std: Float[Tensor, "tasks latent"]

    def sample(self, num_samples: int, generator: torch.Generator) -> Float[Tensor, "tasks samples latent"]:
        tasks, size = self.mean.shape
        noise = normal((tasks, num_samples, size), self.mean, generator)
        return self.mean.unsqueeze(1) + self.log_std.exp().unsqueeze(1) * noise

    def kl(self, other: "DiagonalGaussian") -> Float[Tensor, "tasks"]:
        """`KL[self || other]`, in closed form."""
        ratio = 2 * (self.log_std - other.log_std)
        shift = (self.mean - other.mean) * torch.exp(-other.log_std)
        return 0.5 * (ratio.exp() - 1 - ratio + shift.square()).sum(-1)


def mean_of_points(
    values: Float[Tensor, "tasks points d"], mask: Bool[Tensor, "tasks points"]
) -> Float[Tensor, "tasks d"]:
    """The mean over the points of each task, without padding; 0 for a task without points."""
    present = mask.unsqueeze(-1)
    return torch.where(present, values, 0).sum(1) / present.sum(1).clamp(min=1)


class MeanAggregation(nn.Module):
    """Encode every point; a network maps the mean of the codes to a mean and a log standard deviation."""

    def __init__(self, seen: int, latent_size: int, hidden: Sequence[int], activation: str, generator: torch.Generator):
        super().__init__()
        width = hidden[-1]
        self.encoder = PointEncoder(seen, width, hidden, activation, generator)
        self.head = PointEncoder(width, 2 * latent_size, (width,), activation, generator)

    def forward(
        self, points: Float[Tensor, "tasks points features"], mask: Bool[Tensor, "tasks points"]
    ) -> DiagonalGaussian:
        return DiagonalGaussian(*self.head(mean_of_points(self.encoder(points), mask)).chunk(2, dim=-1))


def gaussian_product(
    observed: Float[Tensor, "tasks points latent"],
    log_variance: Float[Tensor, "tasks points latent"],
    mask: Bool[Tensor, "tasks points"],
) -> DiagonalGaussian:
    """The posterior of `z ~ N(0, 1)` given observations `r_n ~ N(z, variance_n)` (Volpp et al. 2021, eq. 9).

    Precisions add, and the mean weighs observations by their precisions. Without points it is exactly the prior.
    """
    precision = torch.exp(-log_variance.masked_fill(~mask.unsqueeze(-1), torch.inf))
    total = 1 + precision.sum(1)
    mean = (precision * torch.where(mask.unsqueeze(-1), observed, 0)).sum(1) / total
    return DiagonalGaussian(mean, -0.5 * total.log())


class BayesianAggregation(nn.Module):
    """Every point is an observation of the latent variable, with a predicted variance (Volpp et al. 2021)."""

    def __init__(self, seen: int, latent_size: int, hidden: Sequence[int], activation: str, generator: torch.Generator):
        super().__init__()
        self.encoder = PointEncoder(seen, 2 * latent_size, hidden, activation, generator)

    def forward(
        self, points: Float[Tensor, "tasks points features"], mask: Bool[Tensor, "tasks points"]
    ) -> DiagonalGaussian:
        observed, log_variance = self.encoder(points).chunk(2, dim=-1)
        return gaussian_product(observed, log_variance, mask)
