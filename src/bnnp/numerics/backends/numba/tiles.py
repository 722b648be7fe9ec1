"""Steps of compiled loops over many small symmetric matrices: moving them in and out, products, inverses.

A *block* of `LANES` matrices is worked on at once, each operation on a vector of their elements: block arrays have a
last axis of `LANES`. Arrays of the caller have rows (tasks and samples) first and units last; between them, matrices
are packed by rows of their lower triangle, `a[i, j]` at `i (i + 1) / 2 + j`, into a *pairs* axis.

Compiled functions are cached by the date of their own file: touch `batched.py` after a change here.
"""

from typing import no_type_check

import numba
import numpy as np

from bnnp.numerics.backends.numba.simd import LANES, get, get_part, lesser, put, put_part, spread, total_of, with_part

COMPILED = {
    "cache": True,
    "nogil": True,
    "error_model": "numpy",  # dividing by zero gives an infinity, which the caller sees, and loops stay vectorised
    "fastmath": {"contract", "nsz", "arcp", "reassoc"},  # values that are not finite must stay visible
}

_LINE = 64
"""Bytes of a line of the cache."""


@numba.njit(**COMPILED)
@no_type_check
def zeros(shape, like):
    """Zeros of the same kind, laid out so that no vector crosses a cache line, which would make reading it slow."""
    size = 1
    for length in shape:
        size *= length
    room = np.zeros(size + _LINE // like.itemsize, like.dtype)
    start = -room.ctypes.data % _LINE // like.itemsize
    return room[start : start + size].reshape(shape)


# --- between the caller's arrays and blocks --------------------------------------------------------------------------


@numba.njit(**COMPILED)
@no_type_check
def _run(lane, block):
    """The row and unit of the matrix in a lane, and how many lanes from it on are in the same row; 0 behind the last.

    block: its first matrix, the matrix behind the last that is asked for, rows and units of all.
    Unsigned, so that the compiler need not think of indices that count from the end.
    """
    first, end, _, units = block
    place = first + np.int64(lane)
    unit = place % units
    length = max(0, min(min(LANES, end - first) - np.int64(lane), units - unit))
    return np.uint64(place // units), np.uint64(unit), np.uint64(length)


@numba.njit(**COMPILED)
@no_type_check
def load(source, target, block, begin, end):
    """Elements `begin` to `end` of a block's matrices, from (rows, elements, units) to (elements, LANES).

    A source may have fewer rows than there are: each then stands for as many rows as it takes.
    """
    repeat = np.uint64(block[2] // source.shape[0])
    lane = np.uint64(0)
    row, unit, length = _run(lane, block)
    while length > 0:
        if length == LANES:
            for e in range(begin, end):
                put(target, (e - begin,), get(source, (row // repeat, e, unit)))
        else:
            for e in range(begin, end):
                others = get(target, (e - begin,))
                put(target, (e - begin,), get_part(source, (row // repeat, e, unit), lane, lane + length, others))
        lane += length
        row, unit, length = _run(lane, block)


@numba.njit(**COMPILED)
@no_type_check
def store(source, target, block, begin, end):
    """The way back from `load`, to a target with all rows."""
    lane = np.uint64(0)
    row, unit, length = _run(lane, block)
    while length > 0:
        if length == LANES:
            for e in range(begin, end):
                put(target, (row, e, unit), get(source, (e - begin,)))
        else:
            for e in range(begin, end):
                put_part(target, (row, e, unit), lane, lane + length, get(source, (e - begin,)))
        lane += length
        row, unit, length = _run(lane, block)


@numba.njit(**COMPILED)
@no_type_check
def add_over_rows(source, target, block):
    """Add the elements of a block's matrices to those of their units, (elements, LANES) to (elements, units)."""
    lane = np.uint64(0)
    _, unit, length = _run(lane, block)
    while length > 0:
        for e in range(target.shape[0]):
            total = get_part(target, (e, unit), lane, lane + length, get(source, (e,))) + get(source, (e,))
            put_part(target, (e, unit), lane, lane + length, total)
        lane += length
        _, unit, length = _run(lane, block)


@numba.njit(**COMPILED)
@no_type_check
def load_features(phi, target, block, begin, end):
    """Features of points `begin` to `end` for each lane, the same for all units of a row."""
    lane = np.uint64(0)
    row, _, length = _run(lane, block)
    while length > 0:
        for k in range(end - begin):
            for i in range(phi.shape[2]):
                value = spread(phi[row, begin + k, i])
                put(target, (k, i), with_part(get(target, (k, i)), lane, lane + length, value))
        lane += length
        row, _, length = _run(lane, block)


@numba.njit(**COMPILED)
@no_type_check
def add_over_units(source, target, block, begin, end):
    """Add what the units of a row have at points `begin` to `end`: the way back from `load_features`."""
    nothing = spread(source.dtype.type(0))
    lane = np.uint64(0)
    row, _, length = _run(lane, block)
    while length > 0:
        for k in range(end - begin):
            for i in range(target.shape[2]):
                if length == LANES:
                    target[row, begin + k, i] += total_of(get(source, (k, i)))
                elif length > 3:
                    target[row, begin + k, i] += total_of(with_part(nothing, lane, lane + length, get(source, (k, i))))
                else:
                    for q in range(length):
                        target[row, begin + k, i] += source[k, i, lane + q]
        lane += length
        row, _, length = _run(lane, block)


@numba.njit(**COMPILED)
@no_type_check
def unpack(packed, a):
    """Both triangles of matrices."""
    k = 0
    for i in range(a.shape[0]):
        for j in range(i + 1):
            element = get(packed, (k,))
            put(a, (i, j), element)
            put(a, (j, i), element)
            k += 1


@numba.njit(**COMPILED)
@no_type_check
def pack(a, packed):
    k = 0
    for i in range(a.shape[0]):
        for j in range(i + 1):
            put(packed, (k,), get(a, (i, j)))
            k += 1


# --- on blocks -------------------------------------------------------------------------------------------------------


@numba.njit(**COMPILED)
@no_type_check
def _four(a, i, j):
    """The four elements from `a[i, j]` on."""
    return get(a, (i, j)), get(a, (i, j + 1)), get(a, (i, j + 2)), get(a, (i, j + 3))


@numba.njit(**COMPILED)
@no_type_check
def _put_four(a, i, j, x0, x1, x2, x3):
    put(a, (i, j), x0)
    put(a, (i, j + 1), x1)
    put(a, (i, j + 2), x2)
    put(a, (i, j + 3), x3)


@numba.njit(**COMPILED)
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


@numba.njit(**COMPILED)
@no_type_check
def _add_tile_1x4(out, a, b, inner, i, j):
    s0, s1, s2, s3 = _four(out, i, j)
    for t in range(inner):
        a0 = get(a, (i, t))
        b0, b1, b2, b3 = _four(b, t, j)
        s0, s1, s2, s3 = s0 + a0 * b0, s1 + a0 * b1, s2 + a0 * b2, s3 + a0 * b3
    _put_four(out, i, j, s0, s1, s2, s3)


@numba.njit(**COMPILED)
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


@numba.njit(**COMPILED)
@no_type_check
def _add_tile_1x1(out, a, b, inner, i, j):
    total = get(out, (i, j))
    for t in range(inner):
        total = total + get(a, (i, t)) * get(b, (t, j))
    put(out, (i, j), total)


@numba.njit(**COMPILED)
@no_type_check
def add_product(out, a, b, inner, lower):
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


@numba.njit(**COMPILED)
@no_type_check
def add_outer(out, a, b, inner):
    """`out += a[:inner]^T b[:inner]`, square and symmetric: the lower triangle (and some more)."""
    n = out.shape[0]
    fours = n - n % 4
    for i in range(0, fours, 4):
        for j in range(0, i + 4, 4):
            s00, s01, s02, s03 = _four(out, i, j)
            s10, s11, s12, s13 = _four(out, i + 1, j)
            s20, s21, s22, s23 = _four(out, i + 2, j)
            s30, s31, s32, s33 = _four(out, i + 3, j)
            for t in range(inner):
                a0, a1, a2, a3 = _four(a, t, i)
                b0, b1, b2, b3 = _four(b, t, j)
                s00, s01, s02, s03 = s00 + a0 * b0, s01 + a0 * b1, s02 + a0 * b2, s03 + a0 * b3
                s10, s11, s12, s13 = s10 + a1 * b0, s11 + a1 * b1, s12 + a1 * b2, s13 + a1 * b3
                s20, s21, s22, s23 = s20 + a2 * b0, s21 + a2 * b1, s22 + a2 * b2, s23 + a2 * b3
                s30, s31, s32, s33 = s30 + a3 * b0, s31 + a3 * b1, s32 + a3 * b2, s33 + a3 * b3
            _put_four(out, i, j, s00, s01, s02, s03)
            _put_four(out, i + 1, j, s10, s11, s12, s13)
            _put_four(out, i + 2, j, s20, s21, s22, s23)
            _put_four(out, i + 3, j, s30, s31, s32, s33)
    for i in range(fours, n):
        for j in range(0, fours, 4):
            s0, s1, s2, s3 = _four(out, i, j)
            for t in range(inner):
                a0 = get(a, (t, i))
                b0, b1, b2, b3 = _four(b, t, j)
                s0, s1, s2, s3 = s0 + a0 * b0, s1 + a0 * b1, s2 + a0 * b2, s3 + a0 * b3
            _put_four(out, i, j, s0, s1, s2, s3)
        for j in range(fours, i + 1):
            total = get(out, (i, j))
            for t in range(inner):
                total = total + get(a, (t, i)) * get(b, (t, j))
            put(out, (i, j), total)


@numba.njit(**COMPILED)
@no_type_check
def multiply(a, b, out, lower):
    """`a b`, or the lower triangle of it."""
    nothing = spread(a.dtype.type(0))
    for i in range(out.shape[0]):
        for c in range(out.shape[1]):
            put(out, (i, c), nothing)
    add_product(out, a, b, b.shape[0], lower)


@numba.njit(**COMPILED)
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


@numba.njit(**COMPILED)
@no_type_check
def invert(a, health, log_determinant):
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
    column = zeros((n, 4, LANES), a)  # C
    scaled = zeros((n, 4, LANES), a)  # C P^-1
    pivots = zeros((n + 3, LANES), a)
    diagonal = zeros((n, LANES), a)
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


@numba.njit(**COMPILED)
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
