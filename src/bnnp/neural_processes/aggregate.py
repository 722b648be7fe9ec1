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
    """Independent normal numbers for every task."""

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
    """The mean over the points that are there; 0 where there are none."""
    present = mask.unsqueeze(-1)
    return torch.where(present, values, 0).sum(1) / present.sum(1).clamp(min=1)


class MeanAggregation(nn.Module):
    """A code for every point; a network makes mean and log standard deviation from the mean of the codes."""

    def __init__(self, seen: int, latent_size: int, hidden: Sequence[int], activation: str, generator: torch.Generator):
        super().__init__()
        width = hidden[-1]
        self.encoder = PointEncoder(seen, width, hidden, activation, generator)
        self.head = PointEncoder(width, 2 * latent_size, (width,), activation, generator)

    def forward(
        self, points: Float[Tensor, "tasks points features"], mask: Bool[Tensor, "tasks points"]
    ) -> DiagonalGaussian:
        return DiagonalGaussian(*self.head(mean_of_points(self.encoder(points), mask)).chunk(2, dim=-1))
