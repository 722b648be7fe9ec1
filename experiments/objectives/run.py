"""Does the paper's reason for its objective survive a better estimator? Five objectives by two estimators (App. A)."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

import bnnp
from bnnp._core.files import write_atomically
from bnnp.plots import save_figure
from claims import Claim, paired
from common import fixed_tests, learned_noise, score_trivial, train
from functions import ACTIVATIONS, TEST_SEED, compared, source_of
from harness import Run
from score_tables import cell, markdown_table, mean_and_error, over, text_of

OBJECTIVES = {
    "PP-AVI": bnnp.objectives.PPAVI,
    "AVI": bnnp.objectives.AVI,
    "NPML": bnnp.objectives.NPML,
    "NPVI": bnnp.objectives.NPVI,
    "TELL-AVI": bnnp.objectives.TELLAVI,
}
ESTIMATORS = {"closed": "last layer in closed form", "sampled": "all by samples"}
NAMES = {"sawtooth": "sawtooth", "gp": "GP", "heaviside": "Heaviside"}
SHARE, NOISE = (0.1, 0.5), 0.05


def runs(settings: Mapping[str, Any]) -> dict[str, Run]:
    """A model for every process, objective, estimator and seed; what is trivial and the best possible."""
    planned = {}
    for process in settings["processes"]:
        planned[f"{process}-trivial"] = Run(trivial, {"process": process, "tests": settings["tests"]})
        for objective in OBJECTIVES:
            for estimator in ESTIMATORS:
                for seed in settings["seeds"]:
                    own = {"process": process, "objective": objective, "estimator": estimator, "seed": seed}
                    own |= settings["training"] | {"samples": settings["samples"][estimator]}
                    own |= {"tests": settings["tests"], "drawn": settings["drawn"]}
                    planned[f"{process}-{objective}-{estimator}-{seed}"] = Run(learn, own)
    return planned


def tests_of(process: str, count: int) -> list[Any]:
    return fixed_tests(source_of(process, (50, 50)), count, SHARE, TEST_SEED)


def learn(
    process: str,
    objective: str,
    estimator: str,
    seed: int,
    hidden: tuple[int, ...],
    steps: int,
    learning_rate: tuple[float, float],
    samples: int,
    tests: int,
    drawn: int,
    folder: Path,
) -> dict[str, Any]:
    """From the paper's start with everything free; all targets of a task together, as the paper defines it.

    A training that fails is a result: the paper says that some objectives do.
    """
    model = bnnp.BNNP(1, 1, hidden, ACTIVATIONS[process], "unitwise", bnnp.Gaussian(NOISE), seed=seed)
    of_groups = {"group_size": None} if objective in ("PP-AVI", "NPML") else {}
    chosen = OBJECTIVES[objective](samples, integrate=estimator == "closed", **of_groups)
    try:
        train(
            model,
            source_of(process),
            folder,
            f"{process}-{objective}-{estimator}-{seed}",
            objective=chosen,
            way="ours",
            steps=steps,
            learning_rate=learning_rate,
            context_share=SHARE,
            seed=seed,
        )
    except bnnp.TrainingDiverged as error:
        return {"diverged": str(error)}
    scores = bnnp.evaluate(model, tests_of(process, tests), num_samples=100, seed=0).to_dict()
    return {"noise": learned_noise(model), "scores": scores, "differences": compared(process, model, drawn)}


def trivial(process: str, tests: int) -> dict[str, Any]:
    """What needs no learning; and the exact posterior, where the process has one."""
    splits, source = tests_of(process, tests), source_of(process)
    training = fixed_tests(source, 64, SHARE, TEST_SEED + 1)
    found = score_trivial(training, splits)
    if hasattr(source, "oracle"):
        found["exact posterior"] = bnnp.evaluate(bnnp.Oracle(source), splits, num_samples=100).to_dict()  # pyright: ignore
    return found


# --- the report ------------------------------------------------------------------------------------------------------


def report(settings: Mapping[str, Any], results: Mapping[str, Any], folder: Path) -> list[Path]:
    sections = []
    for process in settings["processes"]:
        header = ["objective", "estimator", "marginal LPPD", "pooled LPPD", "MAE", "energy distance of the prior"]
        rows = [_row(process, o, e, settings, results) for o in OBJECTIVES for e in ESTIMATORS]
        for name, scores in results.get(f"{process}-trivial", {}).items():
            rows.append([name, "", *(cell(scores, s, d) for s, d in SCORES), "", "", ""])
        rows = [row for row in rows if row]
        if rows:
            table = markdown_table([*header, "diverged", "seeds"], rows)
            sections.append(f"## {NAMES[process]}\n\n{table}")
    table = write_atomically(folder / "table.md", "\n".join(sections))
    return [table, save_figure(_figure(settings, results), folder / "figure.png")]


SCORES = (("marginal_lppd", 2), ("pooled_lppd", 2), ("mae", 3))


def found_of(process: str, objective: str, estimator: str, settings: Any, results: Mapping[str, Any]) -> dict[int, Any]:
    """Results by seed."""
    keys = {seed: f"{process}-{objective}-{estimator}-{seed}" for seed in settings["seeds"]}
    return {seed: results[key] for seed, key in keys.items() if key in results}


def _row(process: str, objective: str, estimator: str, settings: Any, results: Mapping[str, Any]) -> list[str]:
    found = found_of(process, objective, estimator, settings, results)
    if not found:
        return []
    good = [one for one in found.values() if "scores" in one]
    cells = [text_of(over([mean_and_error(one["scores"], s)[0] for one in good]), d) for s, d in SCORES]
    distance = over([one["differences"]["learned prior"]["energy distance"] for one in good])
    diverged = str(len(found) - len(good))
    return [objective, ESTIMATORS[estimator], *cells, text_of(distance, 3), diverged, str(len(found))]


def _figure(settings: Mapping[str, Any], results: Mapping[str, Any]) -> Figure:
    """A panel for each process that has been run."""
    processes = [process for process in settings["processes"] if any(key.startswith(f"{process}-") for key in results)]
    figure = Figure(figsize=(4 * len(processes), 3.4), layout="constrained")
    panels = figure.subplots(1, len(processes), squeeze=False)[0]
    for axes, process in zip(panels, processes, strict=True):
        for number, estimator in enumerate(ESTIMATORS):
            found = [found_of(process, objective, estimator, settings, results) for objective in OBJECTIVES]
            values = [
                over([mean_and_error(one["scores"], "marginal_lppd")[0] for one in some.values() if "scores" in one])
                for some in found
            ]
            places = [place + 0.16 * (2 * number - 1) for place in range(len(OBJECTIVES))]
            axes.errorbar(places, *zip(*values, strict=True), fmt="o", label=ESTIMATORS[estimator])
        axes.set_xticks(range(len(OBJECTIVES)), list(OBJECTIVES), rotation=60, fontsize=8)
        axes.set_title(NAMES[process])
    panels[0].set_ylabel("marginal LPPD")
    panels[0].legend(fontsize=7)
    return figure


def claims(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[Claim]:
    """PP-AVI against each other objective: predictions of fresh tasks, and the prior it leaves."""
    return [
        _claim(process, other, estimator, kind, settings, results)
        for process in settings["processes"]
        for estimator in ESTIMATORS
        for other in OBJECTIVES
        if other != "PP-AVI"
        for kind in ("marginal LPPD", "energy distance of the prior")
    ]


def _claim(process: str, other: str, estimator: str, kind: str, settings: Any, results: Mapping[str, Any]) -> Claim:
    steps = f"{settings['training']['steps']:,} steps"
    text = f"{NAMES[process]}, {ESTIMATORS[estimator]}, {steps}: PP-AVI has the better {kind} than {other}"
    ours, theirs = (found_of(process, name, estimator, settings, results) for name in ("PP-AVI", other))
    both = [seed for seed in ours if seed in theirs]
    if not both:
        return Claim("App. A", text, "argued, without numbers")
    seeds = [seed for seed in both if "scores" in ours[seed] and "scores" in theirs[seed]]
    lost = [_diverged([one[seed] for seed in both]) for one in (ours, theirs)]
    if not seeds:
        said = f"PP-AVI{lost[0]}; {other}{lost[1]}"
        return Claim("App. A", text, "argued, without numbers", said, gain=(0.0, math.nan), doubts=said)
    pair = [[_value(found[seed], kind) for seed in seeds] for found in (ours, theirs)]
    best = results.get(f"{process}-trivial", {})
    trivials = {name: mean_and_error(scores, "marginal_lppd")[0] for name, scores in best.items()}
    exact = trivials.pop("exact posterior", None)
    is_score = kind == "marginal LPPD"
    return Claim(
        "App. A",
        text,
        "argued, without numbers",
        f"{text_of(over(pair[0]))}{lost[0]}; {text_of(over(pair[1]))}{lost[1]}",
        oracle=f"{exact:.2f}" if is_score and exact is not None else "" if is_score else "0",
        trivial=f"{max(trivials.values()):.2f}" if is_score and trivials else "",
        gain=paired(pair[0], pair[1]) if is_score else paired(pair[1], pair[0]),
        seeds=len(seeds),
    )


def _diverged(found: list[Any]) -> str:
    """How many trainings have no scores, if any."""
    lost = sum("scores" not in one for one in found)
    return f", {lost} diverged" if lost else ""


def _value(found: Mapping[str, Any], kind: str) -> float:
    if kind == "marginal LPPD":
        return mean_and_error(found["scores"], "marginal_lppd")[0]
    return found["differences"]["learned prior"]["energy distance"]
