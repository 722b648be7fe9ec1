"""A hook of mkdocs: in the search, pages for users come before notes for developers and the reference."""

from mkdocs.structure.pages import Page

BOOST = {"notes/": 0.2, "reference/": 0.5, "tutorials/": 0.7}
"""By the folder of a page, what its score in the search is multiplied by."""


def on_page_markdown(markdown: str, *, page: Page, **_: object) -> str:
    """Called by mkdocs for every page."""
    for folder, boost in BOOST.items():
        if page.file.src_uri.startswith(folder):
            page.meta["search"] = {"boost": boost}
    return markdown
