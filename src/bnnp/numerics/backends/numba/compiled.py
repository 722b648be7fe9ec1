"""How the functions of this folder become machine code, and where that is kept.

A `step` is part of other functions. A `loop` is called from Python: its machine code, with all its steps, is kept on
disk. Numba's own cache looks at the date of one file alone, so that after a change of a step it would run old machine
code, and it may mix up what two processes compile at once. Here the name of a file says all that its content was made
of: the text of every file in this folder, the versions, the processor, and the types. So a file is never wrong and
never changes, and processes may write it at the same time. Files may be deleted whenever one likes: who misses one
compiles it again. Those beside the sources are deleted once the sources have changed.
"""

import hashlib
import pickle
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core import config, serialize
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult

from bnnp._core.files import cache_folder, write_atomically

OPTIONS = {
    "nogil": True,
    "error_model": "numpy",  # dividing by zero gives an infinity, which the caller sees, and loops stay vectorised
    "fastmath": {"contract", "nsz", "arcp", "reassoc"},  # values that are not finite must stay visible
}
FOLDER = Path(__file__).parent
BESIDE_SOURCES = FOLDER / "__pycache__"
VERSIONS = f"{numba.__version__} {llvmlite.__version__} {sys.implementation.cache_tag}"
SOURCES = b"".join(path.name.encode() + path.read_bytes() for path in sorted(FOLDER.glob("*.py")))


def step(function):
    """Compile a function that others are made of."""
    return numba.njit(**OPTIONS)(function)


def loop(function):
    """Compile a function for callers in Python, and keep its machine code."""
    compiled: Any = step(function)
    compiled._cache = _MachineCode(function.__name__)
    return compiled


def folders() -> list[Path]:
    """Where machine code is looked for, and kept in the first that can be written to.

    The folder that the user has chosen for Numba, the one of Python's own compiled files, and one among the user's
    caches, for a library that was installed where users may not write.
    """
    of_numba = getattr(config, "CACHE_DIR", "")
    chosen = [Path(of_numba)] if of_numba else []
    with suppress(RuntimeError):  # a user without a home
        return [*chosen, BESIDE_SOURCES, cache_folder() / "loops"]
    return [*chosen, BESIDE_SOURCES]


class _MachineCode(NullCache):
    """What Numba asks for machine code of one function before it compiles, and tells when it has compiled."""

    def __init__(self, name: str):
        self.name = name

    def load_overload(self, signature, context):
        context.refresh()
        name = self._file(signature, context.codegen())
        for folder in folders():
            content = _read(folder / name)
            if content is not None:
                return CompileResult._rebuild(context, *pickle.loads(content))
        return None

    def save_overload(self, signature, result):
        name, content = self._file(signature, result.codegen), serialize.dumps(result._reduce())
        for folder in folders():
            with suppress(OSError):  # next time it is compiled again
                write_atomically(folder / name, _digest(content) + content)
                _remove_outdated()
                return

    def _file(self, signature, codegen) -> str:
        made_of = f"{VERSIONS} {codegen.magic_tuple()} {signature}".encode() + SOURCES
        return f"{self.name}-{_edition()}-{_digest(made_of).hex()[:32]}.machine"


def _edition() -> str:
    """The text of the sources, in short."""
    return _digest(SOURCES).hex()[:8]


def _remove_outdated() -> None:
    """Delete machine code beside the sources that other texts of them gave."""
    for path in BESIDE_SOURCES.glob("*.machine"):
        if f"-{_edition()}-" not in path.name:
            path.unlink(missing_ok=True)


def _read(path: Path) -> bytes | None:
    """What was kept, if it is there and whole."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    digest, content = content[:32], content[32:]
    return content if digest == _digest(content) else None


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()
