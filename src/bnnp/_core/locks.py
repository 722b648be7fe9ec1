"""Locks on files. The system gives them back when a process ends, however it ends."""

import os

NEVER_WRITTEN = 2**30
"""Windows locks bytes, which others then cannot read; so the one that is locked lies beyond the content."""


def lock(descriptor: int, *, otherwise: bool) -> bool:
    """Lock an open file until it is closed, without waiting.

    Args:
        descriptor: The descriptor of the open file.
        otherwise: What to return where the file system knows no locks.

    Returns:
        Whether the file is locked now. It is not if someone else has locked it.
    """
    try:
        _lock(descriptor)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # some network file systems
        return otherwise
    return True


def _lock(descriptor: int) -> None:
    if os.name == "nt":
        import msvcrt

        os.lseek(descriptor, NEVER_WRITTEN, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # pyright: ignore[reportAttributeAccessIssue]
        os.lseek(descriptor, 0, os.SEEK_SET)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
