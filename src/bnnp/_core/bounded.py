"""A bound on the size of every tensor that is made, so that a wrong size in a file takes no memory."""

import math

import torch
from torch.overrides import TorchFunctionMode

BY_SIZE = (torch.empty, torch.zeros, torch.ones, torch.full, torch.eye, torch.arange, torch.rand, torch.randn)
"""Functions that make tensors of a size that is given."""


class AtMost(TorchFunctionMode):
    """Within this context, a tensor of more than this many numbers is refused before it is made.

    Args:
        numbers: The most numbers that a tensor may hold.

    Raises:
        ValueError: In the context, where a tensor would be larger.
    """

    def __init__(self, numbers: int):
        super().__init__()
        self.numbers = numbers

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func in BY_SIZE:
            sizes = args[0] if args and not isinstance(args[0], int) else args
            self._check(math.prod(sizes) ** (2 if func is torch.eye and len(sizes) == 1 else 1))
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):  # one that an expanded view would become
            self._check(result.numel())
        return result

    def _check(self, numbers: int) -> None:
        if numbers > self.numbers:
            raise ValueError(f"a tensor of {numbers} numbers, where {self.numbers} are the most there can be")
