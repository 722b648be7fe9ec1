"""The back end for many small matrices on the CPU: tensors into the compiled loops of `batched.py`.

Numba and the loops are imported with the first call, not with the library: that takes half a second, and compiling
takes a minute, once for an installation and processor.
"""

import importlib
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.numerics.backends.base import (
    ScaledData,
    ScaledGradients,
    ScaledInputGradients,
    ScaledSolution,
    ScaledValues,
    UpdateData,
    UpdateGradients,
    UpdateInputGradients,
    UpdateOffsets,
    UpdateSolution,
    UpdateValues,
)

IN_CHUNKS: bool = False  # loops hold a block at a time, whatever they are given
LARGEST = 128
"""Size from which LAPACK, one matrix after the other, is as fast."""


def invert_scaled(
    gram: Float[Tensor, "rows n n units"], data: ScaledData, solution: ScaledSolution, values: ScaledValues
) -> None:
    _call(_loops().invert_scaled, (), (gram,), data, solution, values)


def differentiate_scaled(
    data: ScaledData, solution: ScaledSolution, gradients: ScaledGradients, into: ScaledInputGradients
) -> None:
    _call(_loops().differentiate_scaled, (), data, solution, gradients, into)


def add_weighted_gram(part: slice, phi: Tensor, scale: Tensor, gram: Tensor) -> None:
    _call(_loops().add_weighted_gram, (part.start, part.stop), (phi, scale, gram))


def update(
    part: slice, data: UpdateData, offsets: UpdateOffsets, solution: UpdateSolution, values: UpdateValues
) -> float:
    return _call(_loops().update, (part.start, part.stop), data, offsets, solution, values)


def differentiate_update(
    part: slice, data: UpdateData, solution: UpdateSolution, gradients: UpdateGradients, into: UpdateInputGradients
) -> None:
    _call(_loops().differentiate_update, (part.start, part.stop), data, solution, gradients, into)


@cache
def _loops() -> Any:
    return importlib.import_module("bnnp.numerics.backends.numba.batched")


_NOTHING = (0, 0, 1, 1)
_KINDS = {torch.float32: np.float32(0), torch.float64: np.float64(0)}


def _call(loop, sizes: tuple[int, ...], *records: Iterable[Tensor | None]) -> Any:
    """Call a loop with contiguous tensors; one that is not there, of three axes, becomes an array without rows."""
    kinds = {tensor.dtype for record in records for tensor in record if tensor is not None}
    if len(kinds) != 1:
        raise TypeError(f"tensors of one kind: got {', '.join(map(str, kinds))}; convert them to one dtype")
    return loop(_KINDS[kinds.pop()], *sizes, *map(_described, records))


def _described(record: Iterable[Tensor | None]) -> tuple[tuple[int, ...], ...]:
    """The address and shape of each tensor."""
    return tuple([_NOTHING if tensor is None else (tensor.data_ptr(), *tensor.shape) for tensor in record])


def compile_loops() -> None:
    """Compile everything for float32 and float64, which takes a while, once for an installation and processor."""
    for dtype in (torch.float32, torch.float64):
        _compile_loops(dtype)


def _compile_loops(dtype: torch.dtype) -> None:
    def ones(*axes: int) -> list[Tensor]:
        """Arrays of one number each, with so many axes."""
        return [torch.ones((1,) * number, dtype=dtype) for number in axes]

    whole, (gram,) = slice(0, 1), ones(4)
    scaled, found = ScaledData(*ones(3, 4)), ScaledSolution(*ones(3, 4))
    invert_scaled(gram, scaled, found, ScaledValues(*ones(2, 2, 2)))
    differentiate_scaled(scaled, found, ScaledGradients(*ones(4, 2, 2)), ScaledInputGradients(*ones(4, 3, 4)))
    add_weighted_gram(whole, *ones(3, 3, 3))
    data, solution = UpdateData(*ones(3, 3, 3, 3, 3, 4)), UpdateSolution(*ones(3, 3, 4))
    update(whole, data, UpdateOffsets(*ones(3, 4, 3, 3)), solution, UpdateValues(*ones(3, 3, 3)))
    into = UpdateInputGradients(*ones(3, 3, 3, 3, 4, 3))
    differentiate_update(whole, data, solution, UpdateGradients(*ones(4, 3, 3)), into)
