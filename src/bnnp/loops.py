"""Loops over many small symmetric matrices, compiled for the CPU: what LAPACK does one by one, many at a time.

A block of `LANES` matrices is worked on at once, each operation on a vector of their elements: block arrays have a last
axis of `LANES`. Arrays of the caller have the units last and, before them, matrices packed by rows of their lower
triangle, `a[i, j]` at `i (i + 1) / 2 + j`, into a *pairs* axis. `docs/performance.md` compares with `torch.linalg`.
"""

from typing import no_type_check

import numba
import numpy as np

from bnnp.vectors import LANES, get, get_part, lesser, put, put_part, spread, total_of, with_part

_COMPILED = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",  # dividing by zero gives an infinity, which the caller sees, and loops stay vectorised
    "fastmath": {"contract", "nsz", "arcp", "reassoc"},  # values that are not finite must stay visible
}

_LINE = 64
"""Bytes of a line of the cache."""


@numba.njit(**_COMPILED)
@no_type_check
def _zeros(shape, like):
    """Zeros of the same kind, laid out so that no vector crosses a cache line, which would make reading it slow."""
    size = 1
    for length in shape:
        size *= length
    room = np.zeros(size + _LINE // like.itemsize, like.dtype)
    start = -room.ctypes.data % _LINE // like.itemsize
    return room[start : start + size].reshape(shape)


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
            for e in range(begin, end):
                put(target, (e,), get_part(source, (row, e, unit), lane, lane + length, get(target, (e,))))
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
            for e in range(elements):
                put_part(target, (row, e, unit), lane, lane + length, get(source, (e,)))
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
def _four(a, i, j):
    """The four elements from `a[i, j]` on."""
    return get(a, (i, j)), get(a, (i, j + 1)), get(a, (i, j + 2)), get(a, (i, j + 3))


@numba.njit(**_COMPILED)
@no_type_check
def _put_four(a, i, j, x0, x1, x2, x3):
    put(a, (i, j), x0)
    put(a, (i, j + 1), x1)
    put(a, (i, j + 2), x2)
    put(a, (i, j + 3), x3)


@numba.njit(**_COMPILED)
@no_type_check
def _add_tile_4x4(out, a, b, inner, i, j):
    """`out += a b` for four rows and four columns, whose sums stay in registers."""
    s00, s01, s02, s03 = _four(out, i, j)
    s10, s11, s12, s13 = _four(out, i + 1, j)
    s20, s21, s22, s23 = _four(out, i + 2, j)
    s30, s31, s32, s33 = _four(out, i + 3, j)
    for t in range(inner):
        b0, b1, b2, b3 = _four(b, t, j)
        a0 = get(a, (i, t))
        s00, s01, s02, s03 = s00 + a0 * b0, s01 + a0 * b1, s02 + a0 * b2, s03 + a0 * b3
        a1 = get(a, (i + 1, t))
        s10, s11, s12, s13 = s10 + a1 * b0, s11 + a1 * b1, s12 + a1 * b2, s13 + a1 * b3
        a2 = get(a, (i + 2, t))
        s20, s21, s22, s23 = s20 + a2 * b0, s21 + a2 * b1, s22 + a2 * b2, s23 + a2 * b3
        a3 = get(a, (i + 3, t))
        s30, s31, s32, s33 = s30 + a3 * b0, s31 + a3 * b1, s32 + a3 * b2, s33 + a3 * b3
    _put_four(out, i, j, s00, s01, s02, s03)
    _put_four(out, i + 1, j, s10, s11, s12, s13)
    _put_four(out, i + 2, j, s20, s21, s22, s23)
    _put_four(out, i + 3, j, s30, s31, s32, s33)


@numba.njit(**_COMPILED)
@no_type_check
def _add_tile_1x4(out, a, b, inner, i, j):
    s0, s1, s2, s3 = _four(out, i, j)
    for t in range(inner):
        a0 = get(a, (i, t))
        b0, b1, b2, b3 = _four(b, t, j)
        s0, s1, s2, s3 = s0 + a0 * b0, s1 + a0 * b1, s2 + a0 * b2, s3 + a0 * b3
    _put_four(out, i, j, s0, s1, s2, s3)


@numba.njit(**_COMPILED)
@no_type_check
def _add_tile_4x1(out, a, b, inner, i, j):
    s0, s1, s2, s3 = get(out, (i, j)), get(out, (i + 1, j)), get(out, (i + 2, j)), get(out, (i + 3, j))
    for t in range(inner):
        b0 = get(b, (t, j))
        s0, s1 = s0 + get(a, (i, t)) * b0, s1 + get(a, (i + 1, t)) * b0
        s2, s3 = s2 + get(a, (i + 2, t)) * b0, s3 + get(a, (i + 3, t)) * b0
    put(out, (i, j), s0)
    put(out, (i + 1, j), s1)
    put(out, (i + 2, j), s2)
    put(out, (i + 3, j), s3)


@numba.njit(**_COMPILED)
@no_type_check
def _add_tile_1x1(out, a, b, inner, i, j):
    total = get(out, (i, j))
    for t in range(inner):
        total = total + get(a, (i, t)) * get(b, (t, j))
    put(out, (i, j), total)


@numba.njit(**_COMPILED)
@no_type_check
def _add_product(out, a, b, inner, lower):
    """`out += a[:, :inner] b[:inner]`; with `lower`, for square `out`, its lower triangle (and some more)."""
    n, columns, _ = out.shape
    rows, fours = n - n % 4, columns - columns % 4
    for i in range(0, rows, 4):
        for j in range(0, min(fours, i + 4) if lower else fours, 4):
            _add_tile_4x4(out, a, b, inner, i, j)
    for i in range(rows, n):
        for j in range(0, fours, 4):
            _add_tile_1x4(out, a, b, inner, i, j)
    for j in range(fours, columns):
        begin = fours if lower else 0
        end = n - (n - begin) % 4
        for i in range(begin, end, 4):
            _add_tile_4x1(out, a, b, inner, i, j)
        for i in range(end, n):
            _add_tile_1x1(out, a, b, inner, i, j)


@numba.njit(**_COMPILED)
@no_type_check
def _multiply(a, b, out, lower):
    """`a b`, or the lower triangle of it."""
    nothing = spread(a.dtype.type(0))
    for i in range(out.shape[0]):
        for c in range(out.shape[1]):
            put(out, (i, c), nothing)
    _add_product(out, a, b, b.shape[0], lower)


@numba.njit(**_COMPILED)
@no_type_check
def _subtract_outer_products(a, column, scaled):
    """`a -= column scaled^T` for lower triangles, with `column` and `scaled (n, 4)`.

    Four rows at a time, whose part of `column` stays in registers: a row's elements are read and written once.
    """
    n = a.shape[0]
    fours = n - n % 4
    for i in range(0, fours, 4):
        a0, a1, a2, a3 = _four(column, i, 0)
        b0, b1, b2, b3 = _four(column, i + 1, 0)
        c0, c1, c2, c3 = _four(column, i + 2, 0)
        d0, d1, d2, d3 = _four(column, i + 3, 0)
        for j in range(i + 4):  # some elements above the diagonal too, which nobody reads
            s0, s1, s2, s3 = _four(scaled, j, 0)
            put(a, (i, j), get(a, (i, j)) - a0 * s0 - a1 * s1 - a2 * s2 - a3 * s3)
            put(a, (i + 1, j), get(a, (i + 1, j)) - b0 * s0 - b1 * s1 - b2 * s2 - b3 * s3)
            put(a, (i + 2, j), get(a, (i + 2, j)) - c0 * s0 - c1 * s1 - c2 * s2 - c3 * s3)
            put(a, (i + 3, j), get(a, (i + 3, j)) - d0 * s0 - d1 * s1 - d2 * s2 - d3 * s3)
    for i in range(fours, n):
        a0, a1, a2, a3 = _four(column, i, 0)
        for j in range(i + 1):
            s0, s1, s2, s3 = _four(scaled, j, 0)
            put(a, (i, j), get(a, (i, j)) - a0 * s0 - a1 * s1 - a2 * s2 - a3 * s3)


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
    nothing, one = spread(a.dtype.type(0)), spread(a.dtype.type(1))
    column = _zeros((n, 4, LANES), a)  # C
    scaled = _zeros((n, 4, LANES), a)  # C P^-1
    pivots = _zeros((n + 3, LANES), a)
    diagonal = _zeros((n, LANES), a)
    for i in range(n):
        put(diagonal, (i,), get(a, (i, i)))
    for k in range(0, n, 4):
        # the last pivots may be fewer than four: those missing are 1, and their part in everything is 0
        last, k1, k2, k3 = n - 1 - k, min(k + 1, n - 1), min(k + 2, n - 1), min(k + 3, n - 1)
        p0 = get(a, (k, k))
        r0 = one / p0
        l10 = get(a, (k1, k)) * r0 if last > 0 else nothing
        l20 = get(a, (k2, k)) * r0 if last > 1 else nothing
        l30 = get(a, (k3, k)) * r0 if last > 2 else nothing
        p1 = get(a, (k1, k1)) - l10 * l10 * p0 if last > 0 else one
        r1 = one / p1 if last > 0 else nothing
        l21 = (get(a, (k2, k1)) - l20 * l10 * p0) * r1 if last > 1 else nothing
        l31 = (get(a, (k3, k1)) - l30 * l10 * p0) * r1 if last > 2 else nothing
        p2 = get(a, (k2, k2)) - l20 * l20 * p0 - l21 * l21 * p1 if last > 1 else one
        r2 = one / p2 if last > 1 else nothing
        l32 = (get(a, (k3, k2)) - l30 * l20 * p0 - l31 * l21 * p1) * r2 if last > 2 else nothing
        p3 = get(a, (k3, k3)) - l30 * l30 * p0 - l31 * l31 * p1 - l32 * l32 * p2 if last > 2 else one
        r3 = one / p3 if last > 2 else nothing
        put(pivots, (k,), p0)
        put(pivots, (k + 1,), p1)
        put(pivots, (k + 2,), p2)
        put(pivots, (k + 3,), p3)
        for i in range(n):
            if i < k:
                c0, c1, c2, c3 = get(a, (k, i)), get(a, (k1, i)), get(a, (k2, i)), get(a, (k3, i))
            elif i > k + 3:
                c0, c1, c2, c3 = _four(a, i, k)
            else:
                c0, c1, c2, c3 = nothing, nothing, nothing, nothing  # the pivots' own elements are set below
            c1 = c1 - c0 * l10
            c2 = c2 - c0 * l20 - c1 * l21
            c3 = c3 - c0 * l30 - c1 * l31 - c2 * l32
            _put_four(column, i, 0, c0, c1, c2, c3)
            _put_four(scaled, i, 0, c0 * r0, c1 * r1, c2 * r2, c3 * r3)
        _subtract_outer_products(a, column, scaled)
        for i in range(n):
            c3 = get(scaled, (i, 3))
            c2 = get(scaled, (i, 2)) - c3 * l32
            c1 = get(scaled, (i, 1)) - c3 * l31 - c2 * l21
            c0 = get(scaled, (i, 0)) - c3 * l30 - c2 * l20 - c1 * l10
            if i < k:
                if last > 2:
                    put(a, (k3, i), c3)
                if last > 1:
                    put(a, (k2, i), c2)
                if last > 0:
                    put(a, (k1, i), c1)
                put(a, (k, i), c0)
            elif i > k + 3:
                _put_four(a, i, k, c0, c1, c2, c3)
        # -a[K, K]^-1 = -M^T P^-1 M with M = L^-1
        m10, m21, m32 = -l10, -l21, -l32
        m20, m31 = l21 * l10 - l20, l32 * l21 - l31
        m30 = -l30 - l31 * m10 - l32 * m20
        put(a, (k, k), -r0 - m10 * r1 * m10 - m20 * r2 * m20 - m30 * r3 * m30)
        if last > 0:
            put(a, (k1, k), -m10 * r1 - m20 * r2 * m21 - m30 * r3 * m31)
            put(a, (k1, k1), -r1 - m21 * r2 * m21 - m31 * r3 * m31)
        if last > 1:
            put(a, (k2, k), -m20 * r2 - m30 * r3 * m32)
            put(a, (k2, k1), -m21 * r2 - m31 * r3 * m32)
            put(a, (k2, k2), -r2 - m32 * r3 * m32)
        if last > 2:
            put(a, (k3, k), -m30 * r3)
            put(a, (k3, k1), -m31 * r3)
            put(a, (k3, k2), -m32 * r3)
            put(a, (k3, k3), -r3)
    for i in range(n):
        for j in range(i + 1):
            element = -get(a, (i, j))
            put(a, (i, j), element)
            put(a, (j, i), element)
    least = one
    for i in range(n):
        least = lesser(get(pivots, (i,)) / get(diagonal, (i,)), least)
    put(health, (0,), least)
    _log_products(pivots[:n], log_determinant)
    for lane in range(LANES):
        if not (health[lane] > 0 and np.isfinite(log_determinant[lane])):
            health[lane] = np.nan


@numba.njit(**_COMPILED)
@no_type_check
def _log_products(pivots, log_determinant):
    """The logarithm of the product of all pivots, from products of eight in float64: logarithms are dear."""
    for lane in range(LANES):
        log_determinant[lane] = 0
    product = np.ones(LANES)
    for i in range(pivots.shape[0]):
        for lane in range(LANES):
            product[lane] *= pivots[i, lane]
        if i % 8 == 7 or i == pivots.shape[0] - 1:
            for lane in range(LANES):
                log_determinant[lane] += np.log(product[lane])
                product[lane] = 1


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
    a = _zeros((n, n, LANES), gram)
    packed = _zeros((inverse.shape[1], LANES), gram)
    s = _zeros((n, LANES), gram)
    b = _zeros((n, columns, LANES), gram)
    x = _zeros((n, columns, LANES), gram)
    logs = _zeros((1, LANES), gram)
    trace = _zeros((1, LANES), gram)
    good = _zeros((1, LANES), gram)
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
    a = _zeros((n, n, LANES), inverse)
    e = _zeros((n, n, LANES), inverse)
    packed = _zeros((inverse.shape[1], LANES), inverse)
    b = _zeros((n, columns, LANES), inverse)
    g = _zeros((n, columns, LANES), inverse)
    h = _zeros((n, columns, LANES), inverse)
    x = _zeros((n, columns, LANES), inverse)
    s = _zeros((n, LANES), inverse)
    excess = _zeros((n, LANES), inverse)
    logs = _zeros((1, LANES), inverse)
    traces = _zeros((1, LANES), inverse)
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
        for e in range(elements):
            put(target, (e,), get_part(precision, (e, unit), lane, lane + length, get(target, (e,))))
        lane += length


@numba.njit(**_COMPILED)
@no_type_check
def invert_added(precision, inverse, right, solution, log_determinant, trace, health):
    rows, n, columns, units = right.shape
    diagonal = precision.shape[0] == n
    one, two = spread(inverse.dtype.type(1)), spread(inverse.dtype.type(2))
    a = _zeros((n, n, LANES), inverse)
    packed = _zeros((inverse.shape[1], LANES), inverse)
    p = _zeros((precision.shape[0], LANES), inverse)
    b = _zeros((n, columns, LANES), inverse)
    x = _zeros((n, columns, LANES), inverse)
    logs = _zeros((1, LANES), inverse)
    traces = _zeros((1, LANES), inverse)
    good = _zeros((1, LANES), inverse)
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
    a = _zeros((n, n, LANES), inverse)
    e = _zeros((n, n, LANES), inverse)
    weighted = _zeros((n, n, LANES), inverse)
    packed = _zeros((inverse.shape[1], LANES), inverse)
    p = _zeros((precision.shape[0], LANES), inverse)
    full = _zeros((1 if diagonal else n, n, LANES), inverse)
    g = _zeros((n, columns, LANES), inverse)
    h = _zeros((n, columns, LANES), inverse)
    x = _zeros((n, columns, LANES), inverse)
    logs = _zeros((1, LANES), inverse)
    traces = _zeros((1, LANES), inverse)
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


# --- the Gram matrices of weight space -------------------------------------------------------------------------------

_POINTS = 32
"""Points whose features are held at once, at most."""


@numba.njit(**_COMPILED)
@no_type_check
def _load_features(phi, target, first, units, begin, end):
    """Features of points `begin` to `end` for each lane, the same for all units of a row."""
    rows, _, d = phi.shape
    lane = np.uint64(0)
    while lane < LANES and first + lane < rows * units:
        row, _, length = _run(lane, first, rows * units, units)
        for k in range(end - begin):
            for i in range(d):
                values = with_part(get(target, (k, i)), lane, lane + length, spread(phi[row, begin + k, i]))
                put(target, (k, i), values)
        lane += length


@numba.njit(**_COMPILED)
@no_type_check
def add_weighted_gram(phi, scale, gram):
    rows, n, units = scale.shape
    d = phi.shape[2]
    a = _zeros((d, d, LANES), phi)
    packed = _zeros((gram.shape[1], LANES), phi)
    features = _zeros((_POINTS, d, LANES), phi)
    weighted = _zeros((d, _POINTS, LANES), phi)
    s = _zeros((n, LANES), phi)
    for first in range(0, rows * units, LANES):
        _load(gram, packed, first, 0, packed.shape[0])
        _unpack(packed, a)
        _load(scale, s, first, 0, n)
        for begin in range(0, n, _POINTS):
            end = min(begin + _POINTS, n)
            _load_features(phi, features, first, units, begin, end)
            for k in range(end - begin):
                weight = get(s, (begin + k,)) * get(s, (begin + k,))
                for i in range(d):
                    put(weighted, (i, k), get(features, (k, i)) * weight)
            _add_product(a, weighted, features, end - begin, True)
        _pack(a, packed)
        _store(packed, gram, first)


@numba.njit(**_COMPILED)
@no_type_check
def differentiate_weighted_gram(phi, scale, grad, grad_phi, grad_scale):
    rows, n, units = scale.shape
    d = phi.shape[2]
    half = spread(phi.dtype.type(0.5))
    e = _zeros((d, d, LANES), phi)
    packed = _zeros((grad.shape[1], LANES), phi)
    features = _zeros((_POINTS, d, LANES), phi)
    pulled = _zeros((_POINTS, d, LANES), phi)
    s = _zeros((n, LANES), phi)
    grad_s = _zeros((n, LANES), phi)
    grad_phi[:] = 0
    for first in range(0, rows * units, LANES):
        _load(grad, packed, first, 0, packed.shape[0])
        _unpack(packed, e)
        for i in range(d):
            put(e, (i, i), get(e, (i, i)) + get(e, (i, i)))  # now twice the symmetric derivative
        _load(scale, s, first, 0, n)
        for begin in range(0, n, _POINTS):
            end = min(begin + _POINTS, n)
            _load_features(phi, features, first, units, begin, end)
            _multiply(features[: end - begin], e, pulled[: end - begin], False)
            for k in range(end - begin):
                weight = get(s, (begin + k,))
                total = half * get(features, (k, 0)) * get(pulled, (k, 0))
                for i in range(1, d):
                    total = total + half * get(features, (k, i)) * get(pulled, (k, i))
                put(grad_s, (begin + k,), (total + total) * weight)
                for i in range(d):
                    put(pulled, (k, i), get(pulled, (k, i)) * weight * weight)
            lane = np.uint64(0)
            while lane < LANES and first + lane < rows * units:
                row, _, length = _run(lane, first, rows * units, units)
                for k in range(end - begin):
                    for i in range(d):
                        if length == LANES:
                            grad_phi[row, begin + k, i] += total_of(get(pulled, (k, i)))
                        else:
                            for q in range(length):
                                grad_phi[row, begin + k, i] += pulled[k, i, lane + q]
                lane += length
        _store(grad_s, grad_scale, first)
