"""Natural parameters: what data add to a posterior, as sums over points.

Posteriors of Gaussian models have natural parameters that are sums over the data, so that all points at once, one chunk
after the other, and new points tomorrow are the same addition.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch

from bnnp._core.ranks import Ranks
from bnnp._core.shapes import Float, Int, Tensor
from bnnp.numerics.records import CAREFUL, Observations, UnitPrior, Update, log_prior, project, unit_products
from bnnp.numerics.solve import unpacked, weighted_gram


@dataclass(frozen=True)
class NaturalParameters:
    """What points add to the natural parameters of every unit's posterior, about the prior mean. They add over data.

    Attributes:
        precision: `phi^T D^2 phi`, packed.
        shift: `phi^T D r`.
        draws: `phi^T D e`, for the sample.
        square: `|r|^2`.
    """

    precision: Float[Tensor, "tasks phi_samples pairs units"]
    shift: Float[Tensor, "tasks phi_samples d units"]
    draws: Float[Tensor, "tasks samples d units"]
    square: Float[Tensor, "tasks phi_samples units"]

    def __add__(self, other: "NaturalParameters") -> "NaturalParameters":
        return NaturalParameters(
            self.precision + other.precision,
            self.shift + other.shift,
            self.draws + other.draws,
            self.square + other.square,
        )

    def over(self, ranks: Ranks) -> "NaturalParameters":
        """The sums over the points of all processes."""
        if ranks.size == 1:
            return self
        parts = [getattr(self, field.name) for field in fields(self)]
        total = ranks.sum(torch.cat([part.reshape(-1) for part in parts])).split([part.numel() for part in parts])
        return NaturalParameters(*(one.view(part.shape) for one, part in zip(total, parts, strict=True)))

    @staticmethod
    def joined(parts: Sequence["NaturalParameters"], shared: bool) -> "NaturalParameters":
        """Those of all samples, from parts of them.

        Args:
            parts: Natural parameters of some samples each.
            shared: Whether they are the same for every sample, but for the draws.
        """
        draws = torch.cat([part.draws for part in parts], dim=1)
        if shared:
            return replace(parts[0], draws=draws)
        precision, shift, square = (
            torch.cat([getattr(part, name) for part in parts], dim=1) for name in ("precision", "shift", "square")
        )
        return NaturalParameters(precision, shift, draws, square)

    def of_units(self, units: Int[Tensor, "some"]) -> "NaturalParameters":
        return NaturalParameters(*(getattr(self, field.name)[..., units] for field in fields(self)))

    def to(self, dtype: torch.dtype) -> "NaturalParameters":
        return NaturalParameters(
            self.precision.to(dtype), self.shift.to(dtype), self.draws.to(dtype), self.square.to(dtype)
        )


@torch.no_grad()
def natural_parameters(
    mean: Float[Tensor, "mean_tasks mean_samples units d"],
    phi: Float[Tensor, "tasks phi_samples points d"],
    seen: Observations,
    draws: Float[Tensor, "tasks samples units points"],
) -> NaturalParameters:
    """What points add to the natural parameters of every unit, in float64. `O(n d^2)` per unit; no derivatives.

    In float32 the sums over accurate observations would be rounded by more than the prior's precision adds to them.
    """
    mean, phi, inverse_noise = mean.to(CAREFUL), phi.to(CAREFUL), seen.inverse_noise.mT.to(CAREFUL)
    residual = (seen.y.mT - project(phi, mean)) * inverse_noise
    return NaturalParameters(
        weighted_gram(phi, inverse_noise),
        phi.mT @ (residual * inverse_noise),
        phi.mT @ (draws.mT * inverse_noise),
        residual.square().sum(-2),
    )


def moving_with(mean: Float[Tensor, "tasks samples units d"], rest: NaturalParameters) -> NaturalParameters:
    """The same sums, with their derivatives by the prior mean that they are about."""
    if not mean.requires_grad:
        return rest
    moved = (mean - mean.detach()).unsqueeze(-1)  # zero, but for its derivative
    pull = (unpacked(rest.precision) @ moved).squeeze(-1).mT
    square = rest.square - 2 * (rest.shift * moved.squeeze(-1).mT).sum(-2)
    return replace(rest, shift=rest.shift - pull, square=square)


def log_density_at_sample(
    prior: UnitPrior, update: Update, natural: NaturalParameters
) -> Float[Tensor, "tasks samples units"]:
    """Log-density of every unit's posterior at its sample: prior times likelihood over evidence."""
    centred = update.centred.mT
    pairs = torch.tril_indices(centred.shape[-2], centred.shape[-2], device=centred.device)
    twice = torch.where(pairs[0] == pairs[1], 1.0, 2.0).to(centred)
    products = centred[..., pairs[0], :] * centred[..., pairs[1], :] * twice[:, None]
    misfit = natural.square - 2 * (centred * natural.shift).sum(-2) + (products * natural.precision).sum(-2)
    return log_prior(update.whitened, prior) - 0.5 * misfit - update.log_evidence


def posterior_moments(
    prior: UnitPrior, natural: NaturalParameters
) -> tuple[Float[Tensor, "tasks samples units d"], Float[Tensor, "tasks samples units d d"]]:
    """Mean and covariance of every unit's posterior, in full. For inspection: sampling needs neither."""
    size = natural.shift.shape[-2]
    eye = torch.eye(size, dtype=natural.shift.dtype, device=natural.shift.device)
    whitened = whitened_precision(prior, unpacked(natural.precision))
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(eye + whitened))
    shift = unit_products(prior.factor if prior.is_diagonal else prior.factor.mT, natural.shift.mT)
    mean = prior.mean + prior.scale((inverse @ shift.unsqueeze(-1)).squeeze(-1))
    factor = torch.diag_embed(prior.factor) if prior.is_diagonal else prior.factor
    return mean, factor @ inverse @ factor.mT


def whitened_precision(
    prior: UnitPrior, precision: Float[Tensor, "tasks samples units d d"]
) -> Float[Tensor, "tasks samples units d d"]:
    """`L^T C L` for each unit."""
    if prior.is_diagonal:
        return precision * prior.factor.unsqueeze(-1) * prior.factor.unsqueeze(-2)
    return prior.factor.mT @ precision @ prior.factor
