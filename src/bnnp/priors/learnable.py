"""Parameters of a prior, of which a part may be held fixed."""

from collections.abc import Mapping

import torch
from torch import nn

from bnnp._core.memory import check_memory
from bnnp._core.shapes import Bool, Float, Tensor
from bnnp.numerics.gaussian import UnitPrior


class Learnable(nn.Module):
    """A tensor whose first entries can be trained while the rest is fixed.

    The fixed part is kept apart from the trained one, so that no optimiser moves it: neither by weight decay nor by
    momentum from before it was frozen.

    Args:
        value: Where the tensor starts; all of it is learnable at first.

    Attributes:
        value: The parameter that is trained.
        mask: Which entries are learnable; None if all are.
        fixed: The values of the fixed entries; None if there are none.
    """

    value: nn.Parameter
    mask: Tensor | None
    fixed: Tensor | None

    def __init__(self, value: Float[Tensor, "*shape"]):
        super().__init__()
        self.value = nn.Parameter(value)
        self.register_buffer("mask", None)
        self.register_buffer("fixed", None)

    def forward(self) -> Float[Tensor, "*shape"]:
        if self.mask is None or self.fixed is None:
            return self.value
        if not self.value.requires_grad:
            return self.fixed
        return torch.where(self.mask, self.value, self.fixed)

    def fixed_values(self) -> Float[Tensor, "*shape"] | None:
        """The tensor, if all of it is fixed."""
        return None if self._parameters["value"].requires_grad else self._buffers["fixed"]  # pyright: ignore

    def set_learnable(self, mask: Bool[Tensor, "*shape"]) -> None:
        """Fix every entry outside `mask` at its present value."""
        with torch.no_grad():
            self.value.copy_(self())
        everything = bool(mask.all())
        self.mask = None if everything else mask.to(self.value.device).clone()
        self.fixed = None if everything else self.value.detach().clone()
        self.value.requires_grad_(bool(mask.any()))

    @torch.no_grad()
    def assign(self, value: Float[Tensor, "*shape"]) -> None:
        """Set the learnable entries; fixed ones stay as they are."""
        self.value.copy_(value)


