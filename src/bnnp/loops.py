"""Loops over many small symmetric matrices, compiled for the CPU: what LAPACK does one by one, many at a time.

Matrices of a chunk have the units as their innermost axis, so that one instruction works on `LANES` matrices. Symmetric
matrices are packed by rows of their lower triangle, `a[i, j]` at `i (i + 1) / 2 + j`, into a *pairs* axis.

Against `torch.linalg` (Cholesky, triangular solve, product) on two cores the inverse takes a ninth of the time for
matrices of size 21 and a third for size 65 (`docs/performance.md`).
"""

from typing import no_type_check

import numba
import numpy as np

LANES = 64
"""Matrices that one thread works on at a time."""
_COMPILED = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",  # dividing by zero gives an infinity, which the caller sees, and loops stay vectorised
    "fastmath": {"contract", "nsz", "arcp", "reassoc"},  # values that are not finite must stay visible
}


@numba.njit(**_COMPILED)
@no_type_check
def _invert_block(block, count, diagonal, lower, reciprocal, health, log_determinant):
    """Minus the inverse of full matrices `block (count, count, lanes)`, in place, one pivot after the other.

    Leaves `block = L P L^T` in `lower` (below its unit diagonal) and `reciprocal = 1 / P`.
    """
    width = block.shape[2]
    column = np.empty((count, width), block.dtype)
    product = np.ones(width)  # of few pivots, in float64: one logarithm for all of them
    for k in range(count):
        for lane in range(width):
            share = block[k, k, lane] / diagonal[k, lane]
            health[lane] = share if share < health[lane] else health[lane]
        for lane in range(width):
            product[lane] *= block[k, k, lane]
        for lane in range(width):
            block[k, k, lane] = 1 / block[k, k, lane]
        for i in range(count):
            for lane in range(width):
                column[i, lane] = block[i, k, lane]
        for lane in range(width):
            reciprocal[k, lane] = column[k, lane]
        for i in range(k + 1, count):
            for lane in range(width):
                lower[i, k, lane] = column[i, lane] * column[k, lane]
        for i in range(count):
            if i != k:
                for j in range(count):
                    if j != k:
                        for lane in range(width):
                            block[i, j, lane] -= column[i, lane] * column[j, lane] * column[k, lane]
        for i in range(count):
            if i != k:
                for lane in range(width):
                    block[i, k, lane] = column[i, lane] * column[k, lane]
                for lane in range(width):
                    block[k, i, lane] = block[i, k, lane]
        for lane in range(width):
            block[k, k, lane] = -column[k, lane]
    for lane in range(width):
        log_determinant[lane] += np.log(product[lane])


