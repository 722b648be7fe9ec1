"""The Bayesian neural process: context points are combined by Bayes' rule (Volpp et al. 2021)."""

from collections.abc import Sequence

import torch
from torch import nn

from bnnp._core.random import Seed, as_generator
from bnnp._core.shapes import Bool, Float, Tensor
from bnnp.inference_nets.pointwise import PointEncoder
from bnnp.likelihoods.base import Likelihood
from bnnp.neural_processes.aggregate import DiagonalGaussian
from bnnp.neural_processes.latent_base import LatentProcess, Sizes


def gaussian_product(
    observed: Float[Tensor, "tasks points latent"],
    log_variance: Float[Tensor, "tasks points latent"],
    mask: Bool[Tensor, "tasks points"],
) -> DiagonalGaussian:
    """The posterior of `z ~ N(0, 1)` given observations `r_n ~ N(z, variance_n)` (Volpp et al. 2021, eq. 9).

    Precisions add, and the mean weighs observations by their precisions. Without points it is the prior, exactly.
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


class BNP(LatentProcess):
    """The Bayesian neural process (Volpp et al. 2021): every point is an observation of the latent variable.

    A point's code has a predicted variance, and codes are combined by Bayes' rule from the prior `N(0, 1)`, which is
    the posterior of an empty context. Arguments, and the paper's choices, are those of `NP`.

    Example: `model = bnnp.neural_processes.BNP(in_size=1, out_size=1, seed=0)`
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden: Sequence[int] = (128, 128),
        activation: str = "silu",
        likelihood: Likelihood | None = None,
        *,
        latent_size: int = 64,
        dtype: torch.dtype = torch.float32,
        seed: Seed = 0,
    ):
        sizes = Sizes(in_size, out_size, hidden, activation, latent_size)
        super().__init__(sizes, likelihood, BayesianAggregation, None, dtype, as_generator(seed))
