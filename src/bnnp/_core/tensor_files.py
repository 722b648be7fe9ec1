"""Tensors with a JSON header in one file, which is refused where a single byte is not the one that was written.

The file is a safetensors file. Its header holds a checksum of all other bytes, those of the header included. A file is
read once, through one opening, so that a reader never mixes two versions of it; nothing stays mapped to it. All sizes
that the file names are compared with its length before anything is allocated for them.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from bnnp._core.files import as_path, write_atomically
from bnnp._core.shapes import Tensor

FORMAT_VERSION = 2
"""Files of version 1 have no checksum."""
_WITH_CHECKSUM = 2
_HEADER, _CHECKSUM, _OUTLINE = "bnnp", "sha256", "__metadata__"
_NO_CHECKSUM = "0" * 64
_LONGEST_HEADER = 100_000_000
"""Bytes; what the safetensors format allows."""
_MOST_DIGITS = 20
"""Digits of a whole number in a header; seeds have the most."""


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
    first = {"format": FORMAT_VERSION, "kind": kind, _CHECKSUM: _NO_CHECKSUM}
    text = json.dumps({**first, **{key: value for key, value in header.items() if key not in first}})
    apart = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format) for name, tensor in tensors.items()
    }
    content = save(apart, metadata={_HEADER: text})
    place = content.index(_NO_CHECKSUM.encode())
    digest = hashlib.sha256(content).hexdigest().encode()
    return write_atomically(path, b"".join([content[:place], digest, content[place + len(digest) :]]))


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
    path = as_path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file")
    try:
        content, metadata = _content(path)
    except (ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{path}: not a {kind} file of bnnp, or one that was cut short ({error})") from None
    if not isinstance(metadata.get(_HEADER), str):
        raise ValueError(f"{path}: not a {kind} file of bnnp (a safetensors file of something else)")
    header = _header(metadata[_HEADER], path)
    if header["kind"] != kind:
        raise ValueError(f"{path}: got a {header['kind']} file, expected a {kind} file")
    _check(content, header.pop(_CHECKSUM, None), header["format"], path)
    try:
        return load(content), header
    except (SafetensorError, KeyError, RuntimeError, AssertionError) as error:
        raise ValueError(f"{path}: not a {kind} file of bnnp, or one that was cut short ({error})") from None


def _content(path: Path) -> tuple[bytes, dict[str, Any]]:
    """All bytes of a safetensors file, and the metadata in its header. `ValueError` if its sizes are not its length."""
    with path.open("rb") as file:
        first = file.read(8)
        length, size = int.from_bytes(first, "little"), os.fstat(file.fileno()).st_size
        if not len(first) == 8 <= 8 + length <= min(size, _LONGEST_HEADER):
            raise ValueError(f"a header of {length} bytes in a file of {size}")
        text = file.read(length)
        outline = _parsed(text)
        try:
            metadata = dict(outline.get(_OUTLINE) or {})
            ends = [int(entry["data_offsets"][1]) for name, entry in outline.items() if name != _OUTLINE]
        except (AttributeError, KeyError, TypeError, IndexError):
            raise ValueError("the header does not list tensors") from None
        expected = 8 + length + max(ends, default=0)
        if size != expected:
            raise ValueError(f"{size} bytes instead of {expected}")
        return first + text + file.read(), metadata


def _header(text: str, path: Path) -> dict[str, Any]:
    """The header, if it is one of a version that can be read."""
    try:
        header = _parsed(text)
        version, _ = header["format"], header["kind"]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: the header of this file is damaged ({error})") from None
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ValueError(f"{path}: the header of this file is damaged (format version {version!r})")
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{path}: got format version {version}, expected at most {FORMAT_VERSION}; it was written by a newer bnnp, "
            "so upgrade with `pip install --upgrade bnnp`"
        )
    return header


def _check(content: bytes, checksum: object, version: int, path: Path) -> None:
    """Refuse content that does not have its checksum."""
    if checksum is None and version < _WITH_CHECKSUM:
        return
    place = content.find(checksum.encode()) if isinstance(checksum, str) and len(checksum) == len(_NO_CHECKSUM) else -1
    if place >= 0:
        view, found = memoryview(content), hashlib.sha256()
        for part in (view[:place], _NO_CHECKSUM.encode(), view[place + len(_NO_CHECKSUM) :]):
            found.update(part)
        if found.hexdigest() == checksum:
            return
    raise ValueError(
        f"{path}: the file is damaged: its bytes are not those that were written; use another copy of it, or make it "
        "again"
    )


def _parsed(text: str | bytes) -> Any:
    """What a JSON text holds, without whole numbers that no file of ours has."""
    return json.loads(text, parse_int=_integer)


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)