@numba.njit(**_COMPILED)
@no_type_check
def _invert(a, health):
    """The inverse of the lower triangles `a (n, n, lanes)`, in place, by sweeping four pivots at a time.

    With pivots `K`, `a[K, K] = L P L^T` and `C = a[:, K] L^-T`: `a -= C P^-1 C^T`, `a[:, K] = C P^-1 L^-1`,
    `a[K, K] = -a[K, K]^-1`; after all of them `a` is minus the inverse. Four at a time, `a` goes through the cache a
    quarter as often. The triangles keep the digits that a product with `a[K, K]^-1` would lose for collinear features.

    Returns `log |a|`. `health` is the least share of a diagonal element that was left when it became the pivot, the
    scale-free sign of a matrix that is nearly singular; NaN where a pivot was not positive.
    """
    n, _, width = a.shape
    column = np.zeros((n, 4, width), a.dtype)
    scaled = np.zeros((n, 4, width), a.dtype)
    block = np.empty((4, 4, width), a.dtype)
    lower = np.empty((4, 4, width), a.dtype)
    reciprocal = np.empty((4, width), a.dtype)
    diagonal = np.empty((n, width), a.dtype)
    log_determinant = np.zeros(width, a.dtype)
    for i in range(n):
        for lane in range(width):
            diagonal[i, lane] = a[i, i, lane]
    for lane in range(width):
        health[lane] = 1
    for start in range(0, n, 4):
        stop = min(start + 4, n)
        count = stop - start
        for p in range(count):
            for q in range(p + 1):
                for lane in range(width):
                    block[p, q, lane] = a[start + p, start + q, lane]
                for lane in range(width):
                    block[q, p, lane] = block[p, q, lane]
        _invert_block(block, count, diagonal[start:stop], lower, reciprocal, health, log_determinant)
        for i in range(n):
            for p in range(4):  # the last pivots may be fewer than four
                for lane in range(width):
                    column[i, p, lane] = 0
                for lane in range(width):
                    scaled[i, p, lane] = 0
            if i < start or i >= stop:
                for p in range(count):
                    if i < start:
                        for lane in range(width):
                            column[i, p, lane] = a[start + p, i, lane]
                    else:
                        for lane in range(width):
                            column[i, p, lane] = a[i, start + p, lane]
                for p in range(count):
                    for q in range(p):
                        for lane in range(width):
                            column[i, p, lane] -= column[i, q, lane] * lower[p, q, lane]
                    for lane in range(width):
                        scaled[i, p, lane] = column[i, p, lane] * reciprocal[p, lane]
        for i in range(n):
            if i < start or i >= stop:
                for j in range(min(i + 1, start)):
                    for lane in range(width):
                        a[i, j, lane] -= (
                            column[i, 0, lane] * scaled[j, 0, lane]
                            + column[i, 1, lane] * scaled[j, 1, lane]
                            + column[i, 2, lane] * scaled[j, 2, lane]
                            + column[i, 3, lane] * scaled[j, 3, lane]
                        )
                for j in range(stop, i + 1):
                    for lane in range(width):
                        a[i, j, lane] -= (
                            column[i, 0, lane] * scaled[j, 0, lane]
                            + column[i, 1, lane] * scaled[j, 1, lane]
                            + column[i, 2, lane] * scaled[j, 2, lane]
                            + column[i, 3, lane] * scaled[j, 3, lane]
                        )
        for i in range(n):
            for p in range(count - 1, -1, -1):
                for q in range(p + 1, count):
                    for lane in range(width):
                        scaled[i, p, lane] -= scaled[i, q, lane] * lower[q, p, lane]
                if i < start:
                    for lane in range(width):
                        a[start + p, i, lane] = scaled[i, p, lane]
                elif i >= stop:
                    for lane in range(width):
                        a[i, start + p, lane] = scaled[i, p, lane]
        for p in range(count):
            for q in range(p + 1):
                for lane in range(width):
                    a[start + p, start + q, lane] = block[p, q, lane]
    for i in range(n):
        for j in range(i + 1):
            for lane in range(width):
                a[i, j, lane] = -a[i, j, lane]
    for lane in range(width):
        if not (health[lane] > 0 and np.isfinite(log_determinant[lane])):
            health[lane] = np.nan
    return log_determinant


@numba.njit(**_COMPILED)
@no_type_check
def _mirror(a):
    """Fill the upper triangles."""
    width = a.shape[2]
    for i in range(a.shape[0]):
        for j in range(i):
            for lane in range(width):
                a[j, i, lane] = a[i, j, lane]


@numba.njit(**_COMPILED)
@no_type_check
def _times(a, b, out, lower):
    """`a b` for full `a (n, n, lanes)` and columns `b (n, columns, lanes)`; `lower` leaves out columns beyond the row.

    Four terms at a time, so that `out` is read and written a quarter as often.
    """
    n, all_columns, width = b.shape
    fours = n - n % 4
    for i in range(n):
        columns = i + 1 if lower else all_columns
        for c in range(columns):
            for lane in range(width):
                out[i, c, lane] = 0
        for j in range(0, fours, 4):
            for c in range(columns):
                for lane in range(width):
                    out[i, c, lane] += (
                        a[i, j, lane] * b[j, c, lane]
                        + a[i, j + 1, lane] * b[j + 1, c, lane]
                        + a[i, j + 2, lane] * b[j + 2, c, lane]
                        + a[i, j + 3, lane] * b[j + 3, c, lane]
                    )
        for j in range(fours, n):
            for c in range(columns):
                for lane in range(width):
                    out[i, c, lane] += a[i, j, lane] * b[j, c, lane]


@numba.njit(**_COMPILED)
@no_type_check
def _matrix_gradient(a, x, h, squared, grad_log, grad_trace):
    """`g M^-1 - t squared - (H X^T + X H^T)/2`, lower triangles, into `squared`."""
    n, columns, width = x.shape
    half = a.dtype.type(0.5)
    for i in range(n):
        for j in range(i + 1):
            for lane in range(width):
                squared[i, j, lane] = grad_log[lane] * a[i, j, lane] - grad_trace[lane] * squared[i, j, lane]
        for c in range(columns):
            for j in range(i + 1):
                for lane in range(width):
                    squared[i, j, lane] -= half * (h[i, c, lane] * x[j, c, lane] + h[j, c, lane] * x[i, c, lane])


