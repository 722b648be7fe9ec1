"""Where files of real data lie: in a folder of the user's, or in a cache that is filled by download."""

import gzip
import hashlib
import os
import urllib.request
import zlib
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from bnnp._core.files import cache_folder, write_atomically

VARIABLE = "BNNP_DATA"
_BLOCK, _PATIENCE = 2**16, 30


@dataclass(frozen=True)
class DataFile:
    """A file that can be downloaded.

    Attributes:
        family: The sub-folder that the file lies in.
        name: Its name when not compressed, that is without ".gz".
        address: Address of the folder on the web that holds it.
        sha256: Checksum of the content when not compressed.
        compressed: Whether it is compressed by gzip on the web, where its name then ends in ".gz".
    """

    family: str
    name: str
    address: str
    sha256: str
    compressed: bool = True

    @property
    def name_on_web(self) -> str:
        """Name of the file on the web."""
        return f"{self.name}.gz" if self.compressed else self.name

    @property
    def url(self) -> str:
        """Address of the file on the web."""
        return f"{self.address}/{self.name_on_web}"


def data_path(file: DataFile, folder: str | Path | None = None) -> Path:
    """Where a file lies: in `folder` if given, else in the folder of the variable BNNP_DATA if set, else in the cache.

    If the file is not in the cache, it is downloaded to it. The other folders are never written to.

    Args:
        file: The file.
        folder: A folder of the user's, or None.

    Raises:
        FileNotFoundError: If the file is not in the user's folder, or cannot be downloaded.
        ValueError: If the downloaded content is not the expected one.
    """
    home = family_folder(file.family, folder)
    for path in (home / f"{file.name}.gz", home / file.name):
        if path.is_file():
            return path
    if chosen_folder(folder) is not None:
        raise FileNotFoundError(_not_there(file, home / file.name_on_web, "there is no such file"))
    return _downloaded(file, home / file.name_on_web)


def family_folder(family: str, folder: str | Path | None = None) -> Path:
    """The sub-folder of a family of data, in the user's folder or in the cache. It need not exist."""
    chosen = chosen_folder(folder)
    return (cache_folder() if chosen is None else chosen) / family


def cache_path(family: str, name: str) -> Path:
    """Where a computed file is kept, whatever folder the user has named."""
    return cache_folder() / family / name


def chosen_folder(folder: str | Path | None = None) -> Path | None:
    """The folder that the user has named, by an argument or by the variable BNNP_DATA, if any."""
    given = folder if folder is not None else os.environ.get(VARIABLE)
    return Path(given).expanduser() if given else None  # an empty variable counts as unset


def read_decompressed(path: Path) -> bytes:
    """The content of a file, which may be compressed by gzip."""
    data = path.read_bytes()
    return _decompressed(data, path) if path.suffix == ".gz" else data


def _decompressed(data: bytes, origin: Path | str) -> bytes:
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{origin}: got a file that is damaged or not compressed by gzip ({error}), expected a whole one; "
            "remove it and put a new copy in its place"
        ) from None


def _downloaded(file: DataFile, path: Path) -> Path:
    """Download a file into the cache, where it is kept only if its content is the expected one."""
    try:
        data = _fetch(file.url, f"downloading {file.name}")
    except (OSError, HTTPException) as error:  # what urllib raises is of one of these kinds
        raise FileNotFoundError(
            _not_there(file, path, f"there is no such file, and the download failed ({error})")
        ) from error
    content = _decompressed(data, file.url) if file.compressed else data
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise ValueError(
            f"{file.url}: got content with sha256 {found}, expected {file.sha256}; it is not the file it was, so get "
            f"it elsewhere and set {VARIABLE} to the folder that holds {file.family}/{file.name}"
        )
    return write_atomically(path, data)


def _fetch(url: str, label: str) -> bytes:
    from rich.console import Console
    from rich.progress import Progress

    parts: list[bytes] = []
    with urllib.request.urlopen(url, timeout=_PATIENCE) as reply, Progress(console=Console(stderr=True)) as bar:
        size = reply.headers.get("Content-Length")
        shown = bar.add_task(label, total=int(size) if size else None)
        while part := reply.read(_BLOCK):
            parts.append(part)
            bar.advance(shown, len(part))
    return b"".join(parts)


def _not_there(file: DataFile, path: Path, reason: str) -> str:
    return (
        f"{path}: {reason}. Get {file.url} and put it there, or name another folder that holds "
        f"{file.family}/{file.name_on_web}, by the argument `folder` or the environment variable {VARIABLE}"
    )
