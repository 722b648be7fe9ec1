"""Two ways to do the same arithmetic: compiled loops for many small matrices on the CPU, else `torch.linalg`."""

import torch

from bnnp.numerics.backends import torch_linalg
from bnnp.numerics.backends.base import BackEnd
from bnnp.numerics.backends.numba import binding


def back_end_for(size: int, device: torch.device) -> BackEnd:
    """The back end for matrices of so many rows on a device. A module for another device is chosen here."""
    return binding if size <= binding.LARGEST and device.type == "cpu" else torch_linalg
