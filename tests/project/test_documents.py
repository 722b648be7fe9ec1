"""What the documents say is true: their code runs, their files exist."""

import contextlib
import io
import pydoc
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from conftest import real_data

ROOT = Path(__file__).parents[2]
EVERY_DOCUMENT = [
    *sorted(ROOT.glob("*.md")),
    *(path for folder in ("docs", "src", "experiments") for path in sorted((ROOT / folder).rglob("*.md"))),
]


def fenced(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.S)


LINK = r'\]\(([\w/.]+)\)|src="([\w/.]+)"'


def said_to_print(text: str, number: int) -> str:
    """What stands below the words that a piece of code prints, the first or a later one."""
    return fenced(re.split(r"^prints\b", text, flags=re.M)[number + 1], "")[0]


def write_small_trial(folder: Path) -> None:
    """Tables of the names and columns that README and the first page read, small enough to learn from in a moment."""
    (folder / "trial").mkdir()
    rows = [f"{who},{time},{who + time / (1 + time)}" for who in range(3) for time in range(5)]
    for name, some in {"trial": rows, "known": ["new,1,1.5", "new,3,1.75"], "wanted": ["new,2,0", "new,4,0"]}.items():
        (folder / "trial" / f"{name}.csv").write_text("\n".join(["subject,time,conc", *some]))


@pytest.mark.parametrize("document", ["README.md", "docs/get_started.md"])
def test_the_three_lines_predict_a_new_subject(document, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_small_trial(tmp_path)
    names: dict = {}
    exec(compile(fenced((ROOT / document).read_text(), "python")[0], document, "exec"), names)
    frame = names["frame"]
    assert list(frame) == ["subject", "time", "mean", "std", "q05", "q95", "from_prior", "outside_training"]
    assert (frame["mean"] - [1.67, 1.8]).abs().max() < 0.5
    assert not frame["from_prior"].any()


@pytest.mark.slow
def test_the_three_lines_print_what_the_readme_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import trial  # pyright: ignore[reportMissingImports]

    trial.write_tables(tmp_path / "trial")
    readme = (ROOT / "README.md").read_text()
    names: dict = {}
    exec(compile(fenced(readme, "python")[0], "README.md", "exec"), names)
    said = said_to_print(readme, 0).strip().splitlines()
    numbers = [[float(cell) for cell in line.split()[1:]] for line in said[1:]]
    shown = names["frame"][said[0].split()].drop(columns="subject").head(len(numbers))
    assert shown.to_numpy() == pytest.approx(np.array(numbers), abs=0.5)


@pytest.mark.slow
def test_training_on_forty_subjects_prints_what_its_page_says(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import trial  # pyright: ignore[reportMissingImports]

    generator = np.random.default_rng(0)
    pd.concat([trial.subject(f"S{i:02d}", generator) for i in range(40)]).to_csv(tmp_path / "trial.csv", index=False)
    columns = ["--task", "subject", "--x", "time", "--y", "conc", "--out", str(tmp_path / "model"), "--quiet"]
    command = [sys.executable, "-m", "bnnp", "train", str(tmp_path / "trial.csv"), *columns]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    said = fenced((ROOT / "docs" / "training.md").read_text(), "")[0].strip().splitlines()
    for line, expected in zip(told.splitlines(), said, strict=False):
        (words, numbers), (same, like) = (
            (re.sub(r"[-+]?[\d.]+", "#", text), [float(n.strip(".")) for n in re.findall(r"[-+]?\d[\d.]*", text)])
            for text in (line, expected)
        )
        assert words == same
        assert numbers == pytest.approx(like, rel=0.05, abs=0.1)


@pytest.mark.parametrize("page", ["learned_prior", "trust", "new_subjects"])
def test_the_examples_of_pages_for_users_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = fenced((ROOT / "docs" / f"{page}.md").read_text(), "python")
    assert blocks
    for code in blocks:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code, f"{page}.md", "exec"), {})


def test_the_readme_example_prints_what_the_readme_says():
    readme = (ROOT / "README.md").read_text()
    _, code = fenced(readme, "python")
    said = said_to_print(readme, 1)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    lines, expected = (
        {line.split()[0]: [float(n) for n in re.findall(r"-?\d+\.\d*", line)] for line in text.strip().splitlines()}
        for text in (printed.getvalue(), said)
    )
    assert list(lines) == list(expected) == ["truth", "mean", "std", "prior"]
    assert lines["truth"] == expected["truth"]
    # Rounding differs between machines and grows over the training steps; the story stays the same.
    assert lines["mean"] == pytest.approx(expected["mean"], abs=0.25)
    assert lines["std"] == pytest.approx(expected["std"], abs=0.25)
    assert len(lines["prior"]) == len(expected["prior"]) == 4


