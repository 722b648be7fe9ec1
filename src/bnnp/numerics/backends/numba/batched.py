"""Loops over many small symmetric matrices, compiled for the CPU: what LAPACK does one by one, many at a time.

They are made of the steps of `tiles.py`, which says how arrays are laid out. Arrays are given as tuples of their
address and their shape: making NumPy arrays of tensors takes longer than a short loop. `docs/performance.md` compares
with `torch.linalg`.
"""

from typing import no_type_check

import numba

from bnnp.numerics.backends.numba.simd import LANES, array, get, put, spread
from bnnp.numerics.backends.numba.tiles import (
    COMPILED,
    add_outer,
    add_over_rows,
    add_over_units,
    add_product,
    invert,
    load,
    load_features,
    multiply,
    pack,
    store,
    unpack,
    zeros,
)

_POINTS = 32
"""Points whose features are held at once, at most."""


# --- function space: M = I + diag(s) gram diag(s) --------------------------------------------------------------------


@numba.njit(**COMPILED)
@no_type_check
def invert_scaled(number, gram, scale, right, inverse, solution, log_determinant, excess_trace, health):
    gram, scale, right = array(gram, number), array(scale, number), array(right, number)
    inverse, solution, health = array(inverse, number), array(solution, number), array(health, number)
    log_determinant, excess_trace = array(log_determinant, number), array(excess_trace, number)
    rows, n, columns, units = right.shape
    one = spread(gram.dtype.type(1))
    a = zeros((n, n, LANES), gram)
    packed = zeros((inverse.shape[1], LANES), gram)
    s = zeros((n, LANES), gram)
    b = zeros((n, columns, LANES), gram)
    x = zeros((n, columns, LANES), gram)
    logs = zeros((1, LANES), gram)
    trace = zeros((1, LANES), gram)
    good = zeros((1, LANES), gram)
    for first in range(0, rows * units, LANES):
        block = (first, rows * units, rows, units)
        for i in range(n):
            load(gram.reshape(rows, n * n, units), a[i], block, i * n, i * n + i + 1)
        load(scale, s, block, 0, n)
        load(right.reshape(rows, n * columns, units), b.reshape(n * columns, LANES), block, 0, n * columns)
        for i in range(n):
            for j in range(i + 1):
                put(a, (i, j), get(a, (i, j)) * get(s, (i,)) * get(s, (j,)))
            put(a, (i, i), get(a, (i, i)) + one)
        invert(a, good[0], logs[0])
        multiply(a, b, x, False)
        total = get(a, (0, 0)) - one
        for i in range(1, n):
            total = total + (get(a, (i, i)) - one)
        put(trace, (0,), total)
        pack(a, packed)
        store(packed, inverse, block, 0, inverse.shape[1])
        store(x.reshape(n * columns, LANES), solution.reshape(rows, n * columns, units), block, 0, n * columns)
        store(logs, log_determinant.reshape(rows, 1, units), block, 0, 1)
        store(trace, excess_trace.reshape(rows, 1, units), block, 0, 1)
        store(good, health.reshape(rows, 1, units), block, 0, 1)


