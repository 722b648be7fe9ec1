"""The command line: one file per verb, or per group of similar verbs.

Each verb checks its input, calls the library, and writes its results whole or not at all.
"""

from bnnp.cli.entry import app, main

__all__ = ["app", "main"]
