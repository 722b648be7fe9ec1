"""Loops for function space, over matrices `M = I + diag(s) gram diag(s)`.

The steps that they are made of are those of `moves.py`, `tiles.py` and `inverse.py`; what they take and give is in
`backends/base.py`.
"""

from typing import no_type_check

from bnnp.numerics.backends.numba.compiled import loop
from bnnp.numerics.backends.numba.inverse import invert
from bnnp.numerics.backends.numba.moves import load, pack, store, unpack, zeros
from bnnp.numerics.backends.numba.simd import LANES, arrays, filled, get, put
from bnnp.numerics.backends.numba.tiles import multiply


@loop
@no_type_check
def invert_scaled(number, gram, data, solution, values):
    (gram,), (scale, right) = arrays(gram, number), arrays(data, number)
    inverse, solved = arrays(solution, number)
    log_determinant, excess_trace, health = arrays(values, number)
    rows, n, columns, units = right.shape
    one = filled(gram.dtype.type(1))
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
        store(x.reshape(n * columns, LANES), solved.reshape(rows, n * columns, units), block, 0, n * columns)
        store(logs, log_determinant.reshape(rows, 1, units), block, 0, 1)
        store(trace, excess_trace.reshape(rows, 1, units), block, 0, 1)
        store(good, health.reshape(rows, 1, units), block, 0, 1)


@loop
@no_type_check
def differentiate_scaled(number, data, solution, gradients, into):
    (scale, right), (inverse, solved) = arrays(data, number), arrays(solution, number)
    grad_solved, grad_log, grad_trace = arrays(gradients, number)
    grad_gram, grad_scale, grad_right = arrays(into, number)
    rows, n, columns, units = right.shape
    half = filled(inverse.dtype.type(0.5))
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
        for source, target in ((right, b), (solved, x), (grad_solved, g)):
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