@numba.njit(**COMPILED)
@no_type_check
def differentiate_scaled(
    number, inverse, scale, right, solution, grad_solution, grad_log, grad_trace, grad_gram, grad_scale, grad_right
):
    inverse, scale, right, solution = (
        array(inverse, number),
        array(scale, number),
        array(right, number),
        array(solution, number),
    )
    grad_solution, grad_log, grad_trace = (
        array(grad_solution, number),
        array(grad_log, number),
        array(grad_trace, number),
    )
    grad_gram, grad_scale, grad_right = array(grad_gram, number), array(grad_scale, number), array(grad_right, number)
    rows, n, columns, units = right.shape
    half = spread(inverse.dtype.type(0.5))
    a = zeros((n, n, LANES), inverse)
    e = zeros((n, n, LANES), inverse)
    packed = zeros((inverse.shape[1], LANES), inverse)
    b = zeros((n, columns, LANES), inverse)
    g = zeros((n, columns, LANES), inverse)
    h = zeros((n, columns, LANES), inverse)
    x = zeros((n, columns, LANES), inverse)
    s = zeros((n, LANES), inverse)
    excess = zeros((n, LANES), inverse)
    logs = zeros((1, LANES), inverse)
    traces = zeros((1, LANES), inverse)
    for first in range(0, rows * units, LANES):
        block = (first, rows * units, rows, units)
        load(inverse, packed, block, 0, packed.shape[0])
        unpack(packed, a)
        load(scale, s, block, 0, n)
        for source, target in ((right, b), (solution, x), (grad_solution, g)):
            load(source.reshape(rows, n * columns, units), target.reshape(n * columns, LANES), block, 0, n * columns)
        load(grad_log.reshape(rows, 1, units), logs, block, 0, 1)
        load(grad_trace.reshape(rows, 1, units), traces, block, 0, 1)
        multiply(a, g, h, False)
        multiply(a, a, e, True)
        # E = g M^-1 - t M^-2 - (H X^T + X H^T)/2, and diag(E (M - I)), where E M needs no product with M, since M X = B
        # and M H = G
        for i in range(n):
            for j in range(i + 1):
                total = get(logs, (0,)) * get(a, (i, j)) - get(traces, (0,)) * get(e, (i, j))
                for c in range(columns):
                    total = total - half * (get(h, (i, c)) * get(x, (j, c)) + get(h, (j, c)) * get(x, (i, c)))
                put(e, (i, j), total)
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
        store(e.reshape(n * n, LANES), grad_gram.reshape(rows, n * n, units), block, 0, n * n)
        store(excess, grad_scale, block, 0, n)
        store(h.reshape(n * columns, LANES), grad_right.reshape(rows, n * columns, units), block, 0, n * columns)


# --- weight space: Q = precision + phi^T diag(s)^2 phi ---------------------------------------------------------------


@numba.njit(**COMPILED)
@no_type_check
def add_weighted_gram(number, begin, end, phi, scale, gram):
    phi, scale, gram = array(phi, number), array(scale, number), array(gram, number)
    rows, n, d = phi.shape
    units = scale.shape[2]
    a = zeros((d, d, LANES), phi)
    packed = zeros((gram.shape[1], LANES), phi)
    features = zeros((_POINTS, d, LANES), phi)
    s = zeros((_POINTS, LANES), phi)
    for first in range(begin * units, end * units, LANES):
        block = (first, end * units, rows, units)
        load(gram, packed, block, 0, packed.shape[0])
        unpack(packed, a)
        for begin_points in range(0, n, _POINTS):
            end_points = min(begin_points + _POINTS, n)
            load_features(phi, features, block, begin_points, end_points)
            load(scale, s, block, begin_points, end_points)
            _scale(features, s, end_points - begin_points)
            add_outer(a, features, features, end_points - begin_points)
        pack(a, packed)
        store(packed, gram, block, 0, packed.shape[0])


@numba.njit(**COMPILED)
@no_type_check
def _scale(features, s, points):
    """Features times `s`, in their place."""
    for k in range(points):
        for i in range(features.shape[1]):
            put(features, (k, i), get(features, (k, i)) * get(s, (k,)))