class GaussianUnits(nn.Module):
    """`N(mean_u, L_u L_u^T)` for a number of units, with `L = diag(scale) (I + lower)`.

    Starts at the standard prior: mean 0, no correlation, and the given variances. Where a start assigns strongly
    correlated weights, it gives the units a `basis` and an `offset`: the weights are then `offset + basis v`, and the
    parameters are those of `v`, which is standard normal at first. An optimiser that moves every parameter by the same
    small step would otherwise break the balance of large weights that cancel each other.

    Args:
        units: Number of units.
        variance: Variances of a unit's weights under the standard prior.
        correlated: Whether the weights of a unit may be correlated; `lower` is None if not.
    """

    standard_log_scale: Tensor
    basis: Tensor | None
    offset: Tensor | None

    def __init__(self, units: int, variance: Float[Tensor, "d"], *, correlated: bool):
        super().__init__()
        (size,) = variance.shape
        check_memory("hidden", units * size * (size if correlated else 1), "use smaller layers or a simpler prior")
        self.register_buffer("standard_log_scale", (0.5 * variance.log()).expand(units, size).clone(), persistent=False)
        self.mean = Learnable(torch.zeros(units, size, dtype=variance.dtype))
        self.log_scale = Learnable(self.standard_log_scale.clone())
        self.lower = Learnable(torch.zeros(units, size, size, dtype=variance.dtype)) if correlated else None
        self.register_buffer("basis", None)
        self.register_buffer("offset", None)
        self._fixed: tuple[list[tuple[Tensor, int]], UnitPrior] | None = None

    def prior(self) -> UnitPrior:
        """The prior of the units, which depends on no other units. If it is fixed, it is computed once and kept."""
        parts = [part.fixed_values() for part in (self.mean, self.log_scale, self.lower) if part is not None]
        state = [(part, part._version) for part in parts if part is not None]
        if len(state) < len(parts) or torch.is_inference_mode_enabled():
            return UnitPrior(self.means()[None, None], self.factor())
        if self._fixed is None or not _same(self._fixed[0], state):
            self._fixed = (state, UnitPrior(self.means()[None, None], self.factor()))
        return self._fixed[1]

    def means(self) -> Float[Tensor, "units d"]:
        """The mean of every unit."""
        if self.basis is None or self.offset is None:
            return self.mean()
        return self.offset + (self.basis @ self.mean().unsqueeze(-1))[..., 0]

    def factor(self) -> Float[Tensor, "units d"] | Float[Tensor, "units d d"]:
        """The factor `L` of every unit's covariance; its diagonal alone if weights are independent."""
        scale = self.log_scale().exp()
        if self.lower is None:
            return scale
        size = scale.shape[-1]
        unit_lower = self.lower().tril(-1) + torch.eye(size, dtype=scale.dtype, device=scale.device)
        own = scale.unsqueeze(-1) * unit_lower
        return own if self.basis is None else self.basis @ own

    def set_learnable(self, mask: Bool[Tensor, "units d"]) -> None:
        """Fix the weights outside `mask`: their means, scales and correlations with the weights before them."""
        if not bool(mask.all()):
            self.drop_basis()
        self.mean.set_learnable(mask)
        self.log_scale.set_learnable(mask)
        if self.lower is not None:
            self.lower.set_learnable(mask.unsqueeze(-1).expand(self.lower.value.shape))

    @torch.no_grad()
    def assign_weights(self, first: int, mean: Float[Tensor, "size"], covariance: Float[Tensor, "size size"]) -> None:
        """Set the Gaussian of some weights of one unit, where they are learnable.

        These weights then are independent of the weights before them.

        Args:
            first: Number of the first of them, counted over all units.
            mean: Their means.
            covariance: Their covariance.
        """
        unit, start = divmod(first, self.mean.value.shape[1])
        some = slice(start, start + len(mean))
        factor = covariance.diagonal().sqrt().diag() if self.lower is None else torch.linalg.cholesky(covariance)
        if self.lower is not None and len(mean) == self.mean.value.shape[1] and self.mean.mask is None:
            self._take_basis(unit, mean, factor)
        else:
            self._assign_factor(unit, some, mean, factor)

    def _assign_factor(self, unit: int, some: slice, mean: Tensor, factor: Tensor) -> None:
        scale = factor.diagonal()
        self.mean.value[unit, some] = mean.to(self.mean.value)
        self.log_scale.value[unit, some] = scale.log().to(self.log_scale.value)
        if self.lower is not None:
            self.lower.value[unit, some] = 0
            self.lower.value[unit, some, some] = (factor / scale.unsqueeze(-1)).tril(-1).to(self.lower.value)

    def _take_basis(self, unit: int, mean: Tensor, factor: Tensor) -> None:
        assert self.lower is not None
        if self.basis is None or self.offset is None:
            self.basis = torch.eye(len(mean)).to(self.lower.value).expand_as(self.lower.value).clone()
            self.offset = torch.zeros_like(self.mean.value)
        self.basis[unit], self.offset[unit] = factor.to(self.basis), mean.to(self.offset)
        for part in (self.mean, self.log_scale, self.lower):
            part.value[unit] = 0

    @torch.no_grad()
    def drop_basis(self) -> None:
        """Turn the parameters into those of the weights themselves. The prior stays the same."""
        if self.basis is None:
            return
        means, factors = self.means().double(), self.factor().double()
        self.basis = self.offset = None
        for unit, (mean, factor) in enumerate(zip(means, factors, strict=True)):
            self._assign_factor(unit, slice(None), mean, factor)

    def load_bases(self, tensors: Mapping[str, Tensor]) -> None:
        """Make room for the basis and the offset that a file holds.

        Args:
            tensors: The tensors of the file that belong to these units, by name.
        """
        if "basis" in tensors and self.lower is not None:
            self.basis, self.offset = torch.empty_like(self.lower.value), torch.empty_like(self.mean.value)

    def is_standard(self) -> bool:
        """Whether nothing has been learned or set yet."""
        untouched = not bool(self.mean().any()) and torch.equal(self.log_scale(), self.standard_log_scale)
        return untouched and self.basis is None and (self.lower is None or not bool(self.lower().any()))


def _same(one: list[tuple[Tensor, int]], other: list[tuple[Tensor, int]]) -> bool:
    """Whether both lists hold the same tensors, at the same versions of their values."""
    return all(a is b and m == n for (a, m), (b, n) in zip(one, other, strict=True))
