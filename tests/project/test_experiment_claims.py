"""Claims about records: what makes them hold, fail or stay open, experiment by experiment."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import harness
from claims import Claim, needed, paired
from harness import experiment_names
from records import settings_file

REAL = Path(__file__).parents[2] / "experiments"
SEEDS = (21, 42, 69, 420)
ARRIVED = {"rhat": 1.0, "doubtful": 0, "slope": None, "slope_error": None}


def scored(value: float, name: str = "marginal_lppd@9") -> dict[str, Any]:
    return {"scores": {name: {"mean": value, "standard_error": 0.1}}}


@pytest.mark.parametrize("repeats", [2, 4])
def test_methods_that_are_alike_seldom_seem_to_differ(repeats):
    """Six methods with noise alone: the best of them is above the worst more often than one is above another."""
    random, decided, naive = np.random.default_rng(0), 0, 0
    for _ in range(2000):
        values = sorted((random.normal(size=repeats).tolist() for _ in range(6)), key=sum)
        mean, error = paired(values[-1], values[0])
        decided += mean > needed(repeats, 15) * error
        naive += mean > needed(repeats) * error
    assert decided < 0.05 * 2000 < naive


def matters(levels: Mapping[str, Sequence[float]], late: str = "", samples: Mapping[str, int] | None = None) -> Claim:
    """The claim that inference still matters under the learned prior, by the levels of methods for each seed."""
    experiment, results = harness.load_experiment(REAL / "prior_transfer"), {}
    choices = {"seeds": SEEDS, "methods": ("mfvi", "hmc", "bnnp"), "recipe_minutes": 2, "paper": {"steps": 9}}
    for method, values in levels.items():
        how = ARRIVED | {"doubtful": 9 if method == late else 0}
        name = f"pooled_lppd@{(samples or {}).get(method, 500)}"
        for seed, value in zip(SEEDS, values, strict=True):
            results[f"gp-{method}-recipe-{seed}"] = {"all": scored(value, name), "convergence": how}
    found = [c for c in experiment.claims({"processes": {"gp": choices}}, results) if "differ" in c.text]
    return found[0]


def test_that_methods_differ_can_fail_and_is_asked_of_equal_terms():
    high, low, same = (1.0, 1.1, 1.2, 1.3), (0.0, 0.1, 0.2, 0.3), (1.001, 1.1, 1.2, 1.301)
    every = {"mfvi": low, "hmc": high, "bnnp": high, "bnnp_new": high}
    alike = {"mfvi": same, "hmc": high, "bnnp": high, "bnnp_new": high}
    assert "more than 0.05 in pooled LPPD under the prior learned by the one recipe in 2 minutes" in matters(every).text
    assert matters(every).verdict() == "holds"
    assert matters(alike).verdict() == "does not hold"
    assert matters(alike | {"mfvi": low}, late="mfvi").verdict() == "cannot tell"
    assert "not arrived: MFVI" in matters(every, late="mfvi").ours
    few = matters(every, samples={"mfvi": 20})
    assert (few.verdict(), "of another number of samples: MFVI" in few.ours) == ("cannot tell", True)
    assert matters({name: values for name, values in alike.items() if name != "mfvi"}).verdict() == "cannot tell"
    assert matters({}).verdict() == "not run"


def objective(ours: Sequence[float | None], theirs: Sequence[float | None]) -> Claim:
    """The claim that PP-AVI predicts better than AVI; None for a training that diverged."""
    experiment, results = harness.load_experiment(REAL / "objectives"), {}
    for name, values in {"PP-AVI": ours, "AVI": theirs}.items():
        for seed, value in zip(SEEDS, values, strict=False):
            results[f"gp-{name}-closed-{seed}"] = (
                {"diverged": "at step 3"} if value is None else {"scores": scored(value)}
            )
    settings = {"processes": ("gp",), "seeds": SEEDS, "training": {"steps": 1500}}
    return experiment.claims(settings, {key: one | DISTANCES for key, one in results.items()})[0]


DISTANCES = {"differences": {"learned prior": {"energy distance": 0.1}}}


def test_trainings_that_diverged_are_told_and_are_not_trainings_that_were_not_run():
    assert objective([1.0, 1.1, 1.2, 1.3], [0.0, 0.1, 0.3, 0.3]).verdict() == "holds"
    assert "1,500 steps" in objective([1.0], [0.0]).text
    some = objective([1.0, 1.1, None, 1.3], [0.0, 0.1, 0.2, None])
    assert (some.seeds, some.ours.count("1 diverged")) == (2, 2)
    none = objective([1.0, 1.1], [None, None])
    assert (none.verdict(), none.ours) == ("cannot tell", "PP-AVI; AVI, 2 diverged")
    assert objective([1.0], []).verdict() == "not run"


def online(*losses: float) -> list[Claim]:
    """The claims of online learning with 1 and 4 hidden layers, by what updates lose; a little more for each seed."""
    experiment, results = harness.load_experiment(REAL / "online"), {}
    for depth, lost in zip((1, 4), losses, strict=False):
        for number, seed in enumerate(SEEDS):
            levels = {"all": 1.0, "online": 1.0 - lost - 0.001 * number * depth, "new": 0.0}
            rows: list[dict[str, Any]] = [{"way": way, "points": 40, "lppd": levels[way]} for way in levels]
            results[f"depth-{depth}-{seed}"] = rows
    return experiment.claims({"depths": (1, 4), "seeds": SEEDS}, results)


def test_updates_are_held_against_conditioning_anew_and_depth_against_none():
    assert [claim.verdict() for claim in online(0.2, 0.01)] == ["does not hold", "holds", "does not hold"]
    assert online(0.0, 0.1)[-1].verdict() == "holds"
    assert [claim.verdict() for claim in online(0.0)] == ["holds", "not run", "not run"]


def learned(*lines: str) -> Claim:
    """The claim that the recipe's training gains something, by what it decided for each seed."""
    experiment = harness.load_experiment(REAL / "learned_priors")
    choices = {"seeds": SEEDS, "recipe_minutes": 2, "processes": {"sawtooth": {"paper": {"steps": 9}}}}
    distances = {name: {"energy distance": 0.1} for name in ("learned prior", "standard prior")}
    results = {
        f"sawtooth-recipe-{seed}": {"decisions": ["The prior starts.", line], "differences": distances} | scored(1.0)
        for seed, line in zip(SEEDS, lines, strict=False)
    }
    return next(claim for claim in experiment.claims(choices, results) if "start" in claim.text)


