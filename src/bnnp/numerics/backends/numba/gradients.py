"""The loop for derivatives of the update in weight space."""

from typing import no_type_check

from bnnp.numerics.backends.numba.compiled import loop
from bnnp.numerics.backends.numba.moves import (
    POINTS,
    add_over_rows,
    add_over_units,
    load,
    load_features,
    store,
    unpack,
    zeros,
)
from bnnp.numerics.backends.numba.simd import LANES, arrays, filled, get, put
from bnnp.numerics.backends.numba.tiles import add_outer, add_product, multiply


@loop
@no_type_check
def differentiate_update(number, begin, end, data, solution, gradients, into):
    precision, mean, phi, scale, y, noise = arrays(data, number)
    inverse, centre, centred = arrays(solution, number)
    grad_centred, grad_kl, grad_evidence = arrays(gradients, number)
    grad_precision, grad_phi, grad_scale, grad_y, grad_start, grad_shift = arrays(into, number)
    rows, n, d = phi.shape
    samples, units = centred.shape[0] * centred.shape[1] // rows, centred.shape[3]
    diagonal = precision.shape[1] == d
    needs_precision, needs_phi = grad_precision.shape[0] > 0, grad_phi.shape[0] > 0
    nothing, half = filled(phi.dtype.type(0)), filled(phi.dtype.type(0.5))
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
    features = zeros((POINTS, d, LANES), phi)
    pulled = zeros((POINTS, d, LANES), phi)
    projected = zeros((POINTS, 2 + samples, LANES), phi)
    factors = zeros((POINTS, 2 + samples, LANES), phi)
    s, t, drawn = zeros((POINTS, LANES), phi), zeros((POINTS, LANES), phi), zeros((samples, POINTS, LANES), phi)
    grad_s, grad_t = zeros((POINTS, LANES), phi), zeros((POINTS, LANES), phi)
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
        for begin_points in range(0, n, POINTS):
            end_points = min(begin_points + POINTS, n)
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
