"""Products of blocks of small matrices (see `moves.py`), four rows and columns at a time, with sums in registers."""

from typing import no_type_check

from bnnp.numerics.backends.numba.compiled import step
from bnnp.numerics.backends.numba.simd import filled, get, put


@step
@no_type_check
def four(a, i, j):
    """The four elements from `a[i, j]` on."""
    return get(a, (i, j)), get(a, (i, j + 1)), get(a, (i, j + 2)), get(a, (i, j + 3))


@step
@no_type_check
def put_four(a, i, j, x0, x1, x2, x3):
    put(a, (i, j), x0)
    put(a, (i, j + 1), x1)
    put(a, (i, j + 2), x2)
    put(a, (i, j + 3), x3)


@step
@no_type_check
def _add_tile_4x4(out, a, b, inner, i, j):
    """`out += a b` for four rows and four columns, whose sums stay in registers."""
    s00, s01, s02, s03 = four(out, i, j)
    s10, s11, s12, s13 = four(out, i + 1, j)
    s20, s21, s22, s23 = four(out, i + 2, j)
    s30, s31, s32, s33 = four(out, i + 3, j)
    for t in range(inner):
        b0, b1, b2, b3 = four(b, t, j)
        a0 = get(a, (i, t))
        s00, s01, s02, s03 = s00 + a0 * b0, s01 + a0 * b1, s02 + a0 * b2, s03 + a0 * b3
        a1 = get(a, (i + 1, t))
        s10, s11, s12, s13 = s10 + a1 * b0, s11 + a1 * b1, s12 + a1 * b2, s13 + a1 * b3
        a2 = get(a, (i + 2, t))
        s20, s21, s22, s23 = s20 + a2 * b0, s21 + a2 * b1, s22 + a2 * b2, s23 + a2 * b3
        a3 = get(a, (i + 3, t))
        s30, s31, s32, s33 = s30 + a3 * b0, s31 + a3 * b1, s32 + a3 * b2, s33 + a3 * b3
    put_four(out, i, j, s00, s01, s02, s03)
    put_four(out, i + 1, j, s10, s11, s12, s13)
    put_four(out, i + 2, j, s20, s21, s22, s23)
    put_four(out, i + 3, j, s30, s31, s32, s33)


@step
@no_type_check
def _add_tile_1x4(out, a, b, inner, i, j):
    s0, s1, s2, s3 = four(out, i, j)
    for t in range(inner):
        a0 = get(a, (i, t))
        b0, b1, b2, b3 = four(b, t, j)
        s0, s1, s2, s3 = s0 + a0 * b0, s1 + a0 * b1, s2 + a0 * b2, s3 + a0 * b3
    put_four(out, i, j, s0, s1, s2, s3)


@step
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


@step
@no_type_check
def _add_tile_1x1(out, a, b, inner, i, j):
    total = get(out, (i, j))
    for t in range(inner):
        total = total + get(a, (i, t)) * get(b, (t, j))
    put(out, (i, j), total)


@step
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


@step
@no_type_check
def add_outer(out, a, b, inner):
    """`out += a[:inner]^T b[:inner]`, square and symmetric: the lower triangle (and some more)."""
    n = out.shape[0]
    fours = n - n % 4
    for i in range(0, fours, 4):
        for j in range(0, i + 4, 4):
            s00, s01, s02, s03 = four(out, i, j)
            s10, s11, s12, s13 = four(out, i + 1, j)
            s20, s21, s22, s23 = four(out, i + 2, j)
            s30, s31, s32, s33 = four(out, i + 3, j)
            for t in range(inner):
                a0, a1, a2, a3 = four(a, t, i)
                b0, b1, b2, b3 = four(b, t, j)
                s00, s01, s02, s03 = s00 + a0 * b0, s01 + a0 * b1, s02 + a0 * b2, s03 + a0 * b3
                s10, s11, s12, s13 = s10 + a1 * b0, s11 + a1 * b1, s12 + a1 * b2, s13 + a1 * b3
                s20, s21, s22, s23 = s20 + a2 * b0, s21 + a2 * b1, s22 + a2 * b2, s23 + a2 * b3
                s30, s31, s32, s33 = s30 + a3 * b0, s31 + a3 * b1, s32 + a3 * b2, s33 + a3 * b3
            put_four(out, i, j, s00, s01, s02, s03)
            put_four(out, i + 1, j, s10, s11, s12, s13)
            put_four(out, i + 2, j, s20, s21, s22, s23)
            put_four(out, i + 3, j, s30, s31, s32, s33)
    for i in range(fours, n):
        for j in range(0, fours, 4):
            s0, s1, s2, s3 = four(out, i, j)
            for t in range(inner):
                a0 = get(a, (t, i))
                b0, b1, b2, b3 = four(b, t, j)
                s0, s1, s2, s3 = s0 + a0 * b0, s1 + a0 * b1, s2 + a0 * b2, s3 + a0 * b3
            put_four(out, i, j, s0, s1, s2, s3)
        for j in range(fours, i + 1):
            total = get(out, (i, j))
            for t in range(inner):
                total = total + get(a, (t, i)) * get(b, (t, j))
            put(out, (i, j), total)


@step
@no_type_check
def multiply(a, b, out, lower):
    """`a b`, or the lower triangle of it."""
    nothing = filled(a.dtype.type(0))
    for i in range(out.shape[0]):
        for c in range(out.shape[1]):
            put(out, (i, c), nothing)
    add_product(out, a, b, b.shape[0], lower)
