r"""Pictures of the page for the documentation, taken in a real browser.

    bnnp train theoph.csv --task task --x Time --y conc --hidden 32,32 --out theoph
    bnnp train --source mnist --hidden 48,48 --steps 400 --batch-size 2 --context-share 0.05,0.3 \
        --learning-rate 0.005,0.0005 --out mnist
    PYTHONPATH=tests python docs_tools/page_figures.py --table theoph.csv --looks looks

Without `--table` only the pictures of `zoo:sawtooth` are taken. `--looks` also writes each picture in dark colours and
400 pixels wide, to be looked at.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import bnnp
from bnnp.app import Gallery
from support.browser import Reader, chromium, resize
from support.page import served

FOUR_POINTS = """
page.state.points = [[-1.45, -0.3], [-1.34, -0.24], [0.02, -0.64], [1.98, -0.6]].map(([x, y]) => ({ x: [x], y: [y] }));
document.getElementById("show-prior").click();
"""
A_SUBJECT = """
const choice = document.getElementById("subject");
choice.value = 4;
choice.dispatchEvent(new Event("change"));
document.getElementById("calibrate").click();
"""
A_DIGIT = """
document.getElementById("number").value = 3;
const known = document.getElementById("shown");
known.value = 120;
known.dispatchEvent(new Event("input"));
page.takeSubject(3);
"""


def scenes(table: Path | None, theoph: Path, mnist: Path) -> Iterator[tuple[str, Gallery, str, str, int]]:
    """Each picture: its name, what is shown, what is done, what is waited for, and its height."""
    sawtooth = Gallery({"zoo:sawtooth": bnnp.load("zoo:sawtooth")}, bnnp.tasks.sawtooth())
    yield "page_sawtooth", sawtooth, FOUR_POINTS, "page.pictures.has('prior') && page.state.points.length === 4", 700
    if table is None:
        return
    subjects = bnnp.tasks.from_table(table, task="task", x=["Time"], y=["conc"])
    counted = "document.querySelector('#calibration dl') !== null"
    yield "page_table", Gallery({"theoph": bnnp.load(str(theoph))}, subjects), A_SUBJECT, counted, 700
    digits = Gallery({"mnist": bnnp.load(str(mnist))}, bnnp.tasks.mnist("test"))
    yield "page_digit", digits, A_DIGIT, "page.state.points.length === 120", 900


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, help="the Theophylline table of R, as CSV")
    parser.add_argument("--theoph", type=Path, default=Path("theoph"), help="the model of it")
    parser.add_argument("--mnist", type=Path, default=Path("mnist"), help="a model of digits")
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    parser.add_argument("--looks", type=Path, help="a folder for dark and narrow pictures")
    given = parser.parse_args()
    with chromium() as browser:
        for name, gallery, script, ready, height in scenes(given.table, given.theoph, given.mnist):
            with served(gallery) as port:
                page = Reader(browser, f"http://127.0.0.1:{port}/")
                page.js("document.documentElement.style.scrollbarWidth = 'none'")
                page.js(script)
                page.wait(f"return {ready}", 300)
                looks = {given.out / f"{name}.png": (1280, height, False)}
                if name == "page_sawtooth":  # that of the README
                    looks[given.out / "page_small.png"] = (745, 425, False)
                if given.looks is not None:
                    given.looks.mkdir(exist_ok=True)
                    looks[given.looks / f"{name}_dark.png"] = (1280, height, True)
                    looks[given.looks / f"{name}_400.png"] = (400, 1500, False)
                    looks[given.looks / f"{name}_400_dark.png"] = (400, 1500, True)
                for file, (width, high, dark) in looks.items():
                    resize(browser, width, high, dark=dark)
                    page.settle()
                    browser.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
                    browser.save_screenshot(str(file))
                    print(f"wrote {file}", page.complaints())
                resize(browser, 1280, height)


main()
