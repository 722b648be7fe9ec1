"""What would not fit into this machine's memory is refused before it is begun."""

import math
import os

SHARE = 0.5
"""The share of the machine's memory that one result may take."""


def check_memory(what: str, numbers: int, cure: str, bytes_each: int = 8) -> None:
    """Refuse an array that is larger than half of this machine's memory.

    Args:
        what: What the array holds, for the error.
        numbers: Numbers in the array.
        cure: What the user can do, for the error.
        bytes_each: Bytes of a number.

    Raises:
        ValueError: If the array is too large.
    """
    most = SHARE * memory()
    if numbers * bytes_each > most:
        raise ValueError(
            f"{what}: got a request for {numbers * bytes_each / 1e9:.1f} GB, expected at most the {most / 1e9:.1f} GB "
            f"that are half of this machine's memory; {cure}"
        )


def memory() -> float:
    """The machine's memory in bytes; infinite where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # as on Windows
        return math.inf
