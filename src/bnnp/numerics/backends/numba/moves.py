"""Moving matrices between the caller's arrays and the blocks that loops work on.

A *block* of `LANES` matrices is worked on at once, each operation on a vector of their elements: block arrays have a
last axis of `LANES`. Arrays of the caller have rows (tasks and samples) first and units last; between them, matrices
are packed by rows of their lower triangle, `a[i, j]` at `i (i + 1) / 2 + j`, into a *pairs* axis.
"""

from typing import no_type_check

import numpy as np

from bnnp.numerics.backends.numba.compiled import step
from bnnp.numerics.backends.numba.simd import LANES, filled, get, get_part, put, put_part, total_of, with_part

POINTS = 32
"""Points whose features are held at once, at most."""
_LINE = 64
"""Bytes of a line of the cache."""


@step
@no_type_check
def zeros(shape, like):
    """Zeros of the same kind, laid out so that no vector crosses a cache line, which would make reading it slow."""
    size = 1
    for length in shape:
        size *= length
    room = np.zeros(size + _LINE // like.itemsize, like.dtype)
    start = -room.ctypes.data % _LINE // like.itemsize
    return room[start : start + size].reshape(shape)


@step
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


@step
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


@step
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


@step
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


@step
@no_type_check
def load_features(phi, target, block, begin, end):
    """Features of points `begin` to `end` for each lane, the same for all units of a row."""
    lane = np.uint64(0)
    row, _, length = _run(lane, block)
    while length > 0:
        for k in range(end - begin):
            for i in range(phi.shape[2]):
                value = filled(phi[row, begin + k, i])
                put(target, (k, i), with_part(get(target, (k, i)), lane, lane + length, value))
        lane += length
        row, _, length = _run(lane, block)


@step
@no_type_check
def add_over_units(source, target, block, begin, end):
    """Add what the units of a row have at points `begin` to `end`: the way back from `load_features`."""
    nothing = filled(source.dtype.type(0))
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


@step
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


@step
@no_type_check
def pack(a, packed):
    k = 0
    for i in range(a.shape[0]):
        for j in range(i + 1):
            put(packed, (k,), get(a, (i, j)))
            k += 1
