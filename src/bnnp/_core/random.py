"""Randomness: public functions take a seed or a generator, all others a generator. The global state never changes."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from bnnp._core.shapes import Tensor

Seed = int | torch.Generator


def as_generator(seed: Seed, device: torch.device | str = "cpu") -> torch.Generator:
    """The generator itself, or a new one with this seed; `ValueError` for anything else."""
    if isinstance(seed, torch.Generator):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ValueError(f"seed: got {seed!r}, expected an int or a torch.Generator")
    if not -(2**63) <= seed < 2**64:
        raise ValueError(f"seed: got {seed!r}, expected an int of at most 64 bits, as in 0")
    return torch.Generator(device).manual_seed(int(seed))


def as_integer(seed: Seed) -> int:
    """The seed as an integer; if it is a generator, an integer drawn from it."""
    if isinstance(seed, torch.Generator):
        return int(torch.randint(2**62, (), generator=seed, device=seed.device))
    as_generator(seed)
    return int(seed)


def child(seed: int, *keys: int, device: torch.device | str = "cpu") -> torch.Generator:
    """An independent generator for each sequence of keys, so that one step can be repeated without those before it.

    Args:
        seed: The seed that all children share.
        *keys: Which child, as in the number of a step.
        device: Where the generator draws.
    """
    state = np.random.SeedSequence([seed % 2**64, *keys]).generate_state(2, np.uint32)
    return torch.Generator(device).manual_seed((int(state[0]) << 31) ^ int(state[1]))


class OfShare(torch.Generator):
    """A generator for some tasks of a batch: `normal` and `uniform` give them the draws that they have in the whole.

    Attributes:
        tasks: Tasks of the whole batch.
        share: Which of them.
    """

    tasks: int
    share: slice

    @staticmethod
    def like(whole: torch.Generator, tasks: int, share: slice) -> "OfShare":
        """A generator in the state of another.

        Args:
            whole: The generator of the whole batch.
            tasks: As the attribute.
            share: As the attribute.
        """
        generator = OfShare(whole.device)
        generator.set_state(whole.get_state())
        generator.tasks, generator.share = tasks, share
        return generator


def normal(shape: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal draws in the dtype and on the device of `like`. The draws do not depend on that device."""
    return _of_tasks(torch.randn, shape, generator, like.dtype).to(like.device)


def uniform(shape: Sequence[int], generator: torch.Generator) -> Tensor:
    """Draws between 0 and 1, on the generator's device."""
    return _of_tasks(torch.rand, shape, generator, torch.float32)


def _of_tasks(
    draw: Callable[..., Tensor], shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype
) -> Tensor:
    """Draws with tasks as the first axis; for a share of the tasks, all are drawn and the others left."""
    if not isinstance(generator, OfShare):
        return draw(*shape, generator=generator, dtype=dtype, device=generator.device)
    whole = draw(generator.tasks, *shape[1:], generator=generator, dtype=dtype, device=generator.device)
    return whole[generator.share]


class starting_from(TorchFunctionMode):  # noqa: N801 (used as a function, in `with`)
    """Within this context, torch's own modules are initialised from a generator instead of the global one.

    The global state is not touched, not even for a moment, so that other threads may draw from it.

    Args:
        generator: Gives the seed of the draws.
    """

    def __init__(self, generator: torch.Generator):
        super().__init__()
        seed = torch.randint(2**62, (), generator=generator, device=generator.device)
        self._generator = torch.Generator().manual_seed(int(seed))

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        random = func in (Tensor.uniform_, Tensor.normal_) or getattr(func, "__module__", "") == nn.init.__name__
        if random and "generator" in kwargs:
            kwargs["generator"] = self._generator
        return func(*args, **kwargs)
