"""Loops for weight space, over matrices `Q = precision + phi^T diag(s)^2 phi`. Derivatives are in `gradients.py`."""

from typing import no_type_check

from bnnp.numerics.backends.numba.compiled import loop, step
from bnnp.numerics.backends.numba.inverse import invert
from bnnp.numerics.backends.numba.moves import POINTS, load, load_features, pack, store, unpack, zeros
from bnnp.numerics.backends.numba.simd import LANES, arrays, filled, get, put
from bnnp.numerics.backends.numba.tiles import add_outer, add_product, multiply


@loop
@no_type_check
def add_weighted_gram(number, begin, end, given):
    phi, scale, gram = arrays(given, number)
    rows, n, d = phi.shape
    units = scale.shape[2]
    a = zeros((d, d, LANES), phi)
    packed = zeros((gram.shape[1], LANES), phi)
    features = zeros((POINTS, d, LANES), phi)
    s = zeros((POINTS, LANES), phi)
    for first in range(begin * units, end * units, LANES):
        block = (first, end * units, rows, units)
        load(gram, packed, block, 0, packed.shape[0])
        unpack(packed, a)
        for begin_points in range(0, n, POINTS):
            end_points = min(begin_points + POINTS, n)
            load_features(phi, features, block, begin_points, end_points)
            load(scale, s, block, begin_points, end_points)
            _scale(features, s, end_points - begin_points)
            add_outer(a, features, features, end_points - begin_points)
        pack(a, packed)
        store(packed, gram, block, 0, packed.shape[0])


@step
@no_type_check
def _scale(features, s, points):
    """Features times `s`, in their place."""
    for k in range(points):
        for i in range(features.shape[1]):
            put(features, (k, i), get(features, (k, i)) * get(s, (k,)))


@loop
@no_type_check
def update(number, begin, end, data, offsets, solution, values):
    """Returns the least health, NaN where one is."""
    precision, mean, phi, scale, y, noise = arrays(data, number)
    log_scale, start, rest, shift = arrays(offsets, number)
    inverse, centre, centred = arrays(solution, number)
    kl, log_evidence, health = arrays(values, number)
    rows, n, d = phi.shape
    samples, units = start.shape[0] * start.shape[1] // rows, start.shape[3]
    diagonal = precision.shape[1] == d
    least = phi.dtype.type(1)
    nothing, one, half = filled(phi.dtype.type(0)), filled(phi.dtype.type(1)), filled(phi.dtype.type(0.5))
    a = zeros((d, d, LANES), phi)
    packed = zeros((inverse.shape[1], LANES), phi)
    p = zeros((precision.shape[1], LANES), phi)
    mu = zeros((d, 1, LANES), phi)
    expected = zeros((POINTS, 1, LANES), phi)
    features = zeros((POINTS, d, LANES), phi)
    s = zeros((POINTS, LANES), phi)
    seen = zeros((1 + samples, POINTS, LANES), phi)  # residuals, and the noise of every sample
    right = zeros((1 + samples, d, LANES), phi)
    x = zeros((1 + samples, d, LANES), phi)
    logs, good = zeros((1, LANES), phi), zeros((1, LANES), phi)
    numbers = zeros((3, LANES), phi)  # KL, log evidence, log |L|
    for first in range(begin * units, end * units, LANES):
        block = (first, end * units, rows, units)
        load(precision, p, block, 0, p.shape[0])
        load(mean, mu.reshape(d, LANES), block, 0, d)
        load(log_scale, numbers[2:], block, 0, 1)
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
        for begin_points in range(0, n, POINTS):
            end_points = min(begin_points + POINTS, n)
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
        log_determinant = get(logs, (0,)) + get(numbers, (2,)) + get(numbers, (2,))
        put(numbers, (0,), half * (trace + norm + log_determinant))
        put(numbers, (1,), half * (fit - square - log_determinant))
        pack(a, packed)
        store(packed, inverse, block, 0, packed.shape[0])
        store(x[0], centre, block, 0, d)
        store(x[1:].reshape(samples * d, LANES), centred.reshape(rows, samples * d, units), block, 0, samples * d)
        store(numbers, kl.reshape(rows, 1, units), block, 0, 1)
        store(numbers[1:], log_evidence.reshape(rows, 1, units), block, 0, 1)
        store(good, health.reshape(rows, 1, units), block, 0, 1)
        for lane in range(min(LANES, end * units - first)):
            if least == least and not good[0, lane] >= least:  # NaN is less than all, and stays
                least = good[0, lane]
    return least
