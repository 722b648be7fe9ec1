"""A hook of mkdocs: on every page, the first use of each term of the glossary is a link to it."""

import posixpath
import re

from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

GLOSSARY = "glossary.md"
LEFT_ALONE = re.compile(
    r"^(?P<fence>```+).*?^(?P=fence)\s*$"  # code
    r"|`[^`\n]+`"
    r"|^ {4}[^\n]*$"
    r"|^#[^\n]*$"  # headings
    r"|^:::[^\n]*(?:\n {4}[^\n]*)*"  # the reference
    r"|!?\[[^\]]*\]\([^)]*\)"  # links and figures
    r"|\*\*[^*]+\*\*"
    r"|<[^>]+>",
    flags=re.M | re.S,
)
"""What a link may not be put into."""


def terms(glossary: str) -> dict[str, str]:
    """The words of the glossary's headings, each with the anchor of its heading."""
    found = {}
    for heading in re.findall(r"^### (.+)$", glossary, flags=re.M):
        anchor = re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
        found |= dict.fromkeys(re.split(r", | and ", heading), anchor)
    return found


def linked(text: str, place: str, words: dict[str, str]) -> str:
    """The text with a link at the first use of every term.

    Args:
        text: A page, in Markdown.
        place: The address of the glossary, as seen from the page.
        words: Terms and anchors, as from `terms`.
    """
    parts, end, missing = [], 0, dict(words)
    for kept in [*LEFT_ALONE.finditer(text), None]:
        free = text[end : kept.start() if kept else len(text)]
        parts.append(_with_links(free, place, missing))
        if kept:
            parts.append(kept[0])
            end = kept.end()
    return "".join(parts)


def _with_links(free: str, place: str, missing: dict[str, str]) -> str:
    if not missing:
        return free
    longest_first = "|".join(sorted(map(re.escape, missing), key=len, reverse=True))

    def link(found: re.Match[str]) -> str:
        name = next((term for term in missing if term.lower() == found[1].lower()), None)
        if name is None:  # used, and so linked, before
            return found[0]
        return f"[{found[0]}]({place}#{missing.pop(name)})"

    return re.sub(rf"(?<![\w/.-])({longest_first})s?(?![\w-])", link, free, flags=re.I)


def on_page_markdown(markdown: str, *, page: Page, files: Files, **_: object) -> str:
    """Called by mkdocs for every page."""
    glossary = files.get_file_from_path(GLOSSARY)
    own = page.file.src_uri
    if glossary is None or own == GLOSSARY:
        return markdown
    place = posixpath.relpath(GLOSSARY, posixpath.dirname(own))
    return linked(markdown, place, terms(glossary.content_string))
