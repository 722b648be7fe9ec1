"""Randomness: a seed or a generator at the doors, a generator inside. The global state is never touched."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from bnnp._core.shapes import Tensor

Seed = int | torch.Generator


def as_generator(seed: Seed, device: torch.device | str = "cpu") -> torch.Generator:
    if isinstance(seed, torch.Generator):
        return seed
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ValueError(f"seed: got {seed!r}, expected an int or a torch.Generator")
    return torch.Generator(device).manual_seed(int(seed))


def as_integer(seed: Seed) -> int:
    """A number that stands for the seed; taken from the generator where one is given."""
    if isinstance(seed, torch.Generator):
        return int(torch.randint(2**62, (), generator=seed, device=seed.device))
    as_generator(seed)
    return int(seed)


def child(seed: int, *keys: int, device: torch.device | str = "cpu") -> torch.Generator:
    """An independent generator for each sequence of keys: one step can be repeated without those before it."""
    state = np.random.SeedSequence([seed % 2**64, *keys]).generate_state(2, np.uint32)
    return torch.Generator(device).manual_seed((int(state[0]) << 31) ^ int(state[1]))


def normal(shape: Sequence[int], like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normal draws in the dtype and on the device of `like`, the same on every device."""
    return torch.randn(*shape, generator=generator, dtype=like.dtype, device=generator.device).to(like.device)


@contextmanager
def starting_from(generator: torch.Generator) -> Iterator[None]:
    """Within it torch's own modules start from a generator instead of the global seed, which is not ours to use.

    They start on the CPU, so that the states of other devices are left alone.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        yield
