"""Inverses of blocks of small matrices (see `moves.py`)."""

from typing import no_type_check

import numpy as np

from bnnp.numerics.backends.numba.compiled import step
from bnnp.numerics.backends.numba.moves import zeros
from bnnp.numerics.backends.numba.simd import LANES, filled, get, lesser, put
from bnnp.numerics.backends.numba.tiles import four, put_four


@step
@no_type_check
def _subtract_outer_products(a, column, scaled):
    """`a -= column scaled^T` for lower triangles, with `column` and `scaled (n, 4)`.

    Four rows at a time, whose part of `column` stays in registers: a row's elements are read and written once.
    """
    n = a.shape[0]
    fours = n - n % 4
    for i in range(0, fours, 4):
        a0, a1, a2, a3 = four(column, i, 0)
        b0, b1, b2, b3 = four(column, i + 1, 0)
        c0, c1, c2, c3 = four(column, i + 2, 0)
        d0, d1, d2, d3 = four(column, i + 3, 0)
        for j in range(i + 4):  # some elements above the diagonal too, which nobody reads
            s0, s1, s2, s3 = four(scaled, j, 0)
            put(a, (i, j), get(a, (i, j)) - a0 * s0 - a1 * s1 - a2 * s2 - a3 * s3)
            put(a, (i + 1, j), get(a, (i + 1, j)) - b0 * s0 - b1 * s1 - b2 * s2 - b3 * s3)
            put(a, (i + 2, j), get(a, (i + 2, j)) - c0 * s0 - c1 * s1 - c2 * s2 - c3 * s3)
            put(a, (i + 3, j), get(a, (i + 3, j)) - d0 * s0 - d1 * s1 - d2 * s2 - d3 * s3)
    for i in range(fours, n):
        a0, a1, a2, a3 = four(column, i, 0)
        for j in range(i + 1):
            s0, s1, s2, s3 = four(scaled, j, 0)
            put(a, (i, j), get(a, (i, j)) - a0 * s0 - a1 * s1 - a2 * s2 - a3 * s3)


@step
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
    nothing, one = filled(a.dtype.type(0)), filled(a.dtype.type(1))
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
                c0, c1, c2, c3 = four(a, i, k)
            else:
                c0, c1, c2, c3 = nothing, nothing, nothing, nothing  # the pivots' own elements are set below
            c1 = c1 - c0 * l10
            c2 = c2 - c0 * l20 - c1 * l21
            c3 = c3 - c0 * l30 - c1 * l31 - c2 * l32
            put_four(column, i, 0, c0, c1, c2, c3)
            put_four(scaled, i, 0, c0 * r0, c1 * r1, c2 * r2, c3 * r3)
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
                put_four(a, i, k, c0, c1, c2, c3)
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


@step
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
