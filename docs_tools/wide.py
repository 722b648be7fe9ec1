"""A hook of mkdocs: pages of tutorials show scripts, so the table of contents gives its room to them."""

from mkdocs.structure.pages import Page


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Called by mkdocs for every page."""
    if page.file.src_uri.startswith("tutorials/"):
        page.meta["hide"] = ["toc"]
    return markdown
