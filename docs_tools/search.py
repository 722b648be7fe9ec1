"""A hook of mkdocs: in the search, pages for users come first, and a page before the question that leads to it."""

from mkdocs.structure.pages import Page

BOOST = {"notes/": 0.2, "reference/": 0.5, "tutorials/": 0.7, "faq.md": 0.9}
"""By the beginning of its path, what the score of a page is multiplied by."""


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Called by mkdocs for every page."""
    for beginning, boost in BOOST.items():
        if page.file.src_uri.startswith(beginning):
            page.meta["search"] = {"boost": boost}
    return markdown
