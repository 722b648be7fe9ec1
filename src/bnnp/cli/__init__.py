"""The command line: one file per verb, or per group of similar verbs.

Each verb checks its input, calls the library, and writes its results whole or not at all.
"""

from typing import TYPE_CHECKING

from bnnp._core.lazy import lazily
from bnnp.cli.signals import main

if TYPE_CHECKING:
    from bnnp.cli.entry import app as app

__all__ = ["app", "main"]
__getattr__, __dir__ = lazily(__name__, {"app": "bnnp.cli.entry"})  # the command's first moments import little