def test_the_example_of_neural_processes_runs():
    (code,) = fenced((ROOT / "docs" / "neural_processes.md").read_text(), "python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "neural_processes.md", "exec"), {})
    assert printed.getvalue().startswith("(50, 1) (50, 1)")


def test_the_examples_of_the_last_layer_run():
    prediction, objective = fenced((ROOT / "docs" / "last_layer.md").read_text(), "python")
    names: dict = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for code in (prediction, objective):
            exec(compile(code, "last_layer.md", "exec"), names)
    assert printed.getvalue().splitlines()[:2] == ["(5, 1) (5, 1)", "(2, 5, 1)"]
    assert not names["paper"].integrate


def test_the_examples_of_results_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        for code in fenced((ROOT / "docs" / "results.md").read_text(), "python"):
            exec(compile(code, "results.md", "exec"), names)
    assert printed.getvalue().startswith("['x0', 'y0_mean', 'y0_std', 'y0_q05', 'y0_q50', 'y0_q95']")
    assert (tmp_path / "subjects.png").stat().st_size > 0
    assert names["trust"].draws == 1000


def test_the_examples_of_other_outputs_run():
    blocks = fenced((ROOT / "docs" / "other_outputs.md").read_text(), "python")
    assert len(blocks) == 3
    for code in blocks:
        assert "steps=400" in code
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(code.replace("steps=400", "steps=4"), "other_outputs.md", "exec"), {})


def test_the_example_of_data_sets_runs(monkeypatch):
    monkeypatch.setenv("BNNP_DATA", str(real_data("abalone/abalone.data")))
    (code,) = fenced((ROOT / "docs" / "data.md").read_text(), "python")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "data.md", "exec"), {})
    assert 0 < float(printed.getvalue()) < 10


@pytest.mark.filterwarnings("ignore::bnnp.inference.InferenceWarning")
def test_the_examples_of_other_inference_run():
    blocks = fenced((ROOT / "docs" / "inference.md").read_text(), "python")
    assert len(blocks) == 4
    for code in blocks:
        exec(compile(code, "inference.md", "exec"), {})


@pytest.mark.parametrize(
    "document",
    [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/own_data.md",
        "docs/training.md",
        "docs/data.md",
        "docs/neural_processes.md",
        "docs/last_layer.md",
        "docs/inference.md",
        *(f"docs/notes/{path.name}" for path in sorted((ROOT / "docs" / "notes").glob("*.md"))),
        "docs/app.md",
        "docs/index.md",
        *(f"docs/{page}.md" for page in ("get_started", "how_many", "learned_prior", "trust", "columns", "models")),
        *(f"docs/{page}.md" for page in ("new_subjects", "coming_from", "tutorials", "faq", "paper", "glossary")),
    ],
)
def test_files_that_documents_name_exist(document):
    text = (ROOT / document).read_text()
    named = re.findall(r"`((?:docs|tests|examples|benchmarks|src)/[\w/.]+|[A-Z]+\.(?:md|cff))`", text)
    places = [ROOT / name for name in named if name != "src/bnnp/priors/yours.py"]
    places += [(ROOT / document).parent / link for pair in re.findall(LINK, text) for link in pair if link]
    missing = [place for place in places if not place.exists()]
    assert not missing


@pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="benchmarks are not in the sdist")
def test_the_page_of_benchmarks_names_all_of_them_and_its_links_lead_somewhere():
    text = (ROOT / "benchmarks" / "README.md").read_text()
    named = re.findall(r"^\| `(\w+\.py)` \|", text, flags=re.M)
    assert named == sorted(path.name for path in (ROOT / "benchmarks").glob("*.py"))
    assert [link for link in re.findall(r"\]\(([^)]+)\)", text) if not (ROOT / "benchmarks" / link).exists()] == []


def unknown_names(text: str) -> list[str]:
    """Names below `bnnp` that a document has and the library has not; those of files aside."""
    names = set(re.findall(r"\bbnnp(?:\.[A-Za-z_]\w*)+", text))
    return sorted(name for name in names if not name.endswith(".py") and pydoc.locate(name) is None)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of BoTorch, when it is imported
@pytest.mark.parametrize("document", EVERY_DOCUMENT, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_of_the_library_in_documents_are_those_of_the_code(document):
    assert unknown_names(document.read_text()) == []


def test_a_name_that_there_is_not_is_found():
    assert unknown_names("`bnnp.tasks.abalone()`, `bnnp.tasks.walrus()` and `bnnp.py`") == ["bnnp.tasks.walrus"]


def test_code_that_the_paper_to_code_table_names_exists():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for path, name in re.findall(r"`((?:\w+/)*\w+\.py)::([\w.]+)`", text):
        source = (ROOT / "src" / "bnnp" / path).read_text()
        for part in name.split("."):
            assert re.search(rf"(def|class) {part}\b|^    {part}:", source, flags=re.M), f"{path}::{name}"


def test_files_that_the_architecture_names_exist_and_every_room_is_named():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    source = ROOT / "src" / "bnnp"
    rows = re.findall(r"^\| (`[^|]+) \| (.+) \|$", text.split("## From the paper")[0], flags=re.M)
    assert len(rows) > 40
    missing = []
    for places, words in rows:
        named = [source / name for name in re.findall(r"`([\w./]+)`", places)]
        missing += [place for place in named if not place.exists()]
        folders = [place if place.is_dir() else place.parent for place in named]
        for name in re.findall(r"`([\w/]+(?:\.(?:py|js|css|html)|/))`", words):
            near = [place for folder in folders for place in folder.rglob(name.rstrip("/"))]
            missing += [] if near or (source / name).exists() else [name]
    assert missing == []
    rooms = {path.parent.name if path.name == "__init__.py" else path.name for path in source.glob("*/__init__.py")}
    rooms |= {path.name for path in source.glob("*.py") if not path.name.startswith("__")}
    assert [room for room in sorted(rooms) if room not in " ".join(places for places, _ in rows)] == []
