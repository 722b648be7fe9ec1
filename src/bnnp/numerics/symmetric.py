"""Algebra of many small symmetric matrices, with derivatives in closed form: what the last layer is made of.

Every function here is one step of autograd each way: with the samples and outputs of a small network, an operation of
torch costs more than what it computes. Matrices that are given must be symmetric, and stay so when what they are made
of changes: only the symmetric part of a matrix's gradient means anything.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch.autograd.function import once_differentiable

from bnnp._core.shapes import Float, Int, Tensor
from bnnp.numerics.backends import back_end_for
from bnnp.numerics.backends.base import BackEnd, ScaledData, ScaledSolution, ScaledValues
from bnnp.numerics.chunks import in_shares
from bnnp.numerics.health import check_health

SMALL_GROUP = 3
"""Rows of a group up to which products with each of them in turn are faster than many small matrix products."""


class Solved(NamedTuple):
    """Of `S = I + G`: `S^-1`, `a = S^-1 b`, `log |S|`, `b^T a`, `|a|^2` and `tr S^-1 - n`."""

    inverse: Float[Tensor, "*batch n n"]
    solution: Float[Tensor, "*batch n"]
    log_determinant: Float[Tensor, "*batch"]
    quadratic: Float[Tensor, "*batch"]
    norm: Float[Tensor, "*batch"]
    excess_trace: Float[Tensor, "*batch"]


def solve_one_plus(gram: Float[Tensor, "*batch n n"], right: Float[Tensor, "*batch n"]) -> Solved:
    """`I + G` with a right-hand side `b`, for many matrices `G`, none of which has a negative eigenvalue.

    `O(n^3)` each way. In float32 it raises `TooLargeForFloat32` where that is not accurate enough.
    """
    return Solved(*_SolveOnePlus.apply(gram, right))  # pyright: ignore


def quadratic_of_one_plus(
    gram: Float[Tensor, "*batch n n"], right: Float[Tensor, "*batch n"]
) -> tuple[Float[Tensor, "*batch"], Float[Tensor, "*batch"]]:
    """`b^T S^-1 b` and `log |S|` alone, as `solve_one_plus` gives them, with less work for their derivatives."""
    return _QuadraticOfOnePlus.apply(gram, right)  # pyright: ignore


def sums_of_squares(
    rows: Float[Tensor, "*batch n d"], column: Float[Tensor, "*batch n"]
) -> tuple[Float[Tensor, "*batch d d"], Float[Tensor, "*batch d"], Float[Tensor, "*batch"]]:
    """`A^T A`, `A^T r` and `r^T r`, the sums over points of least squares. `O(n d^2)` each way."""
    return _SumsOfSquares.apply(rows, column)  # pyright: ignore


def within_groups(
    rows: Float[Tensor, "*batch groups g d"], matrix: Float[Tensor, "*#batch d d"]
) -> Float[Tensor, "*batch groups g g"]:
    """`W C W^T` for the rows `W` of each group, where all groups share a symmetric `C`. `O(n d (d + g))` each way."""
    return _WithinGroups.apply(rows, matrix)  # pyright: ignore


def products_of_rows(
    left: Float[Tensor, "*batch g d"], right: Float[Tensor, "*#batch g d"]
) -> Float[Tensor, "*batch g g"]:
    """`left right^T`; one column after the other for the many small matrices of small groups."""
    g = left.shape[-2]
    if g > SMALL_GROUP:
        return left @ right.mT
    return torch.stack([(left * right[..., j : j + 1, :]).sum(-1) for j in range(g)], -1)


# --- I + G -----------------------------------------------------------------------------------------------------------


class _SolveOnePlus(torch.autograd.Function):
    """With `X = S^-1`, gradients `G'` of `X`, `a'` of `a`, and `l`, `q`, `m`, `t` of the four numbers in their order:

    `db = k + q a` and `dG = l X - k a^T - X (G' + t I) X`, where `k = X (a' + 2 m a) + q a`.
    """

    @staticmethod
    def forward(ctx, gram: Tensor, right: Tensor):  # pyright: ignore
        inverse, solution, log_determinant, trace = _solve(ctx, gram, right)
        batch = gram.shape[:-2]
        quadratic, norm = (solution * right.reshape(solution.shape)).sum(-1), solution.square().sum(-1)
        numbers = [values.view(batch) for values in (log_determinant, quadratic, norm, trace)]
        return inverse.view(gram.shape), solution.view(right.shape), *numbers

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_inverse: Tensor, grad_solution: Tensor, *grads: Tensor):  # pyright: ignore
        inverse, solution = ctx.saved_tensors
        a = solution.unsqueeze(-1)
        of_log, of_quadratic, of_norm, of_trace = (grad.reshape(-1, 1, 1) for grad in grads)
        pulled = of_quadratic * a
        k = torch.baddbmm(pulled, inverse, torch.addcmul(grad_solution.reshape(a.shape), of_norm, a, value=2))
        middle = torch.baddbmm(of_trace * inverse, grad_inverse.reshape(inverse.shape), inverse)
        grad_gram = torch.addcmul(of_log * inverse, k, a.mT, value=-1).baddbmm_(inverse, middle, alpha=-1)
        return grad_gram.view(grad_inverse.shape), (k + pulled).view(grad_solution.shape)


class _QuadraticOfOnePlus(torch.autograd.Function):
    """With gradients `q` of `b^T S^-1 b` and `l` of `log |S|`: `db = 2 q a` and `dG = l S^-1 - q a a^T`."""

    @staticmethod
    def forward(ctx, gram: Tensor, right: Tensor):  # pyright: ignore
        _, solution, log_determinant, _ = _solve(ctx, gram, right)
        ctx.shapes = gram.shape, right.shape
        batch = gram.shape[:-2]
        return (solution * right.reshape(solution.shape)).sum(-1).view(batch), log_determinant.view(batch)

    @staticmethod
    @once_differentiable
    def backward(ctx, of_quadratic: Tensor, of_log: Tensor):  # pyright: ignore
        inverse, solution = ctx.saved_tensors
        a = solution.unsqueeze(-1)
        pulled = of_quadratic.reshape(-1, 1, 1) * a
        grad_gram = torch.addcmul(of_log.reshape(-1, 1, 1) * inverse, pulled, a.mT, value=-1)
        return grad_gram.view(ctx.shapes[0]), (2 * pulled).view(ctx.shapes[1])


def _solve(ctx, gram: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inverses, solutions, log-determinants and excess traces with one batch axis; the first two are kept in `ctx`."""
    batch, n = gram.shape[:-2], gram.shape[-1]
    count = math.prod(batch)
    matrices, columns = gram.reshape(count, n, n), right.reshape(count, n)
    back_end = back_end_for(n, gram.device)

    def work(chunks: list[slice]) -> list[tuple[Tensor, ...]]:
        return [_solved(back_end, matrices[part], columns[part]) for part in chunks]

    if gram.numel() == 0:
        shares = [[(matrices, columns, *gram.new_zeros(2, count), gram.new_ones(count))]]
    else:
        shares = in_shares(work, count, n * n, gram.device, back_end.IN_CHUNKS)
    parts = [part for share in shares for part in share]
    *found, health = parts[0] if len(parts) == 1 else map(torch.cat, zip(*parts, strict=True))
    check_health(health, (batch[0], count // batch[0], 1) if batch else (1, 1, 1))
    ctx.save_for_backward(*found[:2])
    return found[0], found[1], found[2], found[3]


def _solved(back_end: BackEnd, gram: Float[Tensor, "count n n"], right: Float[Tensor, "count n"]) -> tuple[Tensor, ...]:
    """As `_solve`, with the healths; the compiled loops are faster with the matrices last in memory."""
    count, n = right.shape
    lanes, column = gram.permute(1, 2, 0).contiguous(), right.mT.contiguous()
    packed, solution = gram.new_empty(1, n * (n + 1) // 2, count), torch.empty_like(column)
    numbers = gram.new_empty(3, 1, count)
    back_end.invert_scaled(
        lanes.unsqueeze(0),
        ScaledData(gram.new_ones(1, n, count), column.view(1, n, 1, count)),
        ScaledSolution(packed, solution.view(1, n, 1, count)),
        ScaledValues(*numbers),
    )
    inverse = packed[0].mT[:, _places(n, gram.device)]
    return inverse.contiguous(), solution.mT.contiguous(), *numbers.view(3, count)


@cache
def _places(n: int, device: torch.device) -> Int[Tensor, "n n"]:
    """Where each element of a symmetric matrix is in its packed form."""
    i = torch.arange(n, device=device)
    low, high = torch.minimum(i, i.unsqueeze(-1)), torch.maximum(i, i.unsqueeze(-1))
    return high * (high + 1) // 2 + low


# --- sums over points, and quadratic forms ---------------------------------------------------------------------------


class _SumsOfSquares(torch.autograd.Function):
    """With gradients `G`, `g`, `s` of the three: `dA = A (G + G^T) + r g^T` and `dr = A g + 2 s r`."""

    @staticmethod
    def forward(ctx, rows: Tensor, column: Tensor):  # pyright: ignore
        ctx.save_for_backward(rows, column)
        transposed = rows.mT
        return transposed @ rows, (transposed @ column.unsqueeze(-1)).squeeze(-1), column.square().sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad_gram: Tensor, grad_pull: Tensor, grad_square: Tensor):  # pyright: ignore
        rows, column = ctx.saved_tensors
        grad_rows = (rows @ (grad_gram + grad_gram.mT)).addcmul_(column.unsqueeze(-1), grad_pull.unsqueeze(-2))
        grad_column = (rows @ grad_pull.unsqueeze(-1)).squeeze(-1)
        return grad_rows, grad_column.addcmul_(column, grad_square.unsqueeze(-1), value=2)


class _WithinGroups(torch.autograd.Function):
    """With the symmetric part `E` of a group's gradient: `dW = 2 E W C`, and `dC` is the sum of `W^T E W`."""

    @staticmethod
    def forward(ctx, rows: Tensor, matrix: Tensor):  # pyright: ignore
        left = (rows.flatten(-3, -2) @ matrix).view(rows.shape)
        ctx.save_for_backward(rows, left)
        ctx.shape = matrix.shape
        return products_of_rows(left, rows)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad: Tensor):  # pyright: ignore
        rows, left = ctx.saved_tensors
        twice = grad if grad.shape[-1] == 1 else 0.5 * (grad + grad.mT)
        grad_matrix = rows.flatten(-3, -2).mT @ _combined(twice, rows).flatten(-3, -2)
        return _combined(2 * twice, left), grad_matrix.sum_to_size(ctx.shape)


def _combined(weights: Float[Tensor, "*batch g g"], rows: Float[Tensor, "*batch g d"]) -> Float[Tensor, "*batch g d"]:
    """`E W`; one row after the other for small groups."""
    g = rows.shape[-2]
    if g > SMALL_GROUP:
        return weights @ rows
    total = weights[..., :1] * rows[..., :1, :]
    for j in range(1, g):
        total.addcmul_(weights[..., j : j + 1], rows[..., j : j + 1, :])
    return total
