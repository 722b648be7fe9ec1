"""Every sentence of the README and the pages for users that has a number is held by something: see `claims.toml`."""

import inspect
import math
import re
import textwrap
import tomllib
from pathlib import Path

import pandas as pd
import pytest
import typer

import bnnp
from bnnp.app.export import MOST_SUBJECTS
from bnnp.app.protocol import LARGEST_MESSAGE
from bnnp.cli import app
from bnnp.cli.predict import PLOTTED
from bnnp.comparison.plan import KNOWN
from bnnp.demo import STEPS
from bnnp.evaluation.trust import DRAWS, SIMULATIONS
from bnnp.inference.mcmc.chains import ESS_LIMIT, RHAT_LIMIT
from bnnp.models.enough import FIRST, LARGEST_GAP, MOST
from bnnp.models.trust import LARGE_K, LEAST_EFFECTIVE, LEVEL, RARE
from bnnp.recipe.judging import LEAST_TASKS, LEFT_OUT
from bnnp.recipe.rounds import EVERYTHING, FEATURES, FIRST_STEPS, LEAST_GAIN, MANY_TASKS

ROOT = Path(__file__).parents[2]
CLAIMS: dict[str, dict[str, dict[str, str]]] = tomllib.loads(Path(__file__).with_name("claims.toml").read_text())
WORDS = ("cited", "meant", "timed")
OTHERS = {"docs/training.md", "docs/scale.md"}
"""Pages whose sections each have their command and their tests beside the numbers."""
EACH_PAGE = pytest.mark.parametrize("page", CLAIMS["numbers"])


