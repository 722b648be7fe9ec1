"""The folder of a run: it belongs to one run at a time, and is gone again if the run leaves nothing in it."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO

from bnnp._core.files import not_written
from bnnp._core.locks import lock

LOCK = ".lock"


@contextmanager
def used_alone(folder: str | Path) -> Iterator[None]:
    """Make a folder if need be, and keep other runs out of it. A process that ends, however it ends, lets them in.

    Args:
        folder: The folder.

    Raises:
        OSError: If another run uses the folder, or it cannot be written to.
    """
    path = Path(folder)
    new = [one for one in (path, *path.parents) if not one.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = _locked(path / LOCK)
    except OSError as error:
        raise (not_written(path, error) if error.errno else error) from error
    try:
        yield
    finally:
        _release(file, path / LOCK)
        for one in new:  # the innermost comes first
            with suppress(OSError):  # those with content stay
                one.rmdir()


def _locked(path: Path) -> IO[str]:
    """The lock of a folder, taken; an error without a number if another run has it."""
    while True:
        file = path.open("a+", encoding="utf-8")
        if not lock(file.fileno(), otherwise=True):
            file.seek(0)
            with file:
                raise OSError(
                    f"checkpoint: {path.parent} is in use by another run ({file.read().strip() or 'just started'}); "
                    f"wait for it or stop it. If you are sure that it no longer runs, delete {path} and try again"
                )
        if _is_at(file, path):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()} since {datetime.now():%Y-%m-%d %H:%M}\n")
            file.flush()
            return file
        file.close()  # the run that had it has ended and removed it


def _release(file: IO[str], path: Path) -> None:
    """Remove the lock, unless someone else broke it and took the folder."""
    with suppress(OSError):
        ours = _is_at(file, path)
        if os.name == "nt":  # where no open file can be removed
            file.close()
        if ours:
            path.unlink()
    file.close()


def _is_at(file: IO[str], path: Path) -> bool:
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
