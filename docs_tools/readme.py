"""The README as package indexes show it: without its figures, which do not come with the package."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

FIGURE = re.compile(r"^(?:<img [^>]*>[ \n])+\n(?:\*[^*]+\*\n\n)?", flags=re.M)
"""Figures that stand side by side, and their caption."""


def without_figures(text: str) -> str:
    return FIGURE.sub("", text)


class Readme(MetadataHookInterface):
    """Called by hatchling when it builds a wheel or an sdist."""

    def update(self, metadata: dict) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": without_figures(text)}
