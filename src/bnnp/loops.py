"""Loops over many small symmetric matrices, compiled for the CPU: what LAPACK does one by one, many at a time.

A block of `LANES` matrices is worked on at once, each operation on a vector of their elements: block arrays have a last
axis of `LANES`. Arrays of the caller have the units last and, before them, matrices packed by rows of their lower
triangle, `a[i, j]` at `i (i + 1) / 2 + j`, into a *pairs* axis. `docs/performance.md` compares with `torch.linalg`.
"""

from typing import no_type_check

import numba
import numpy as np

from bnnp.vectors import LANES, get, lesser, put, spread

_COMPILED = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",  # dividing by zero gives an infinity, which the caller sees, and loops stay vectorised
    "fastmath": {"contract", "nsz", "arcp", "reassoc"},  # values that are not finite must stay visible
}


# --- between the caller's arrays and blocks --------------------------------------------------------------------------


@numba.njit(**_COMPILED)
@no_type_check
def _run(lane, first, count, units):
    """The row and unit of the matrix in a lane of the block that begins with matrix `first`, and how many lanes from it
    on are in the same row. Unsigned, so that the compiler need not think of indices that count from the end."""
    place = first + np.int64(lane)
    unit = place % units
    length = min(min(LANES, count - first) - np.int64(lane), units - unit)
    return np.uint64(place // units), np.uint64(unit), np.uint64(length)


@numba.njit(**_COMPILED)
@no_type_check
def _load(source, target, first, begin, end):
    """Elements `begin` to `end` of a block's matrices, from (rows, elements, units) to (elements, LANES)."""
    rows, _, units = source.shape
    lane = np.uint64(0)
    while lane < LANES and first + lane < rows * units:
        row, unit, length = _run(lane, first, rows * units, units)
        if length == LANES:
            for e in range(begin, end):
                put(target, (e,), get(source, (row, e, unit)))
        else:
            for e in range(np.uint64(begin), np.uint64(end)):
                for q in range(length):
                    target[e, lane + q] = source[row, e, unit + q]
        lane += length


@numba.njit(**_COMPILED)
@no_type_check
def _store(source, target, first):
    """The way back from `_load`."""
    rows, elements, units = target.shape
    lane = np.uint64(0)
    while lane < LANES and first + lane < rows * units:
        row, unit, length = _run(lane, first, rows * units, units)
        if length == LANES:
            for e in range(elements):
                put(target, (row, e, unit), get(source, (e,)))
        else:
            for e in range(np.uint64(elements)):
                for q in range(length):
                    target[row, e, unit + q] = source[e, lane + q]
        lane += length


@numba.njit(**_COMPILED)
@no_type_check
def _unpack(packed, a):
    """Both triangles of matrices."""
    k = 0
    for i in range(a.shape[0]):
        for j in range(i + 1):
            element = get(packed, (k,))
            put(a, (i, j), element)
            put(a, (j, i), element)
            k += 1


@numba.njit(**_COMPILED)
@no_type_check
def _pack(a, packed):
    k = 0
    for i in range(a.shape[0]):
        for j in range(i + 1):
            put(packed, (k,), get(a, (i, j)))
            k += 1


# --- on blocks -------------------------------------------------------------------------------------------------------


@numba.njit(**_COMPILED)
@no_type_check
def _add_tile_2x4(out, a, b, i, j):
    """`out += a b` for two rows and four columns, whose sums stay in registers."""
    s00, s01, s02, s03 = get(out, (i, j)), get(out, (i, j + 1)), get(out, (i, j + 2)), get(out, (i, j + 3))
    s10, s11, s12, s13 = (
        get(out, (i + 1, j)),
        get(out, (i + 1, j + 1)),
        get(out, (i + 1, j + 2)),
        get(out, (i + 1, j + 3)),
    )
    for t in range(b.shape[0]):
        a0, a1 = get(a, (i, t)), get(a, (i + 1, t))
        b0, b1, b2, b3 = get(b, (t, j)), get(b, (t, j + 1)), get(b, (t, j + 2)), get(b, (t, j + 3))
        s00, s01, s02, s03 = s00 + a0 * b0, s01 + a0 * b1, s02 + a0 * b2, s03 + a0 * b3
        s10, s11, s12, s13 = s10 + a1 * b0, s11 + a1 * b1, s12 + a1 * b2, s13 + a1 * b3
    put(out, (i, j), s00)
    put(out, (i, j + 1), s01)
    put(out, (i, j + 2), s02)
    put(out, (i, j + 3), s03)
    put(out, (i + 1, j), s10)
    put(out, (i + 1, j + 1), s11)
    put(out, (i + 1, j + 2), s12)
    put(out, (i + 1, j + 3), s13)


@numba.njit(**_COMPILED)
@no_type_check
def _add_tile_1x4(out, a, b, i, j):
    s0, s1, s2, s3 = get(out, (i, j)), get(out, (i, j + 1)), get(out, (i, j + 2)), get(out, (i, j + 3))
    for t in range(b.shape[0]):
        a0 = get(a, (i, t))
        s0, s1 = s0 + a0 * get(b, (t, j)), s1 + a0 * get(b, (t, j + 1))
        s2, s3 = s2 + a0 * get(b, (t, j + 2)), s3 + a0 * get(b, (t, j + 3))
    put(out, (i, j), s0)
    put(out, (i, j + 1), s1)
    put(out, (i, j + 2), s2)
    put(out, (i, j + 3), s3)


@numba.njit(**_COMPILED)
@no_type_check
def _add_tile_4x1(out, a, b, i, j):
    s0, s1, s2, s3 = get(out, (i, j)), get(out, (i + 1, j)), get(out, (i + 2, j)), get(out, (i + 3, j))
    for t in range(b.shape[0]):
        b0 = get(b, (t, j))
        s0, s1 = s0 + get(a, (i, t)) * b0, s1 + get(a, (i + 1, t)) * b0
        s2, s3 = s2 + get(a, (i + 2, t)) * b0, s3 + get(a, (i + 3, t)) * b0
    put(out, (i, j), s0)
    put(out, (i + 1, j), s1)
    put(out, (i + 2, j), s2)
    put(out, (i + 3, j), s3)


@numba.njit(**_COMPILED)
@no_type_check
def _add_tile_1x1(out, a, b, i, j):
    total = get(out, (i, j))
    for t in range(b.shape[0]):
        total = total + get(a, (i, t)) * get(b, (t, j))
    put(out, (i, j), total)


@numba.njit(**_COMPILED)
@no_type_check
def _add_product(out, a, b, lower):
    """`out += a b`; with `lower`, for square `out`, its lower triangle (and some elements above it)."""
    n, columns, _ = out.shape
    twos, fours = n - n % 2, columns - columns % 4
    for i in range(0, twos, 2):
        last = min(fours, (i + 5) // 4 * 4) if lower else fours
        for j in range(0, last, 4):
            _add_tile_2x4(out, a, b, i, j)
    for i in range(twos, n):
        for j in range(0, fours, 4):
            _add_tile_1x4(out, a, b, i, j)
    for j in range(fours, columns):
        begin = fours if lower else 0
        end = n - (n - begin) % 4
        for i in range(begin, end, 4):
            _add_tile_4x1(out, a, b, i, j)
        for i in range(end, n):
            _add_tile_1x1(out, a, b, i, j)


@numba.njit(**_COMPILED)
@no_type_check
def _multiply(a, b, out, lower):
    """`a b`, or the lower triangle of it."""
    nothing = spread(a.dtype.type(0))
    for i in range(out.shape[0]):
        for c in range(out.shape[1]):
            put(out, (i, c), nothing)
    _add_product(out, a, b, lower)


@numba.njit(**_COMPILED)
@no_type_check
def _invert_pivots(block, count, diagonal, lower, reciprocal, health, log_determinant):
    """Minus the inverse of the full matrices `block (count, count)`, in place, one pivot after the other.

    Leaves `block = L P L^T` in `lower` (below its unit diagonal) and `reciprocal = 1 / P`.
    """
    one = spread(block.dtype.type(1))
    column = np.empty((count, LANES), block.dtype)
    product = np.ones(LANES)  # of few pivots, in float64: one logarithm for all of them
    for k in range(count):
        pivot = get(block, (k, k))
        put(health, (0,), lesser(pivot / get(diagonal, (k,)), get(health, (0,))))
        for lane in range(LANES):
            product[lane] *= block[k, k, lane]
        inverse = one / pivot
        put(reciprocal, (k,), inverse)
        for i in range(count):
            put(column, (i,), get(block, (i, k)))
        for i in range(count):
            if i != k:
                scaled = get(column, (i,)) * inverse
                for j in range(count):
                    if j != k:
                        put(block, (i, j), get(block, (i, j)) - scaled * get(column, (j,)))
                put(block, (i, k), scaled)
                put(block, (k, i), scaled)
                put(lower, (i, k), scaled)
        put(block, (k, k), -inverse)
    for lane in range(LANES):
        log_determinant[lane] += np.log(product[lane])


@numba.njit(**_COMPILED)
@no_type_check
def _invert(a, health, log_determinant):
    """The inverse of the matrices `a (n, n)`, in place, by sweeping four pivots at a time.

    With pivots `K`, `a[K, K] = L P L^T` and `C = a[:, K] L^-T`: `a -= C P^-1 C^T`, `a[:, K] = C P^-1 L^-1`,
    `a[K, K] = -a[K, K]^-1`; after all of them `a` is minus the inverse. Only lower triangles count until the end. Four
    at a time, `a` goes through the cache a quarter as often. The triangles keep the digits that a product with
    `a[K, K]^-1` would lose for collinear features.

    `health` is the least share of a diagonal element that was left when it became the pivot, the scale-free sign of a
    matrix that is nearly singular; NaN where a pivot was not positive.
    """
    n = a.shape[0]
    nothing = spread(a.dtype.type(0))
    column = np.zeros((n, 4, LANES), a.dtype)  # C
    scaled = np.zeros((4, n, LANES), a.dtype)  # minus the transpose of C P^-1
    block = np.empty((4, 4, LANES), a.dtype)
    lower = np.empty((4, 4, LANES), a.dtype)
    reciprocal = np.empty((4, LANES), a.dtype)
    diagonal = np.empty((n, LANES), a.dtype)
    for i in range(n):
        put(diagonal, (i,), get(a, (i, i)))
    put(health, (0,), spread(a.dtype.type(1)))
    put(log_determinant, (0,), nothing)
    for start in range(0, n, 4):
        count = min(4, n - start)  # the last pivots may be fewer than four: those missing have no part in anything
        k0, k1, k2, k3 = start, min(start + 1, n - 1), min(start + 2, n - 1), min(start + 3, n - 1)
        for p in range(4):
            put(reciprocal, (p,), nothing)
            for q in range(p + 1):
                put(lower, (p, q), nothing)
        for p in range(count):
            for q in range(p + 1):
                element = get(a, (start + p, start + q))
                put(block, (p, q), element)
                put(block, (q, p), element)
        _invert_pivots(block, count, diagonal[start : start + count], lower, reciprocal, health, log_determinant)
        l10, l20, l21 = get(lower, (1, 0)), get(lower, (2, 0)), get(lower, (2, 1))
        l30, l31, l32 = get(lower, (3, 0)), get(lower, (3, 1)), get(lower, (3, 2))
        r0, r1, r2, r3 = get(reciprocal, (0,)), get(reciprocal, (1,)), get(reciprocal, (2,)), get(reciprocal, (3,))
        for i in range(n):
            if i < start:
                c0, c1, c2, c3 = get(a, (k0, i)), get(a, (k1, i)), get(a, (k2, i)), get(a, (k3, i))
            elif i >= start + count:
                c0, c1, c2, c3 = get(a, (i, k0)), get(a, (i, k1)), get(a, (i, k2)), get(a, (i, k3))
            else:
                c0, c1, c2, c3 = nothing, nothing, nothing, nothing  # the pivots' own elements are set below
            c1 = c1 - c0 * l10
            c2 = c2 - c0 * l20 - c1 * l21
            c3 = c3 - c0 * l30 - c1 * l31 - c2 * l32
            put(column, (i, 0), c0)
            put(column, (i, 1), c1)
            put(column, (i, 2), c2)
            put(column, (i, 3), c3)
            put(scaled, (0, i), -c0 * r0)
            put(scaled, (1, i), -c1 * r1)
            put(scaled, (2, i), -c2 * r2)
            put(scaled, (3, i), -c3 * r3)
        _add_product(a, column, scaled, True)
        for i in range(n):
            c3 = get(scaled, (3, i))
            c2 = get(scaled, (2, i)) - c3 * l32
            c1 = get(scaled, (1, i)) - c3 * l31 - c2 * l21
            c0 = get(scaled, (0, i)) - c3 * l30 - c2 * l20 - c1 * l10
            if i < start:
                if count > 3:
                    put(a, (k3, i), -c3)
                if count > 2:
                    put(a, (k2, i), -c2)
                if count > 1:
                    put(a, (k1, i), -c1)
                put(a, (k0, i), -c0)
            elif i >= start + count:  # then no pivot is missing
                put(a, (i, k0), -c0)
                put(a, (i, k1), -c1)
                put(a, (i, k2), -c2)
                put(a, (i, k3), -c3)
        for p in range(count):
            for q in range(p + 1):
                put(a, (start + p, start + q), get(block, (p, q)))
    for i in range(n):
        for j in range(i + 1):
            element = -get(a, (i, j))
            put(a, (i, j), element)
            put(a, (j, i), element)
    for lane in range(LANES):
        if not (health[lane] > 0 and np.isfinite(log_determinant[lane])):
            health[lane] = np.nan


@numba.njit(**_COMPILED)
@no_type_check
def _matrix_gradient(a, x, h, squared, grad_log, grad_trace, twice):
    """`g a - t squared - (H X^T + X H^T)/2`, lower triangles, into `squared`; off the diagonal `twice` that or once."""
    half = spread(a.dtype.type(0.5))
    g, t, times = get(grad_log, (0,)), get(grad_trace, (0,)), spread(a.dtype.type(2 if twice else 1))
    for i in range(a.shape[0]):
        for j in range(i + 1):
            total = g * get(a, (i, j)) - t * get(squared, (i, j))
            for c in range(x.shape[1]):
                total = total - half * (get(h, (i, c)) * get(x, (j, c)) + get(h, (j, c)) * get(x, (i, c)))
            put(squared, (i, j), total if i == j else total * times)


# --- function space: M = I + diag(s) gram diag(s) --------------------------------------------------------------------


@numba.njit(**_COMPILED)
@no_type_check
def invert_scaled(gram, scale, right, inverse, solution, log_determinant, excess_trace, health):
    rows, n, columns, units = right.shape
    one = spread(gram.dtype.type(1))
    a = np.zeros((n, n, LANES), gram.dtype)
    packed = np.empty((inverse.shape[1], LANES), gram.dtype)
    s = np.zeros((n, LANES), gram.dtype)
    b = np.zeros((n, columns, LANES), gram.dtype)
    x = np.zeros((n, columns, LANES), gram.dtype)
    logs = np.zeros((1, LANES), gram.dtype)
    trace = np.zeros((1, LANES), gram.dtype)
    good = np.zeros((1, LANES), gram.dtype)
    for first in range(0, rows * units, LANES):
        for i in range(n):
            _load(gram.reshape(rows, n * n, units), a.reshape(n * n, LANES), first, i * n, i * n + i + 1)
        _load(scale, s, first, 0, n)
        _load(right.reshape(rows, n * columns, units), b.reshape(n * columns, LANES), first, 0, n * columns)
        for i in range(n):
            for j in range(i + 1):
                put(a, (i, j), get(a, (i, j)) * get(s, (i,)) * get(s, (j,)))
            put(a, (i, i), get(a, (i, i)) + one)
        _invert(a, good[0], logs[0])
        _multiply(a, b, x, False)
        total = get(a, (0, 0)) - one
        for i in range(1, n):
            total = total + (get(a, (i, i)) - one)
        put(trace, (0,), total)
        _pack(a, packed)
        _store(packed, inverse, first)
        _store(x.reshape(n * columns, LANES), solution.reshape(rows, n * columns, units), first)
        _store(logs, log_determinant.reshape(rows, 1, units), first)
        _store(trace, excess_trace.reshape(rows, 1, units), first)
        _store(good, health.reshape(rows, 1, units), first)


@numba.njit(**_COMPILED)
@no_type_check
def differentiate_scaled(
    inverse, scale, right, solution, grad_solution, grad_log, grad_trace, grad_gram, grad_scale, grad_right
):
    rows, n, columns, units = right.shape
    half = spread(inverse.dtype.type(0.5))
    a = np.zeros((n, n, LANES), inverse.dtype)
    e = np.zeros((n, n, LANES), inverse.dtype)
    packed = np.zeros((inverse.shape[1], LANES), inverse.dtype)
    b = np.zeros((n, columns, LANES), inverse.dtype)
    g = np.zeros((n, columns, LANES), inverse.dtype)
    h = np.zeros((n, columns, LANES), inverse.dtype)
    x = np.zeros((n, columns, LANES), inverse.dtype)
    s = np.zeros((n, LANES), inverse.dtype)
    excess = np.zeros((n, LANES), inverse.dtype)
    logs = np.zeros((1, LANES), inverse.dtype)
    traces = np.zeros((1, LANES), inverse.dtype)
    for first in range(0, rows * units, LANES):
        _load(inverse, packed, first, 0, packed.shape[0])
        _unpack(packed, a)
        _load(scale, s, first, 0, n)
        for source, target in ((right, b), (solution, x), (grad_solution, g)):
            _load(source.reshape(rows, n * columns, units), target.reshape(n * columns, LANES), first, 0, n * columns)
        _load(grad_log.reshape(rows, 1, units), logs, first, 0, 1)
        _load(grad_trace.reshape(rows, 1, units), traces, first, 0, 1)
        _multiply(a, g, h, False)
        _multiply(a, a, e, True)
        _matrix_gradient(a, x, h, e, logs, traces, False)
        # diag(E (M - I)): E M needs no product with M, since M X = B and M H = G
        for i in range(n):
            total = get(logs, (0,)) - get(traces, (0,)) * get(a, (i, i)) - get(e, (i, i))
            for c in range(columns):
                total = total - half * (get(h, (i, c)) * get(b, (i, c)) + get(x, (i, c)) * get(g, (i, c)))
            put(excess, (i,), total + total)
            for lane in range(LANES):
                excess[i, lane] = excess[i, lane] / s[i, lane] if s[i, lane] > 0 else 0
            for j in range(i + 1):
                element = get(e, (i, j)) * get(s, (i,)) * get(s, (j,))
                put(e, (i, j), element)
                put(e, (j, i), element)
        _store(e.reshape(n * n, LANES), grad_gram.reshape(rows, n * n, units), first)
        _store(excess, grad_scale, first)
        _store(h.reshape(n * columns, LANES), grad_right.reshape(rows, n * columns, units), first)


# --- weight space: Q = precision + gram ------------------------------------------------------------------------------


@numba.njit(**_COMPILED)
@no_type_check
def _load_precision(precision, target, first, rows):
    """The prior's precision of each lane, from (elements, units); the same in every row."""
    elements, units = precision.shape
    lane = np.uint64(0)
    while lane < LANES and first + lane < rows * units:
        _, unit, length = _run(lane, first, rows * units, units)
        for e in range(np.uint64(elements)):
            for q in range(length):
                target[e, lane + q] = precision[e, unit + q]
        lane += length


@numba.njit(**_COMPILED)
@no_type_check
def invert_added(precision, inverse, right, solution, log_determinant, trace, health):
    rows, n, columns, units = right.shape
    diagonal = precision.shape[0] == n
    one, two = spread(inverse.dtype.type(1)), spread(inverse.dtype.type(2))
    a = np.zeros((n, n, LANES), inverse.dtype)
    packed = np.zeros((inverse.shape[1], LANES), inverse.dtype)
    p = np.zeros((precision.shape[0], LANES), inverse.dtype)
    b = np.zeros((n, columns, LANES), inverse.dtype)
    x = np.zeros((n, columns, LANES), inverse.dtype)
    logs = np.zeros((1, LANES), inverse.dtype)
    traces = np.zeros((1, LANES), inverse.dtype)
    good = np.zeros((1, LANES), inverse.dtype)
    for first in range(0, rows * units, LANES):
        _load(inverse, packed, first, 0, packed.shape[0])
        _unpack(packed, a)
        _load_precision(precision, p, first, rows)
        _load(right.reshape(rows, n * columns, units), b.reshape(n * columns, LANES), first, 0, n * columns)
        for i in range(n):
            for j in range(i if diagonal else 0, i + 1):
                put(a, (i, j), get(a, (i, j)) + get(p, (i if diagonal else i * (i + 1) // 2 + j,)))
        _invert(a, good[0], logs[0])
        total = get(a, (0, 0)) * get(p, (0,)) - one
        for i in range(1, n):
            if not diagonal:
                for j in range(i):
                    total = total + two * get(a, (i, j)) * get(p, (i * (i + 1) // 2 + j,))
            total = total + (get(a, (i, i)) * get(p, (i if diagonal else i * (i + 1) // 2 + i,)) - one)
        put(traces, (0,), total)
        _multiply(a, b, x, False)
        _pack(a, packed)
        _store(packed, inverse, first)
        _store(x.reshape(n * columns, LANES), solution.reshape(rows, n * columns, units), first)
        _store(logs, log_determinant.reshape(rows, 1, units), first)
        _store(traces, trace.reshape(rows, 1, units), first)
        _store(good, health.reshape(rows, 1, units), first)


@numba.njit(**_COMPILED)
@no_type_check
def differentiate_added(precision, inverse, solution, grad_solution, grad_log, grad_trace, grad_gram, grad_right):
    rows, n, columns, units = solution.shape
    diagonal = precision.shape[0] == n
    a = np.zeros((n, n, LANES), inverse.dtype)
    e = np.zeros((n, n, LANES), inverse.dtype)
    weighted = np.zeros((n, n, LANES), inverse.dtype)
    packed = np.zeros((inverse.shape[1], LANES), inverse.dtype)
    p = np.zeros((precision.shape[0], LANES), inverse.dtype)
    full = np.zeros((1 if diagonal else n, n, LANES), inverse.dtype)
    g = np.zeros((n, columns, LANES), inverse.dtype)
    h = np.zeros((n, columns, LANES), inverse.dtype)
    x = np.zeros((n, columns, LANES), inverse.dtype)
    logs = np.zeros((1, LANES), inverse.dtype)
    traces = np.zeros((1, LANES), inverse.dtype)
    for first in range(0, rows * units, LANES):
        _load(inverse, packed, first, 0, packed.shape[0])
        _unpack(packed, a)
        _load_precision(precision, p, first, rows)
        for source, target in ((solution, x), (grad_solution, g)):
            _load(source.reshape(rows, n * columns, units), target.reshape(n * columns, LANES), first, 0, n * columns)
        _load(grad_log.reshape(rows, 1, units), logs, first, 0, 1)
        _load(grad_trace.reshape(rows, 1, units), traces, first, 0, 1)
        _multiply(a, g, h, False)
        if diagonal:
            for i in range(n):
                for j in range(n):
                    put(weighted, (i, j), get(p, (i,)) * get(a, (i, j)))
        else:
            _unpack(p, full)
            _multiply(full, a, weighted, False)
        _multiply(a, weighted, e, True)
        _matrix_gradient(a, x, h, e, logs, traces, True)
        _pack(e, packed)
        _store(packed, grad_gram, first)
        _store(h.reshape(n * columns, LANES), grad_right.reshape(rows, n * columns, units), first)


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
