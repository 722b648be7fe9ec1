"""The files of the page: one HTML, one script and one style sheet; the script's parts are files of their own."""

from functools import cache
from importlib.resources import files

TYPES = {"page.html": "text/html", "page.js": "text/javascript", "page.css": "text/css"}
"""The files that a page loads, and their types."""
SCRIPT = (
    *("scales.js", "figure.js", "map.js", "backend.js", "state.js", "downloads.js"),
    *("controls.js", "words.js", "jobs.js", "main.js"),
)
"""The parts of `page.js`, in their order."""
ENGINE = ("grid.js", "draws.js", "algebra.js", "engine.js", "predict.js")
"""The parts of the script that conditions in the browser, for pages without a server."""


@cache
def asset(name: str) -> str:
    """A file of the page."""
    return joined(("grid.js", *SCRIPT)) if name == "page.js" else _read(name)


@cache
def joined(parts: tuple[str, ...]) -> str:
    """Parts of a script as one text."""
    return "\n".join(_read(part) for part in parts)


def headers() -> dict[str, str]:
    """Headers of every answer: the browser loads nothing from elsewhere, and keeps nothing."""
    policy = "default-src 'self'; img-src 'self' blob: data:; frame-ancestors 'none'"
    return {"Content-Security-Policy": policy, "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def _read(name: str) -> str:
    return (files("bnnp.app") / "page" / name).read_text(encoding="utf-8")
