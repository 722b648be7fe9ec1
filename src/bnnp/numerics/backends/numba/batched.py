"""The five loops over many small symmetric matrices, compiled for the CPU: what LAPACK does one by one, many at a time.

A loop gets a number of the kind that its arrays hold, the rows to work on, and records of `backends/base.py`. Of an
array it gets a tuple of the address and the shape: making NumPy arrays of tensors takes longer than a short loop.
`docs/notes/performance.md` compares with `torch.linalg`.
"""

from bnnp.numerics.backends.numba.function_space import differentiate_scaled, invert_scaled
from bnnp.numerics.backends.numba.gradients import differentiate_update
from bnnp.numerics.backends.numba.weight_space import add_weighted_gram, update

__all__ = ["add_weighted_gram", "differentiate_scaled", "differentiate_update", "invert_scaled", "update"]
