"""Files on disk: written completely or not at all, and open to nobody whom the user's umask keeps out."""

import errno
import glob
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from bnnp._core.locks import lock

TEMPORARY = ".tmp"


def as_path(value: Any, name: str = "path") -> Path:
    """A path that a user gave.

    Args:
        value: What the user gave.
        name: The argument's name, for the error.

    Returns:
        The path.

    Raises:
        ValueError: If it is not a string or a path, is empty, or no file can have such a name.
    """
    if not isinstance(value, str | os.PathLike) or not str(value).strip() or "\0" in str(value):
        raise ValueError(f"{name}: got {value!r}, expected the name of a file or folder, as in 'model.bnnp'")
    return Path(value)


def write_atomically(path: str | Path, content: bytes | str) -> Path:
    """Write a file so that a reader sees the old content or the new one, never a part of it.

    Who may read the file is decided by the user's umask and, where there was a file before, by that file: the new one
    is never open to more people than either. What killed writers of this file have left in its folder is removed.

    Args:
        path: The file; its folder is made if need be.
        content: The new content.

    Returns:
        The path.

    Raises:
        ValueError: If the path is not one.
        OSError: If the file cannot be written, as on a full disk. The old content stays.
    """
    data = content.encode() if isinstance(content, str) else content
    with written_atomically(path) as file, naming(as_path(path)):
        file.write(data)
    return as_path(path)


@contextmanager
def written_atomically(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes its place when the block ends without an error, as in `write_atomically`.

    Args:
        path: The file; its folder is made if need be.

    Raises:
        ValueError: If the path is not one.
        OSError: If the file cannot be written, as on a full disk. The old content stays.
    """
    path = as_path(path)
    with ExitStack() as stack:
        with naming(path):
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "it is a folder")
            path.parent.mkdir(parents=True, exist_ok=True)
            _remove_leftovers(path)
            file, temporary = stack.enter_context(_new_file_beside(path))
        yield file
        with naming(path):
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                os.chmod(temporary, stat.S_IMODE(path.stat().st_mode & temporary.stat().st_mode))
            if os.name == "nt":  # where no open file can be renamed
                file.close()
            os.replace(temporary, path)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of writing to a file, with its name and what to do."""
    try:
        yield
    except OSError as error:
        raise not_written(path, error) from error


@contextmanager
def _new_file_beside(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A new file in the same folder, locked as long as its writer lives. It is removed if it was not renamed."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}{TEMPORARY}")
        with temporary.open("xb") as file:
            try:
                # another writer may have taken it for a leftover before it was locked
                if lock(file.fileno(), otherwise=True) and temporary.exists():
                    yield file, temporary
                    return
            finally:
                if os.name == "nt":
                    file.close()
                temporary.unlink(missing_ok=True)


def _remove_leftovers(path: Path) -> None:
    """Remove what killed writers of this file have left. Those of living writers are locked."""
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*{TEMPORARY}"):
        with suppress(OSError), leftover.open("r+b") as file:
            if lock(file.fileno(), otherwise=False):
                leftover.unlink()


def not_written(path: Path, error: OSError) -> OSError:
    """The error of a file or folder that cannot be written to, with its name and what to do."""
    return OSError(
        error.errno, f"cannot write {path}: {error.strerror or error}; choose another place or free some space"
    )


def cache_folder() -> Path:
    """This library's folder for cached files, by the conventions of the platform."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bnnp"