@numba.njit(**_COMPILED)
@no_type_check
def _run(lane, lanes, first, units):
    """The row and unit that a lane stands for, and how many lanes from it on lie in the same row.

    Unsigned, so that the compiler need not think of indices that count from the end, and loops stay vectorised.
    """
    place = first + np.int64(lane)
    unit = place % units
    return np.uint64(place // units), np.uint64(unit), np.uint64(min(lanes - np.int64(lane), units - unit))


@numba.njit(**_COMPILED)
@no_type_check
def _load_columns(source, target, first, lanes):
    """Columns of this block's lanes, from (rows, n, columns, units) to (n, columns, LANES)."""
    units = source.shape[3]
    lane = np.uint64(0)
    while lane < lanes:
        r, u, m = _run(lane, lanes, first, units)
        for i in range(target.shape[0]):
            for c in range(target.shape[1]):
                for q in range(m):
                    target[i, c, lane + q] = source[r, i, c, u + q]
        lane += m


@numba.njit(**_COMPILED)
@no_type_check
def _store_columns(source, target, first, lanes):
    units = target.shape[3]
    lane = np.uint64(0)
    while lane < lanes:
        r, u, m = _run(lane, lanes, first, units)
        for i in range(source.shape[0]):
            for c in range(source.shape[1]):
                for q in range(m):
                    target[r, i, c, u + q] = source[i, c, lane + q]
        lane += m


@numba.njit(**_COMPILED)
@no_type_check
def _load_packed(source, target, first, lanes):
    """Lower triangles of this block's lanes, from (rows, pairs, units) to (n, n, LANES)."""
    units = source.shape[2]
    lane = np.uint64(0)
    while lane < lanes:
        r, u, m = _run(lane, lanes, first, units)
        for i in range(target.shape[0]):
            for j in range(i + 1):
                for q in range(m):
                    target[i, j, lane + q] = source[r, i * (i + 1) // 2 + j, u + q]
        lane += m


@numba.njit(**_COMPILED)
@no_type_check
def _store_packed(source, target, first, lanes):
    units = target.shape[2]
    lane = np.uint64(0)
    while lane < lanes:
        r, u, m = _run(lane, lanes, first, units)
        for i in range(source.shape[0]):
            for j in range(i + 1):
                for q in range(m):
                    target[r, i * (i + 1) // 2 + j, u + q] = source[i, j, lane + q]
        lane += m


@numba.njit(**_COMPILED)
@no_type_check
def _load_precision(precision, target, first, lanes):
    """The prior precision of each lane: full matrices from (pairs, units), or their diagonals from (d, units)."""
    units = precision.shape[1]
    n = target.shape[0]
    lane = np.uint64(0)
    while lane < lanes:
        _, u, m = _run(lane, lanes, first, units)
        if precision.shape[0] == n:
            for i in range(n):
                for q in range(m):
                    target[i, 0, lane + q] = precision[i, u + q]
        else:
            for i in range(n):
                for j in range(i + 1):
                    for q in range(m):
                        target[i, j, lane + q] = precision[i * (i + 1) // 2 + j, u + q]
        lane += m


@numba.njit(**_COMPILED)
@no_type_check
def _sandwich(a, p, is_diagonal, half, out):
    """The lower triangles of `a p a`; `half` is room for `p a`."""
    n, _, width = a.shape
    if is_diagonal:
        for i in range(n):
            for j in range(n):
                for lane in range(width):
                    half[i, j, lane] = p[i, 0, lane] * a[i, j, lane]
    else:
        _mirror(p)
        _times(p, a, half, False)
    _times(a, half, out, True)


@numba.njit(**_COMPILED)
@no_type_check
def _load_values(source, target, first, lanes):
    units = source.shape[1]
    lane = np.uint64(0)
    while lane < lanes:
        r, u, m = _run(lane, lanes, first, units)
        for q in range(m):
            target[lane + q] = source[r, u + q]
        lane += m


@numba.njit(**_COMPILED)
@no_type_check
def _store_values(source, target, first, lanes):
    units = target.shape[1]
    lane = np.uint64(0)
    while lane < lanes:
        r, u, m = _run(lane, lanes, first, units)
        for q in range(m):
            target[r, u + q] = source[lane + q]
        lane += m


# --- function space: M = I + diag(s) gram diag(s) --------------------------------------------------------------------


@numba.njit(**_COMPILED)
@no_type_check
def invert_scaled(gram, scale, right, inverse, solution, log_determinant, excess_trace, health):
    _, n, columns, units = right.shape
    a = np.zeros((n, n, LANES), gram.dtype)
    b = np.zeros((n, columns, LANES), gram.dtype)
    x = np.empty((n, columns, LANES), gram.dtype)
    trace = np.zeros(LANES, gram.dtype)
    good = np.empty(LANES, gram.dtype)
    count = right.shape[0] * units
    for first in range(0, count, LANES):
        lanes = min(LANES, count - first)
        lane = np.uint64(0)
        while lane < lanes:
            r, u, m = _run(lane, lanes, first, units)
            for i in range(n):
                for j in range(i + 1):
                    for q in range(m):
                        a[i, j, lane + q] = gram[r, i, j, u + q] * scale[r, i, u + q] * scale[r, j, u + q]
            lane += m
        for i in range(n):
            for lane in range(LANES):
                a[i, i, lane] += 1
        _load_columns(right, b, first, lanes)
        logs = _invert(a, good)
        _mirror(a)
        _times(a, b, x, False)
        trace[:] = 0
        for i in range(n):
            for lane in range(LANES):
                trace[lane] += a[i, i, lane] - 1
        _store_packed(a, inverse, first, lanes)
        _store_columns(x, solution, first, lanes)
        _store_values(logs, log_determinant, first, lanes)
        _store_values(trace, excess_trace, first, lanes)
        _store_values(good, health, first, lanes)


@numba.njit(**_COMPILED)
@no_type_check
def differentiate_scaled(
    inverse, scale, right, solution, grad_solution, grad_log, grad_trace, grad_gram, grad_scale, grad_right
):
    _, n, columns, units = right.shape
    half = inverse.dtype.type(0.5)
    a = np.zeros((n, n, LANES), inverse.dtype)
    e = np.empty((n, n, LANES), inverse.dtype)
    b = np.zeros((n, columns, LANES), inverse.dtype)
    g = np.zeros((n, columns, LANES), inverse.dtype)
    h = np.empty((n, columns, LANES), inverse.dtype)
    x = np.zeros((n, columns, LANES), inverse.dtype)
    logs = np.zeros(LANES, inverse.dtype)
    traces = np.zeros(LANES, inverse.dtype)
    excess = np.empty((n, LANES), inverse.dtype)
    count = right.shape[0] * units
    for first in range(0, count, LANES):
        lanes = min(LANES, count - first)
        _load_packed(inverse, a, first, lanes)
        _load_columns(right, b, first, lanes)
        _load_columns(solution, x, first, lanes)
        _load_columns(grad_solution, g, first, lanes)
        _load_values(grad_log, logs, first, lanes)
        _load_values(grad_trace, traces, first, lanes)
        _mirror(a)
        _times(a, g, h, False)
        _times(a, a, e, True)
        _matrix_gradient(a, x, h, e, logs, traces)
        # diag(E (M - I)): E M needs no product with M, since M X = B and M H = G
        for i in range(n):
            for lane in range(LANES):
                excess[i, lane] = logs[lane] - traces[lane] * a[i, i, lane] - e[i, i, lane]
            for c in range(columns):
                for lane in range(LANES):
                    excess[i, lane] -= half * (h[i, c, lane] * b[i, c, lane] + x[i, c, lane] * g[i, c, lane])
        lane = np.uint64(0)
        while lane < lanes:
            r, u, m = _run(lane, lanes, first, units)
            for i in range(n):
                for q in range(m):
                    s = scale[r, i, u + q]
                    grad_scale[r, i, u + q] = 2 * excess[i, lane + q] / s if s > 0 else 0
                for j in range(i + 1):
                    for q in range(m):
                        e[i, j, lane + q] *= scale[r, i, u + q] * scale[r, j, u + q]
                    for q in range(m):
                        grad_gram[r, i, j, u + q] = e[i, j, lane + q]
                    for q in range(m):
                        grad_gram[r, j, i, u + q] = e[i, j, lane + q]
            lane += m
        _store_columns(h, grad_right, first, lanes)


# --- weight space: Q = precision + gram ------------------------------------------------------------------------------


@numba.njit(**_COMPILED)
@no_type_check
def invert_added(precision, inverse, right, solution, log_determinant, trace, health):
    _, n, columns, units = right.shape
    a = np.zeros((n, n, LANES), inverse.dtype)
    is_diagonal = precision.shape[0] == n
    p = np.zeros((n, 1 if is_diagonal else n, LANES), inverse.dtype)
    b = np.zeros((n, columns, LANES), inverse.dtype)
    x = np.empty((n, columns, LANES), inverse.dtype)
    traces = np.zeros(LANES, inverse.dtype)
    good = np.empty(LANES, inverse.dtype)
    count = solution.shape[0] * units
    for first in range(0, count, LANES):
        lanes = min(LANES, count - first)
        _load_packed(inverse, a, first, lanes)
        _load_precision(precision, p, first, lanes)
        _load_columns(right, b, first, lanes)
        for i in range(n):
            for j in range(i if is_diagonal else 0, i + 1):
                for lane in range(LANES):
                    a[i, j, lane] += p[i, 0 if is_diagonal else j, lane]
        logs = _invert(a, good)
        traces[:] = 0
        for i in range(n):
            if not is_diagonal:
                for j in range(i):
                    for lane in range(LANES):
                        traces[lane] += 2 * a[i, j, lane] * p[i, j, lane]
            for lane in range(LANES):
                traces[lane] += a[i, i, lane] * p[i, 0 if is_diagonal else i, lane] - 1
        _mirror(a)
        _times(a, b, x, False)
        _store_packed(a, inverse, first, lanes)
        _store_columns(x, solution, first, lanes)
        _store_values(logs, log_determinant, first, lanes)
        _store_values(traces, trace, first, lanes)
        _store_values(good, health, first, lanes)


@numba.njit(**_COMPILED)
@no_type_check
def differentiate_added(precision, inverse, solution, grad_solution, grad_log, grad_trace, grad_gram, grad_right):
    _, n, columns, units = solution.shape
    a = np.zeros((n, n, LANES), inverse.dtype)
    is_diagonal = precision.shape[0] == n
    p = np.zeros((n, 1 if is_diagonal else n, LANES), inverse.dtype)
    e = np.empty((n, n, LANES), inverse.dtype)
    g = np.zeros((n, columns, LANES), inverse.dtype)
    h = np.empty((n, columns, LANES), inverse.dtype)
    x = np.zeros((n, columns, LANES), inverse.dtype)
    logs = np.zeros(LANES, inverse.dtype)
    traces = np.zeros(LANES, inverse.dtype)
    weighted = np.empty((n, n, LANES), inverse.dtype)
    count = solution.shape[0] * units
    for first in range(0, count, LANES):
        lanes = min(LANES, count - first)
        _load_packed(inverse, a, first, lanes)
        _load_precision(precision, p, first, lanes)
        _load_columns(solution, x, first, lanes)
        _load_columns(grad_solution, g, first, lanes)
        _load_values(grad_log, logs, first, lanes)
        _load_values(grad_trace, traces, first, lanes)
        _mirror(a)
        _times(a, g, h, False)
        _sandwich(a, p, is_diagonal, weighted, e)
        _matrix_gradient(a, x, h, e, logs, traces)
        for i in range(n):
            for j in range(i):
                for lane in range(LANES):
                    e[i, j, lane] *= 2
        _store_packed(e, grad_gram, first, lanes)
        _store_columns(h, grad_right, first, lanes)


@numba.njit(**_COMPILED)
@no_type_check
def pair_products(phi, out):
    rows, n, d = phi.shape
    for row in range(rows):
        for k in range(n):
            for i in range(d):
                start = i * (i + 1) // 2
                for j in range(i + 1):
                    out[row, k, start + j] = phi[row, k, i] * phi[row, k, j]


@numba.njit(**_COMPILED)
@no_type_check
def differentiate_pair_products(phi, grad, out):
    rows, n, d = phi.shape
    for row in range(rows):
        for k in range(n):
            for i in range(d):
                start = i * (i + 1) // 2
                total = phi[row, k, i] * grad[row, k, start + i]
                for j in range(i):
                    out[row, k, j] += phi[row, k, i] * grad[row, k, start + j]
                for j in range(i + 1):
                    total += phi[row, k, j] * grad[row, k, start + j]
                out[row, k, i] = total
