"""Commands in several processes, as `torchrun` starts them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from bnnp._core.ranks import Ranks


@contextmanager
def process_group(*, decided: bool) -> Iterator[Ranks]:
    """Join the processes that `torchrun` has started together; without it, this process is alone.

    Args:
        decided: Whether all processes know how long to train.

    Raises:
        ValueError: If they do not.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size <= 1 or "MASTER_ADDR" not in os.environ:
        yield Ranks.present()
        return
    if not decided:
        raise ValueError(
            f"steps: got none for {size} processes, which cannot decide by the clock how much to train, expected a "
            "number, as in --steps 10000"
        )
    from torch import distributed

    distributed.init_process_group("gloo")
    try:
        yield Ranks.present()
    finally:
        distributed.destroy_process_group()