@numba.njit(**COMPILED)
@no_type_check
def update(
    number, begin, end, precision, log_scale, mean, phi, scale, y, start, noise, rest, shift,
    inverse, centre, centred, kl, log_evidence, health,
):  # fmt: skip
    """Returns the least health, NaN where one is."""
    precision, log_scale, mean = array(precision, number), array(log_scale, number), array(mean, number)
    phi, scale, y, start, noise = (
        array(phi, number),
        array(scale, number),
        array(y, number),
        array(start, number),
        array(noise, number),
    )
    rest, shift = array(rest, number), array(shift, number)
    inverse, centre, centred = array(inverse, number), array(centre, number), array(centred, number)
    kl, log_evidence, health = array(kl, number), array(log_evidence, number), array(health, number)
    rows, n, d = phi.shape
    samples, units = start.shape[0] * start.shape[1] // rows, start.shape[3]
    diagonal = precision.shape[1] == d
    least = phi.dtype.type(1)
    nothing, one, half = spread(phi.dtype.type(0)), spread(phi.dtype.type(1)), spread(phi.dtype.type(0.5))
    a = zeros((d, d, LANES), phi)
    packed = zeros((inverse.shape[1], LANES), phi)
    p = zeros((precision.shape[1], LANES), phi)
    mu = zeros((d, 1, LANES), phi)
    expected = zeros((_POINTS, 1, LANES), phi)
    features = zeros((_POINTS, d, LANES), phi)
    s = zeros((_POINTS, LANES), phi)
    seen = zeros((1 + samples, _POINTS, LANES), phi)  # residuals, and the noise of every sample
    right = zeros((1 + samples, d, LANES), phi)
    x = zeros((1 + samples, d, LANES), phi)
    logs, good = zeros((1, LANES), phi), zeros((1, LANES), phi)
    values = zeros((3, LANES), phi)
    for first in range(begin * units, end * units, LANES):
        block = (first, end * units, rows, units)
        load(precision, p, block, 0, p.shape[0])
        load(mean, mu.reshape(d, LANES), block, 0, d)
        load(log_scale, values[2:], block, 0, 1)
        for c in range(1 + samples):
            for i in range(d):
                put(right, (c, i), nothing)
        if shift.shape[0] > 0:
            load(shift, right[0], block, 0, d)
            load(rest, packed, block, 0, packed.shape[0])
            unpack(packed, a)
        else:
            for i in range(d):
                for j in range(i + 1):
                    put(a, (i, j), nothing)
        square = nothing
        for begin_points in range(0, n, _POINTS):
            end_points = min(begin_points + _POINTS, n)
            points = end_points - begin_points
            load_features(phi, features, block, begin_points, end_points)
            load(scale, s, block, begin_points, end_points)
            load(y, seen[0], block, begin_points, end_points)
            for c in range(samples):
                load(
                    noise.reshape(rows, samples * n, units),
                    seen[1 + c],
                    block,
                    c * n + begin_points,
                    c * n + end_points,
                )
            multiply(features[:points], mu, expected[:points], False)
            for k in range(points):
                residual = (get(seen, (0, k)) - get(expected, (k, 0))) * get(s, (k,))
                square = square + residual * residual
                put(seen, (0, k), residual)
            _scale(features, s, points)
            add_outer(a, features, features, points)
            add_product(right, seen, features, points, False)
        load(start.reshape(rows, samples * d, units), x[1:].reshape(samples * d, LANES), block, 0, samples * d)
        for c in range(1, 1 + samples):
            for i in range(d):
                put(right, (c, i), get(x, (c, i)) + get(right, (0, i)) - get(right, (c, i)))
        for i in range(d):
            for j in range(i if diagonal else 0, i + 1):
                put(a, (i, j), get(a, (i, j)) + get(p, (i if diagonal else i * (i + 1) // 2 + j,)))
        invert(a, good[0], logs[0])
        multiply(right, a, x, False)
        trace, norm, fit = nothing, nothing, nothing  # tr(precision Q^-1) - d, m^T precision m, shift^T m
        for i in range(d):
            m = get(x, (0, i))
            fit = fit + get(right, (0, i)) * m
            prior = get(p, (i if diagonal else i * (i + 1) // 2 + i,))
            trace = trace + (get(a, (i, i)) * prior - one)
            norm = norm + m * m * prior
            if not diagonal:
                for j in range(i):
                    twice = get(p, (i * (i + 1) // 2 + j,))
                    twice = twice + twice
                    trace = trace + get(a, (i, j)) * twice
                    norm = norm + m * get(x, (0, j)) * twice
        log_determinant = get(logs, (0,)) + get(values, (2,)) + get(values, (2,))
        put(values, (0,), half * (trace + norm + log_determinant))
        put(values, (1,), half * (fit - square - log_determinant))
        pack(a, packed)
        store(packed, inverse, block, 0, packed.shape[0])
        store(x[0], centre, block, 0, d)
        store(x[1:].reshape(samples * d, LANES), centred.reshape(rows, samples * d, units), block, 0, samples * d)
        store(values, kl.reshape(rows, 1, units), block, 0, 1)
        store(values[1:], log_evidence.reshape(rows, 1, units), block, 0, 1)
        store(good, health.reshape(rows, 1, units), block, 0, 1)
        for lane in range(min(LANES, end * units - first)):
            if least == least and not good[0, lane] >= least:  # NaN is less than all, and stays
                least = good[0, lane]
    return least


@numba.njit(**COMPILED)
@no_type_check
def differentiate_update(
    number, begin, end, precision, mean, phi, scale, y, noise, inverse, centre, centred,
    grad_centred, grad_kl, grad_evidence, grad_precision, grad_phi, grad_scale, grad_y, grad_start, grad_shift,
):  # fmt: skip
    precision, mean, phi, scale = (
        array(precision, number),
        array(mean, number),
        array(phi, number),
        array(scale, number),
    )
    y, noise, inverse, centre = array(y, number), array(noise, number), array(inverse, number), array(centre, number)
    centred, grad_centred, grad_start = array(centred, number), array(grad_centred, number), array(grad_start, number)
    grad_kl, grad_evidence, grad_shift = array(grad_kl, number), array(grad_evidence, number), array(grad_shift, number)
    grad_precision, grad_phi = array(grad_precision, number), array(grad_phi, number)
    grad_scale, grad_y = array(grad_scale, number), array(grad_y, number)
    rows, n, d = phi.shape
    samples, units = centred.shape[0] * centred.shape[1] // rows, centred.shape[3]
    diagonal = precision.shape[1] == d
    needs_precision, needs_phi = grad_precision.shape[0] > 0, grad_phi.shape[0] > 0
    nothing, half = spread(phi.dtype.type(0)), spread(phi.dtype.type(0.5))
    a = zeros((d, d, LANES), phi)
    e = zeros((d, d, LANES), phi)
    weighted = zeros((d, d, LANES), phi)
    packed = zeros((inverse.shape[1], LANES), phi)
    p = zeros((precision.shape[1], LANES), phi)
    full = zeros((1 if diagonal else d, d, LANES), phi)
    g = zeros((1 + samples, d, LANES), phi)
    both, swapped = zeros((2 + 2 * samples, d, LANES), phi), zeros((2 + 2 * samples, d, LANES), phi)
    x, h = both[: 1 + samples], both[1 + samples :]
    pulls = zeros((2 + samples, d, LANES), phi)  # by shift, by the right sides of samples; then the prior mean
    across = zeros((d, 2 + samples, LANES), phi)
    features = zeros((_POINTS, d, LANES), phi)
    pulled = zeros((_POINTS, d, LANES), phi)
    projected = zeros((_POINTS, 2 + samples, LANES), phi)
    factors = zeros((_POINTS, 2 + samples, LANES), phi)
    s, t, drawn = zeros((_POINTS, LANES), phi), zeros((_POINTS, LANES), phi), zeros((samples, _POINTS, LANES), phi)
    grad_s, grad_t = zeros((_POINTS, LANES), phi), zeros((_POINTS, LANES), phi)
    by_kl, by_evidence = zeros((1, LANES), phi), zeros((1, LANES), phi)
    if needs_phi:
        grad_phi[begin:end] = 0
    for first in range(begin * units, end * units, LANES):
        block = (first, end * units, rows, units)
        load(inverse, packed, block, 0, packed.shape[0])
        unpack(packed, a)
        load(precision, p, block, 0, p.shape[0])
        load(mean, pulls[1 + samples], block, 0, d)
        load(centre, x[0], block, 0, d)
        load(centred.reshape(rows, samples * d, units), x[1:].reshape(samples * d, LANES), block, 0, samples * d)
        load(grad_centred.reshape(rows, samples * d, units), g[1:].reshape(samples * d, LANES), block, 0, samples * d)
        load(grad_kl.reshape(rows, 1, units), by_kl, block, 0, 1)
        load(grad_evidence.reshape(rows, 1, units), by_evidence, block, 0, 1)
        kl, evidence = get(by_kl, (0,)), get(by_evidence, (0,))
        # precision Q^-1, and the derivative of the KL by the mean
        if diagonal:
            for i in range(d):
                for j in range(d):
                    put(weighted, (i, j), get(p, (i,)) * get(a, (i, j)))
                put(g, (0, i), kl * get(p, (i,)) * get(x, (0, i)))
        else:
            unpack(p, full)
            multiply(full, a, weighted, False)
            for i in range(d):
                total = nothing
                for j in range(d):
                    total = total + get(full, (i, j)) * get(x, (0, j))
                put(g, (0, i), kl * total)
        multiply(g, a, h, False)
        multiply(a, weighted, e, True)
        for i in range(d):  # shift enters the evidence twice: by itself, and by the mean
            put(h, (0, i), get(h, (0, i)) + half * evidence * get(x, (0, i)))
        # twice E = g Q^-1 - t Q^-1 precision Q^-1 - (H X^T + X H^T)/2
        for i in range(d):
            for j in range(i + 1):
                put(e, (i, j), (kl - evidence) * get(a, (i, j)) - kl * get(e, (i, j)))
            for c in range(1 + samples):
                put(swapped, (c, i), -get(h, (c, i)))
                put(swapped, (1 + samples + c, i), -get(x, (c, i)))
        add_outer(e, both, swapped, 2 + 2 * samples)
        for i in range(d):
            for j in range(i):
                put(e, (j, i), get(e, (i, j)))
        if needs_precision:
            for i in range(d):
                for j in range(i if diagonal else 0, i + 1):
                    by_prior = get(e, (i, j)) + kl * (get(a, (i, j)) + get(x, (0, i)) * get(x, (0, j)))
                    put(packed, (i if diagonal else i * (i + 1) // 2 + j,), half * by_prior)
            add_over_rows(packed, grad_precision[0], block)
        for i in range(d):
            total = get(h, (0, i)) + half * evidence * get(x, (0, i))
            for c in range(1, 1 + samples):
                total = total + get(h, (c, i))
                put(pulls, (c, i), get(h, (c, i)))
            put(pulls, (0, i), total)
            for c in range(2 + samples):
                put(across, (i, c), get(pulls, (c, i)))
        store(pulls[0], grad_shift, block, 0, d)
        store(h[1:].reshape(samples * d, LANES), grad_start.reshape(rows, samples * d, units), block, 0, samples * d)
        for begin_points in range(0, n, _POINTS):
            end_points = min(begin_points + _POINTS, n)
            points = end_points - begin_points
            load_features(phi, features, block, begin_points, end_points)
            load(scale, s, block, begin_points, end_points)
            load(y, t, block, begin_points, end_points)
            for c in range(samples):
                load(noise.reshape(rows, samples * n, units), drawn[c], block, c * n + begin_points, c * n + end_points)
            multiply(features[:points], e, pulled[:points], False)
            multiply(features[:points], across, projected[:points], False)
            for k in range(points):
                weight, by_shift = get(s, (k,)), get(projected, (k, 0))
                misfit = get(t, (k,)) - get(projected, (k, 1 + samples))
                residual = weight * misfit
                by_residual = weight * by_shift - evidence * residual
                even, odd = nothing, nothing  # phi^T E phi in two sums, neither of which waits for the other
                for i in range(0, d - 1, 2):
                    even = even + get(features, (k, i)) * get(pulled, (k, i))
                    odd = odd + get(features, (k, i + 1)) * get(pulled, (k, i + 1))
                if d % 2 == 1:
                    even = even + get(features, (k, d - 1)) * get(pulled, (k, d - 1))
                for i in range(d):
                    put(pulled, (k, i), get(pulled, (k, i)) * weight * weight)
                by_weight = residual * by_shift + misfit * by_residual + weight * (even + odd)
                for c in range(samples):
                    by_weight = by_weight - get(drawn, (c, k)) * get(projected, (k, 1 + c))
                    put(factors, (k, 1 + c), -weight * get(drawn, (c, k)))
                put(factors, (k, 0), weight * residual)
                put(factors, (k, 1 + samples), -weight * by_residual)
                put(grad_t, (k,), weight * by_residual)
                put(grad_s, (k,), by_weight)
            store(grad_s, grad_scale, block, begin_points, end_points)
            store(grad_t, grad_y, block, begin_points, end_points)
            if needs_phi:
                add_product(pulled[:points], factors, pulls, 2 + samples, False)
                add_over_units(pulled, grad_phi, block, begin_points, end_points)
