"""The tutorials run, and their pages show what today's scripts print."""

import importlib
import re
from pathlib import Path

import cards
import pytest
import tutorials

from conftest import real_data

MNIST = "mnist/train-images-idx3-ubyte.gz"
EACH = pytest.mark.parametrize("name", tutorials.NAMES)


def shown(name: str) -> str:
    """What the page says that the script prints."""
    return re.findall(r"```text\n(.*?)```", (tutorials.PAGES / f"{name}.md").read_text(), flags=re.S)[0]


def row(text: str, label: str) -> list[float]:
    """The numbers of the first line that begins with a label."""
    line = next(line for line in text.splitlines() if line.strip().startswith(label))
    return [float(cell.replace(",", "")) for cell in re.findall(r"-?\d[\d,]*\.?\d*", line.split(label, 1)[1])]


@EACH
def test_the_page_is_of_the_script_as_it_is(name):
    page = (tutorials.PAGES / f"{name}.md").read_text()
    assert tutorials.checksum(name) in page
    assert page.startswith(tutorials.introduction(name))
    assert "*Takeaway: " in page.splitlines()[2]
    assert (tutorials.PAGES / f"{name}.png").stat().st_size < 200_000


@EACH
def test_a_tutorial_took_three_minutes_at_most(name):
    (seconds,) = re.findall(r"^It took (\d+) seconds", (tutorials.PAGES / f"{name}.md").read_text(), flags=re.M)
    assert 0 < int(seconds) <= 180


@EACH
@pytest.mark.filterwarnings("ignore")  # so short a training or chain warns, and it should
def test_a_tutorial_runs_quickly(name, tmp_path, monkeypatch, capsys):
    if name == "image_completion":
        monkeypatch.setenv("BNNP_DATA", str(real_data(MNIST)))
    monkeypatch.syspath_prepend(str(tutorials.ROOT / "examples"))
    importlib.import_module(name).main(tmp_path, quick=True)
    assert len(capsys.readouterr().out.splitlines()) >= 4
    assert (tmp_path / f"{name}.png").stat().st_size > 0


@pytest.mark.slow
@EACH
def test_a_tutorial_prints_what_its_page_shows(name, tmp_path):
    """The same words; numbers differ between machines."""
    if name == "image_completion":
        real_data(MNIST)
    printed, seconds = tutorials.run(name, Path(tmp_path))
    assert seconds <= tutorials.SECONDS
    without_numbers = (re.sub(r"[-+]?[\d.,]+", "#", text).split() for text in (printed, shown(name)))
    first, second = ([word for word in words if word not in ("True", "False")] for words in without_numbers)
    assert first == second


# --- what the takeaways say is what the scripts have printed ---------------------------------------------------------


def test_intervals_of_patients_hold_and_the_other_methods_are_behind():
    text = shown("patients")
    assert 0.86 <= row(text, "Of 20 such patients, ")[0] / 100 <= 0.94
    ((inside, of),) = re.findall(r"^(\d+) of (\d+) hidden", text, flags=re.M)
    assert int(inside) / int(of) < 0.85
    scores, gains = text.split("Left-out patients")[1].split("What bnnp gains")
    assert row(scores, "bnnp")[0] > max(row(scores, other)[0] for other in ("population curve", "mixed model"))
    clearly, a_little = (row(gains, other)[:2] for other in ("mixed model", "hierarchical GP"))
    assert clearly[0] > 4 * clearly[1]
    assert 0 < a_little[0] < 0.5 * clearly[0]


def test_few_data_sets_are_safest_with_the_closed_form():
    errors, within = shown("few_data_sets").split("\n\n")[1:]
    learned, everything, half = "bnnp.learn", "train everything", "train half of the prior"
    assert all(a <= b + 0.02 for a, b in zip(row(errors, learned), row(errors, everything), strict=True))
    assert sum(row(errors, half)) > 1.5 * sum(row(errors, learned))
    assert max(row(within, everything)[:2]) < 0.75
    assert max(row(within, learned)[:2]) < 0.8
    assert 0.85 <= row(within, learned)[2] <= 0.95


def test_the_fast_posterior_is_near_the_chain_and_half_of_the_prior_stayed():
    text = shown("prior_in_hand")
    assert row(text, "Their means are at most ")[0] < 0.1
    assert (
        row(text, "After training on, with half of the prior frozen, ")[0]
        >= row(text, "The prior is a distribution over ")[0] // 2
    )


def test_a_fifth_of_the_pixels_tells_more_than_their_frequencies():
    text = shown("image_completion")
    assert row(text, "model")[1] > row(text, "frequency of each pixel")[1]
    assert row(text, "wrong pixels")[1] < row(text, "wrong pixels")[0]


def test_related_functions_save_evaluations_and_a_shared_mean_helps_the_gp():
    text = shown("meta_optimisation").split("after evaluation")[1]
    means = {
        name: row(text, f"{name}   ")[::2]
        for name in ("bnnp", "GP, shared mean", "GP, transferred", "GP", "random search")
    }
    assert means["bnnp"][1] < 0.5 * means["GP, shared mean"][1]
    assert means["GP, shared mean"][2] < means["GP, transferred"][2]


def test_a_stream_keeps_its_size_and_a_few_thousand_points_do_as_well_as_a_million():
    text = shown("million_points")
    stream = text.split("file, kB")[1]
    assert len({row(stream, label)[-1] for label in ("0 ", "1 ", "20 ", "100 ")}) == 1
    assert row(text, "1,000,000")[0] < 60
    assert row(text, "10,000")[1] < row(text, "1,000,000")[1] + 0.02


@pytest.mark.parametrize("name", cards.MODELS)
def test_a_model_card_is_of_the_file_as_it_is(name):
    page = (cards.PAGES / f"{name}.md").read_text()
    assert cards.checksum(name) in page
    for part in ("## Scores", "| score | this model |", "## Limits", f"{name}_calibration.png"):
        assert part in page