def test_a_prior_that_stayed_at_its_start_was_not_learned():
    """By a sentence of the recipe; that it says it, is seen where the experiment runs at its smallest scale."""
    line = "On 64 data sets that it did not learn from, the log-density per point is {}; at the start it was -1.500."
    assert learned(*(line.format(value) for value in (-1.5, -1.5, -1.5, -1.499))).verdict() == "does not hold"
    assert learned(*(line.format(value) for value in (0.1, 0.2, 0.1, 0.2))).verdict() == "holds"
    assert learned(*(line.format(value) for value in (0.1, -1.5, 0.1, 0.2))).verdict() == "cannot tell"
    assert learned().verdict() == "not run"


def test_a_model_can_be_better_than_what_is_trivial_by_one_score_and_worse_by_another():
    experiment = harness.load_experiment(REAL / "learned_priors")
    choices = {"seeds": SEEDS, "recipe_minutes": 2, "processes": {"sawtooth": {"paper": {"steps": 9}}}}

    def scores(lppd: float, mae: float) -> dict[str, Any]:
        return {"scores": scored(lppd)["scores"] | scored(mae, "mae")["scores"]}

    distances = {name: {"energy distance": 0.1} for name in ("learned prior", "standard prior")}
    results: dict[str, Any] = {
        f"sawtooth-recipe-{seed}": {
            "scores": scores(1.0, 0.4 + 0.01 * number),
            "decisions": [],
            "differences": distances,
        }
        for number, seed in enumerate(SEEDS)
    }
    results["sawtooth-trivial"] = {"mean": scores(-1.0, 0.9), "nearest": scores(-2.0, 0.2)}
    found = {claim.text: claim for claim in experiment.claims(choices, results) if "trivial" in claim.text}
    verdicts = {text.split()[1]: claim.verdict() for text, claim in found.items() if "recipe" in text}
    assert verdicts == {"marginal": "holds", "MAE": "does not hold"}
    assert [claim.trivial for claim in found.values()][:2] == ["mean -1.00", "nearest 0.200"]


@pytest.mark.parametrize("scale", ["small", "long"])
def test_methods_of_prior_transfer_have_the_same_number_of_samples(scale):
    """Log densities from other numbers of samples do not compare; members of an ensemble are few by their nature."""
    processes = harness.plan_of(REAL, "prior_transfer", scale).settings["processes"]
    for choices in processes.values():
        assert len({how["samples"] for method, how in choices["methods"].items() if method != "ensemble"}) == 1


@pytest.mark.parametrize("name", experiment_names(REAL))
def test_every_claim_of_an_experiment_has_a_text_of_its_own(name):
    scales = [scale for scale in ("small", "long", "paper") if settings_file(REAL / name, scale).is_file()]
    for scale in scales:
        plan = harness.plan_of(REAL, name, scale)
        texts = [claim.text for claim in harness.load_experiment(REAL / name).claims(plan.settings, {})]
        assert len(texts) == len(set(texts))
