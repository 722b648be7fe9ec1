"""The contract of a back end: five operations on many small matrices at once, and the records that they take and fill.

Arrays have rows first, a row for each task and each sample of the features, and units last. Symmetric matrices are
packed by rows of their lower triangle, `a[i, j]` at `i (i + 1) / 2 + j`, into a *pairs* axis. The caller makes all
tensors, contiguous, of one kind and on one device; a back end writes its results into those that are for results.

*Health* is the least share of a diagonal element that was left when it became the pivot: near 1 for a matrix without
trouble, near 0 for one that is nearly singular, NaN for one that is not positive definite.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, Self

from bnnp._core.shapes import Float, Tensor


@dataclass(frozen=True)
class Record:
    """Tensors that belong together. Going through a record gives them in the order in which they are declared."""

    def __iter__(self) -> Iterator[Any]:
        return iter(vars(self).values())


@dataclass(frozen=True)
class Rows(Record):
    """A record whose tensors all have the same rows."""

    def rows(self, part: slice) -> Self:
        """Some rows of all tensors; a slice of everything is worth no operation."""
        if part == slice(0, len(next(iter(self)))):
            return self
        return type(self)(*(tensor[part] for tensor in self))


# --- function space: M = I + diag(s) gram diag(s) --------------------------------------------------------------------


@dataclass(frozen=True)
class ScaledData(Rows):
    """What matrices `M` and solves with them are made of, beside the Gram matrix."""

    scale: Float[Tensor, "rows n units"]
    right: Float[Tensor, "rows n columns units"]


@dataclass(frozen=True)
class ScaledSolution(Rows):
    """`M^-1`, packed, and `M^-1 right`: kept for the derivatives."""

    inverse: Float[Tensor, "rows pairs units"]
    solved: Float[Tensor, "rows n columns units"]


@dataclass(frozen=True)
class ScaledValues(Rows):
    """`log |M|`, `tr M^-1 - n` and the health of `M`."""

    log_determinant: Float[Tensor, "rows units"]
    excess_trace: Float[Tensor, "rows units"]
    health: Float[Tensor, "rows units"]


@dataclass(frozen=True)
class ScaledGradients(Rows):
    """Derivatives of the objective by what `invert_scaled` gives."""

    solved: Float[Tensor, "rows n columns units"]
    log_determinant: Float[Tensor, "rows units"]
    excess_trace: Float[Tensor, "rows units"]


@dataclass(frozen=True)
class ScaledInputGradients(Rows):
    """Derivatives by what `invert_scaled` takes. That by the Gram matrix is symmetric."""

    gram: Float[Tensor, "rows n n units"]
    scale: Float[Tensor, "rows n units"]
    right: Float[Tensor, "rows n columns units"]


# --- weight space: Q = precision + phi^T diag(s)^2 phi + rest --------------------------------------------------------


@dataclass(frozen=True)
class UpdateData(Record):
    """What an update and its derivatives need. A row of `mean`, `scale` and `y` may stand for several of `phi`.

    Attributes:
        precision: Of the prior, packed or diagonal.
        mean: Of the prior.
        phi: Features.
        scale: `1/s` of every point.
        y: Observations.
        draws: `e`, for the samples.
    """

    precision: Float[Tensor, "1 prior_pairs units"]
    mean: Float[Tensor, "mean_rows d units"]
    phi: Float[Tensor, "rows n d"]
    scale: Float[Tensor, "scale_rows n units"]
    y: Float[Tensor, "y_rows n units"]
    draws: Float[Tensor, "tasks samples n units"]


@dataclass(frozen=True)
class UpdateOffsets(Record):
    """What else an update needs, and its derivatives do not.

    Attributes:
        log_scale: `log |L|`.
        start: `L^-T v0`, for the samples.
        rest: What other points add to `Q`, packed, or none.
        shift: What they add to `phi^T D r`.
    """

    log_scale: Float[Tensor, "1 1 units"]
    start: Float[Tensor, "tasks samples d units"]
    rest: Float[Tensor, "rows pairs units"] | None
    shift: Float[Tensor, "rows d units"] | None


@dataclass(frozen=True)
class UpdateSolution(Record):
    """`Q^-1`, packed, posterior means and samples, both less the prior mean: kept for the derivatives."""

    inverse: Float[Tensor, "rows pairs units"]
    centre: Float[Tensor, "rows d units"]
    centred: Float[Tensor, "tasks samples d units"]


@dataclass(frozen=True)
class UpdateValues(Record):
    """KL to the prior, log evidence, and the health of `Q`."""

    kl: Float[Tensor, "tasks phi_samples units"]
    log_evidence: Float[Tensor, "tasks phi_samples units"]
    health: Float[Tensor, "tasks phi_samples units"]


@dataclass(frozen=True)
class UpdateGradients(Record):
    """Derivatives of the objective by what `update` gives."""

    centred: Float[Tensor, "tasks samples d units"]
    kl: Float[Tensor, "tasks phi_samples units"]
    log_evidence: Float[Tensor, "tasks phi_samples units"]


@dataclass(frozen=True)
class UpdateInputGradients(Record):
    """Derivatives by what `update` takes, of each row by itself.

    That by the precision, a symmetric matrix, is added up over rows. It and that by `phi` may be unwanted.
    """

    precision: Float[Tensor, "1 prior_pairs units"] | None
    phi: Float[Tensor, "rows n d"] | None
    scale: Float[Tensor, "rows n units"]
    y: Float[Tensor, "rows n units"]
    start: Float[Tensor, "tasks samples d units"]
    shift: Float[Tensor, "rows d units"]


class BackEnd(Protocol):
    """What `solve.py` asks of a back end, which is a module with these functions."""

    IN_CHUNKS: bool
    """Whether rows should come in chunks, so that what it makes on the way stays in the cache."""

    def invert_scaled(
        self, gram: Float[Tensor, "rows n n units"], data: ScaledData, solution: ScaledSolution, values: ScaledValues
    ) -> None:
        """Invert `M = I + diag(s) gram diag(s)` and solve with it, into `solution` and `values`."""
        ...

    def differentiate_scaled(
        self, data: ScaledData, solution: ScaledSolution, gradients: ScaledGradients, into: ScaledInputGradients
    ) -> None:
        """Derivatives of `invert_scaled`, into `into`."""
        ...

    def add_weighted_gram(
        self,
        part: slice,
        phi: Float[Tensor, "rows n d"],
        scale: Float[Tensor, "scale_rows n units"],
        gram: Float[Tensor, "rows pairs units"],
    ) -> None:
        """Add `phi^T diag(s)^2 phi` of every unit to `gram`, for a part of the rows."""
        ...

    def update(
        self, part: slice, data: UpdateData, offsets: UpdateOffsets, solution: UpdateSolution, values: UpdateValues
    ) -> float:
        """The update of `gaussian.py` in weight space for a part of the rows, into `solution` and `values`.

        With `D = diag(s)`, `r = D (y - phi mean)`, `Q = precision + phi^T D^2 phi + rest` and `b = phi^T D r + shift`,
        posterior means are `Q^-1 b` and samples `Q^-1 (b + start - phi^T D draws)`.

        Returns:
            The least health, NaN where one is.
        """
        ...

    def differentiate_update(
        self,
        part: slice,
        data: UpdateData,
        solution: UpdateSolution,
        gradients: UpdateGradients,
        into: UpdateInputGradients,
    ) -> None:
        """Derivatives of `update` for a part of the rows, into `into`."""
        ...
