"""Files on disk: tensors with a JSON header. They are written completely or not at all, and checked when read."""

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from bnnp._core.shapes import Tensor

FORMAT_VERSION = 1
_HEADER = "bnnp"


def write_atomically(path: str | Path, content: bytes | str) -> Path:
    """Write a file so that a reader sees the old content or the new one, never a part of it.

    Args:
        path: The file; its folder is made if need be.
        content: The new content.

    Returns:
        The path.

    Raises:
        OSError: If the file cannot be written, as on a full disk. The old content stays.
    """
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _not_written(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        raise _not_written(path, error) from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


def cache_folder() -> Path:
    """This library's folder for cached files, by the conventions of the platform."""
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "bnnp"


def _not_written(path: Path, error: OSError) -> OSError:
    return OSError(
        error.errno, f"cannot write {path}: {error.strerror or error}; choose another place or free some space"
    )


def write_tensors(path: str | Path, kind: str, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> Path:
    """Write one safetensors file of a given kind, with a JSON header.

    Args:
        path: The file.
        kind: What the file holds, as in "model"; `read_tensors` asks for the same kind.
        tensors: Tensors by name.
        header: What else is to be kept; it must be JSON.

    Returns:
        The path.
    """
    text = json.dumps({"format": FORMAT_VERSION, "kind": kind, **header})
    apart = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    return write_atomically(path, save(apart, metadata={_HEADER: text}))


def read_tensors(path: str | Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file that `write_tensors` wrote. No code in the file is ever run.

    Args:
        path: The file.
        kind: What the file must hold.

    Returns:
        The tensors by name, and the header.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is another file, is damaged, or was written by a newer version.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_HEADER)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise ValueError(f"{path}: not a {kind} file of bnnp, or one that was cut short ({error})") from None
    if text is None:
        raise ValueError(f"{path}: not a {kind} file of bnnp (a safetensors file of something else)")
    try:
        header = json.loads(text)
        version, found = header["format"], header["kind"]
    except (json.JSONDecodeError, KeyError, TypeError):
        raise ValueError(f"{path}: the header of this file is damaged") from None
    if not isinstance(version, int) or version < 1:
        raise ValueError(f"{path}: the header of this file is damaged (format version {version!r})")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{path}: got format version {version}, expected at most {FORMAT_VERSION}; it was written by a newer bnnp, "
            "so upgrade with `pip install --upgrade bnnp`"
        )
    if found != kind:
        raise ValueError(f"{path}: got a {found} file, expected a {kind} file")
    return tensors, header