def sentences(text: str) -> list[str]:
    """Those of running text: without code in blocks, tables, headings and figures."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    lines = [line for line in text.splitlines() if not re.match(r" {4}|\||#|!\[|<img", line)]
    parts = re.split(r"\n\s*\n|\n(?=- |\d\. )", "\n".join(lines))
    flat = [re.sub(r"^(?:- |\d\. )", "", " ".join(part.split())) for part in parts]
    return [one for part in flat for one in re.split(r"(?<=[.:?!])\s+(?=[A-Z`*\[])", part) if one]


def has_number(sentence: str) -> bool:
    return bool(re.search(r"\d", re.sub(r"`[^`]*`|\]\([^)]*\)", "", sentence)))


def unheld(page: str, text: str) -> list[str]:
    """Sentences with a number that the list does not know."""
    known = [*CLAIMS["numbers"][page], *CLAIMS["behaviour"].get(page, {})]
    return [one for one in sentences(text) if has_number(one) and not any(words in one for words in known)]


def test_all_pages_for_users_are_listed():
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} | {"README.md"}
    assert set(CLAIMS["numbers"]) == pages - OTHERS
    assert set(CLAIMS["behaviour"]) <= pages


@EACH_PAGE
def test_every_sentence_with_a_number_is_held(page):
    assert unheld(page, (ROOT / page).read_text()) == []


@pytest.mark.parametrize("kind", CLAIMS)
def test_what_is_held_is_said_and_what_holds_it_exists(kind):
    for page, claims in CLAIMS[kind].items():
        text = " ".join((ROOT / page).read_text().split())
        for words, holder in claims.items():
            assert words in text, f"{page} does not say: {words}"
            file, _, name = holder.partition("::")
            source = next((place for place in (ROOT / "tests" / file, ROOT / file) if place.is_file()), None)
            assert holder in WORDS or source is not None, f"{words}: there is no {holder}"
            assert not name or f"\ndef {name}(" in (source or Path()).read_text(), f"{words}: there is no {holder}"


def test_a_number_that_nothing_holds_is_found():
    assert unheld("docs/tutorials.md", "It is good.\n\nIt is 3 times as fast.") == ["It is 3 times as fast."]
    assert unheld("docs/tutorials.md", "| 3 |\n\n    x = 3\n\n`--steps 3` and [three](a3.md)") == []


# --- what no other test holds ----------------------------------------------------------------------------------------


def test_numbers_that_pages_name_are_those_of_the_code():
    assert LEAST_TASKS == 20
    assert inspect.signature(bnnp.learn).parameters["minutes"].default == 10
    assert (FIRST, LARGEST_GAP, MOST) == (32, 0.01, 1000)
    assert (DRAWS, SIMULATIONS, RARE, LEVEL) == (1000, 50, 0.02, 0.9)
    assert (LARGE_K, LEAST_EFFECTIVE * DRAWS) == (0.7, 100)
    assert (RHAT_LIMIT, ESS_LIMIT) == (1.05, 100)
    assert (PLOTTED, MOST_SUBJECTS, LARGEST_MESSAGE) == (20, 40, 256 * 1024)
    assert (STEPS, KNOWN) == (1500, 1 / 3)


def test_the_page_on_training_has_the_numbers_of_the_recipe():
    text = " ".join((ROOT / "docs" / "training.md").read_text().split())
    share, most = LEFT_OUT
    rounds = {part: ", ".join(str(FIRST_STEPS[part] * 2**count) for count in range(3)) for part in FIRST_STEPS}
    assert share == 0.25
    assert f"leaves out a quarter of the data sets, at most {most}," in text
    assert f"in rounds of {rounds[FEATURES]}, ... steps" in text
    assert f"trains everything in rounds of {rounds[EVERYTHING]}, ... steps" in text
    assert f"gains at least {LEAST_GAIN}, and" in text
    assert f"With fewer than {MANY_TASKS / (1 - share):.0f} data sets, so that fewer than {MANY_TASKS} are" in text
    assert f"is judged by {most} fresh ones" in text
    assert f"With fewer than {LEAST_TASKS} data sets there are none to spare" in text
    kept = bnnp.Checkpointing("run")
    assert f"writes its state every {kept.every} steps or {kept.seconds:.0f} seconds" in text


def test_a_gain_of_a_tenth_is_about_ten_per_cent():
    assert math.exp(0.1) == pytest.approx(1.1, abs=0.01)


def test_the_simulated_trial_has_the_patients_and_samples_that_pages_say(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import trial  # pyright: ignore[reportMissingImports]

    trial.write_tables(tmp_path)
    samples = pd.read_csv(tmp_path / "trial.csv")["subject"].value_counts().tolist()
    assert len(samples) == 12
    assert max(samples) <= 11
    assert min(samples) >= 8
    assert "generator.normal(0, 0.3, len(HOURS))" in inspect.getsource(trial.subject)
    assert len(pd.read_csv(tmp_path / "known.csv")) == 4


def test_what_is_read_from_the_tables_of_errors_and_shares_is_in_them():
    text = (ROOT / "docs" / "how_many.md").read_text()
    found = re.findall(r"^\| (\d+) \|(.+) \|$", text, flags=re.M)
    rows = [(int(size), [float(cell) for cell in cells.split("|")]) for size, cells in found]
    errors, shares = dict(rows[:6]), dict(rows[6:])
    assert list(errors) == list(shares) == [3, 6, 12, 25, 50, 100]
    assert all(row[-1] < row[0] / 2 for row in errors.values())
    assert all(0.18 <= 1 - many / few <= 0.27 for few, many in zip(errors[6], errors[100], strict=True))
    assert max(shares[3]) < 0.82
    assert all(0.8 <= shares[size][0] < 0.87 for size in (6, 12))
    assert all(abs(share - 0.9) <= 0.04 + 1e-9 for size in (25, 50, 100) for share in shares[size])


def test_the_first_screen_of_the_readme_has_what_a_newcomer_wants_and_little_else():
    first = (ROOT / "README.md").read_text().split("\n## ")[0]
    wanted = ("<img", "page_small.png", "pip install 'bnnp[tables]'", "```python", "prints", "**When not to use it.**")
    places = [first.find(part) for part in wanted]
    assert min(places) > 0
    assert len(first.splitlines()) <= 40


# --- commands and code of pages --------------------------------------------------------------------------------------

CODE = re.compile(r"```\w*\n(.*?)```|`((?:[^`\n]|\n(?!\n))+)`|^    ([^\n]+(?:\n {4,}[^\n]+)*)$", flags=re.M | re.S)
VERBS = typer.main.get_command(app).commands  # pyright: ignore
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def unknown_options(text: str) -> list[str]:
    """Options in commands of a document that their verb does not have, and verbs that there are not."""
    found = []
    for match in CODE.findall(text):
        for line in re.sub(r"\\\n\s*", " ", max(match)).splitlines():
            for verb, rest in re.findall(r"(?:^\s*|-m )bnnp (\w+)((?: [^;#]*)?)", line):
                known = {option for one in VERBS[verb].params for option in one.opts} if verb in VERBS else set()
                options = {*re.findall(r"(?<!\S)(--[a-z-]+)", rest)} - known - {"--debug", "--help", "--version"}
                found += sorted(options) if verb in VERBS else [verb]
    return found


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_of_documents_have_options_that_there_are(document):
    assert unknown_options(document.read_text()) == []


def test_an_option_that_there_is_not_is_found():
    assert unknown_options("    bnnp train t.csv --task a \\\n        --tusk b") == ["--tusk"]
    assert unknown_options("`bnnp tran t.csv` and `bnnp train --task a`") == ["tran"]


def blocks(text: str) -> list[str]:
    """Code that stands four columns to the right."""
    return [textwrap.dedent(part) for part in re.findall(r"(?:^ {4}.*\n(?:\n(?= {4}))?)+", text, flags=re.M)]


def test_the_python_of_your_own_table_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [(f"s{i}", 1.0 * t, float(i % 2), i + t / (1 + t)) for i in range(4) for t in range(5)]
    df = pd.DataFrame(rows, columns=["subject", "time", "dose", "conc"])
    df.to_csv("trial.csv", index=False)
    new, grid = (df[df["subject"] == "s1"].assign(subject="new").head(2) for _ in range(2))
    names = {"bnnp": bnnp, "df": df, "new": new, "grid": grid[["subject", "time", "dose"]]}
    names |= {"known_x": [1.0, 3.0], "known_y": [1.5, 1.75], "x_new": [2.0]}
    python = [code for code in blocks((ROOT / "docs" / "own_data.md").read_text()) if "bnnp." in code]
    assert len(python) == 2
    for code in python:
        exec(compile(code, "own_data.md", "exec"), names)
    assert names["frame"]["from_prior"].tolist() == [False, False]
    assert names["pred"].mean.shape == (1, 1)
    assert "too few to judge" in capsys.readouterr().out
