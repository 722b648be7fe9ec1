"""Are there priors over weights that look like the process? (Paper, section 4.2, functions of one input.)"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import bnnp
from bnnp._core.files import write_atomically
from bnnp.plots import draw_functions, draw_posterior, save_figure
from bnnp.plots.functions import TRUTH
from claims import Claim, difference
from common import fixed_tests, learn, learned_noise, model_file, score_trivial, train
from functions import ACTIVATIONS, TEST_SEED, compared, real_functions, source_of
from harness import Run
from score_tables import Estimate, cell, markdown_table, mean_and_error, over, over_seeds, text_of

NAMES = {"sawtooth": "sawtooth", "heaviside": "Heaviside", "bnn": "standard BNN", "ecg": "ECG"}
WAYS = {"recipe": "the one recipe", "paper": "the paper's way"}
NOISE, SHARE = 0.05, (0.02, 0.5)
CONTEXTS = (2, 5, 10, 25)
GAINED = re.compile(r"the log-density per point is (\S+); at the start it was (\S+)\.$")
"""What `bnnp.learn` says of the model beside its start."""
NOTICED = 0.05
"""Nats a point: what training has to gain over its start to be worth a word."""


def runs(settings: Mapping[str, Any]) -> dict[str, Run]:
    """For every process and seed a model by each of the two ways, and what is trivial."""
    planned = {}
    for process, training in settings["processes"].items():
        tests, common = settings["tests"], {"process": process, "hidden": training["hidden"]}
        planned[f"{process}-trivial"] = Run(trivial, {"process": process, "tests": tests})
        for seed in settings["seeds"]:
            own = common | {"seed": seed, "tests": tests, "points": training["points"]}
            planned[f"{process}-recipe-{seed}"] = Run(by_recipe, own | {"minutes": settings["recipe_minutes"]})
            planned[f"{process}-paper-{seed}"] = Run(as_the_paper, own | training["paper"])
    return planned


def by_recipe(
    process: str,
    seed: int,
    hidden: tuple[int, ...],
    points: tuple[int, int] | None,
    minutes: float,
    tests: int,
    folder: Path,
) -> dict[str, Any]:
    """`bnnp.learn`, with nothing chosen for the process."""
    name = f"{process}-recipe-{seed}"
    source = source_of(process, points)
    learned = learn(source, folder, name, hidden=hidden, minutes=minutes, context_share=SHARE, seed=seed)
    return {"decisions": learned.decisions} | measured(process, learned.model, tests)


def as_the_paper(
    process: str,
    seed: int,
    hidden: tuple[int, ...],
    points: tuple[int, int] | None,
    steps: int,
    samples: int,
    learning_rate: tuple[float, float],
    weight: float,
    count: tuple[int, int] | None,
    tests: int,
    folder: Path,
) -> dict[str, Any]:
    """From the standard prior, by PP-AVI, everything free.

    weight: of the predictive term and the KL; the paper has 0.1 for Heaviside functions.
    count: sizes of contexts, where they are no share of the points.
    """
    model = bnnp.BNNP(1, 1, hidden, ACTIVATIONS[process], "unitwise", bnnp.Gaussian(NOISE), seed=seed)
    objective = bnnp.objectives.PPAVI(samples, group_size=None, predictive_weight=weight, kl_weight=weight)
    train(
        model,
        source_of(process, points),
        folder,
        f"{process}-paper-{seed}",
        objective=objective,
        steps=steps,
        learning_rate=learning_rate,
        context_share=SHARE if count is None else bnnp.tasks.ContextCount(*count),
        seed=seed,
    )
    return measured(process, model, tests)


def tests_of(process: str, tests: int) -> list[Any]:
    return fixed_tests(source_of(process, (100, 100)), tests, SHARE, TEST_SEED)


def measured(process: str, model: bnnp.BNNP, tests: int) -> dict[str, Any]:
    """What a model has learned: its noise, its scores on fresh tasks, how far its prior is from the process.

    `missed` is the share of known points that lie outside the posterior's own intervals for 99.9 % of observations.
    """
    splits = tests_of(process, tests)
    scores = bnnp.evaluate(model, splits, num_samples=200, seed=0).to_dict()
    outside = []
    for index, split in enumerate(splits):
        known = split.context
        low, high = (
            model.condition(known.x, known.y, num_samples=200, seed=index).predict(known.x).quantile([5e-4, 1 - 5e-4])
        )
        outside.append(((known.y.numpy() < low) | (known.y.numpy() > high)).ravel())
    return {
        "noise": learned_noise(model),
        "scores": scores,
        "missed": float(np.concatenate(outside).mean()),
        "differences": compared(process, model, 10 * tests),
    }


def trivial(process: str, tests: int) -> dict[str, Any]:
    """What needs no learning; and the exact posterior, where the process has one."""
    splits, source = tests_of(process, tests), source_of(process)
    found = score_trivial(fixed_tests(source_of(process, (100, 100)), 64, SHARE, TEST_SEED + 1), splits)
    if hasattr(source, "oracle"):
        found["exact posterior"] = bnnp.evaluate(bnnp.Oracle(source), splits, num_samples=100).to_dict()  # pyright: ignore
    return found


# --- the report ------------------------------------------------------------------------------------------------------


def report(settings: Mapping[str, Any], results: Mapping[str, Any], folder: Path) -> list[Path]:
    header = ["process", "learned by", "marginal LPPD", "pooled LPPD", "MAE", "energy distance", "jump", "spectrum"]
    header += ["known points missed", "noise", "gained over the start", "seeds"]
    rows = []
    for process in settings["processes"]:
        for way, label in WAYS.items():
            found = found_of(process, way, settings, results)
            if found:
                scores = [one["scores"] for one in found]
                cells = [text_of(over_seeds(scores, s), d) for s, d in SCORES]
                cells += [text_of(distance_of(found, kind), 3) for kind in DISTANCES]
                cells += [f"{over([one[n] for one in found])[0]:.3f}" for n in ("missed", "noise")]
                gained = [gain for one in found for gain in gained_by(one.get("decisions", ()))]
                rows.append([NAMES[process], label, *cells, text_of(over(gained)), str(len(found))])
        known = [one for way in WAYS for one in found_of(process, way, settings, results)][:1]
        for name in ("standard prior", "the process itself"):
            cells = [f"{one['differences'][name][kind]:.3f}" for one in known for kind in DISTANCES]
            rows += [[NAMES[process], name, "", "", "", *cells, *[""] * 4]] if cells else []
        for name, scores in results.get(f"{process}-trivial", {}).items():
            rows.append([NAMES[process], name, *(cell(scores, s, d) for s, d in SCORES), *[""] * 7])
    note = (
        "\nEnergy distance, jump and spectrum: how far whole functions of the prior are from the process's; 0 is "
        "the same. Missed: known points outside the posterior's own 99.9 % intervals. Gained over the start: "
        "log-density per point of data sets left out in training, over that of the start in closed form.\n"
    )
    table = write_atomically(folder / "table.md", markdown_table(header, rows) + note)
    return [table, *_figures(settings, results, folder)]


SCORES = (("marginal_lppd", 2), ("pooled_lppd", 2), ("mae", 3))
DISTANCES = ("energy distance", "jump", "spectrum")


def found_of(process: str, way: str, settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [results[key] for seed in settings["seeds"] if (key := f"{process}-{way}-{seed}") in results]


def gained_by(decisions: Sequence[str]) -> list[float]:
    """How much the log-density of left-out data sets is above that of the start, if the decisions say it."""
    found = [match for match in map(GAINED.search, decisions) if match]
    return [float(match[1]) - float(match[2]) for match in found]


def distance_of(found: list[dict[str, Any]], kind: str, of: str = "learned prior") -> Estimate:
    return over([one["differences"][of][kind] for one in found])


def claims(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[Claim]:
    """The learned prior is nearer to the process than the standard one; the model beats what is trivial, its start."""
    found = []
    for process in settings["processes"]:
        for way in WAYS:
            ours, how = found_of(process, way, settings, results), _budget(process, way, settings)
            near, far = (distance_of(ours, "energy distance", of) for of in ("learned prior", "standard prior"))
            found.append(
                Claim(
                    "4.2",
                    f"{NAMES[process]}: the prior learned by {how} is nearer to the process than the standard one",
                    "by eye",
                    f"energy distance {text_of(near, 3)}; standard {far[0]:.3f}" if ours else "",
                    oracle="0",
                    gain=difference(far, (near[0], near[1])) if ours else far,
                    seeds=len(ours),
                )
            )
            found += [_beats_trivial(process, how, score, ours, results) for score in ("marginal_lppd", "mae")]
        found.append(_beats_start(process, settings, results))
    return found


def _budget(process: str, way: str, settings: Mapping[str, Any]) -> str:
    """How a prior was learned, and for how long."""
    steps = f"{settings['processes'][process]['paper']['steps']:,} steps"
    return f"{WAYS[way]} in {settings['recipe_minutes']:g} minutes" if way == "recipe" else f"{WAYS[way]} in {steps}"


def _beats_start(process: str, settings: Mapping[str, Any], results: Mapping[str, Any]) -> Claim:
    """The recipe starts from a prior in closed form, and keeps it where training does not help."""
    how = _budget(process, "recipe", settings)
    text = f"{NAMES[process]}: training by {how} gains more than {NOTICED} over its start in closed form"
    gained = [gain for one in found_of(process, "recipe", settings, results) for gain in gained_by(one["decisions"])]
    if not gained:
        return Claim("beyond", text)
    gain = over([one - NOTICED for one in gained])
    return Claim("beyond", text, ours=f"{text_of(over(gained))} of log-density", gain=gain, seeds=len(gained))


def _beats_trivial(process: str, how: str, score: str, ours: list[dict[str, Any]], results: Mapping[str, Any]) -> Claim:
    """By log-density, and by the error of the mean, in which a model that is merely honest of what it misses fails."""
    better, what, digits = (1, "marginal LPPD", 2) if score == "marginal_lppd" else (-1, "MAE", 3)
    text = f"{NAMES[process]}: {what} of the model learned by {how} is better than that of what is trivial"
    others = dict(results.get(f"{process}-trivial", {}))
    exact = others.pop("exact posterior", None)
    if not ours or not others:
        return Claim("4.2", text)
    best = max(others, key=lambda name: better * mean_and_error(others[name], score)[0])
    mine, theirs = [mean_and_error(one["scores"], score)[0] for one in ours], mean_and_error(others[best], score)[0]
    return Claim(
        "4.2",
        text,
        ours=text_of(over(mine), digits),
        oracle=cell(exact, score, digits),
        trivial=f"{best} {theirs:.{digits}f}",
        gain=over([better * (one - theirs) for one in mine]),
        seeds=len(ours),
    )


def _figures(settings: Mapping[str, Any], results: Mapping[str, Any], folder: Path) -> list[Path]:
    """A figure for each way, of the first seed's models."""
    seed, files = settings["seeds"][0], []
    for way in WAYS:
        there = [p for p in settings["processes"] if f"{p}-{way}-{seed}" in results]
        there = [p for p in there if model_file(folder, f"{p}-{way}-{seed}").is_file()]
        if there:
            figure = _figure({p: bnnp.load(model_file(folder, f"{p}-{way}-{seed}")) for p in there})
            files.append(save_figure(figure, folder / f"figure-{way}.png"))
    return files


def _figure(models: Mapping[str, Any]) -> Figure:
    """The paper's figure: a row a process; draws of it, of the learned prior, and posteriors given more and more."""
    columns = 2 + len(CONTEXTS)
    figure = Figure(figsize=(2.5 * columns, 2 * len(models)), layout="constrained")
    panels = figure.subplots(len(models), columns, squeeze=False)
    for row, (process, model) in zip(panels, models.items(), strict=True):
        x, real = real_functions(process, 8)
        fine = np.linspace(x[0], x[-1], 400)
        for values in real:
            row[0].plot(x, values, color=TRUTH, alpha=0.7, linewidth=1)
        draw_functions(row[1], model.prior.functions(8, seed=2), fine)
        task = source_of(process, (100, 100)).draw(1, torch.Generator().manual_seed(TEST_SEED))[0]
        order = torch.randperm(len(task), generator=torch.Generator().manual_seed(1))
        for axes, count in zip(row[2:], CONTEXTS, strict=True):
            context, target = task.take(order[:count]), task.take(order[count:])
            draw_posterior(axes, model.condition(context.x, context.y, num_samples=200, seed=0), fine, context, target)
        low, high = float(real.min()), float(real.max())
        margin = 0.4 * (high - low)
        for axes in row:
            axes.set(ylim=(low - margin, high + margin), xticks=[], yticks=[])
        row[0].set_ylabel(NAMES[process])
    titles = ["the process", "learned prior", *(f"posterior, {count} points" for count in CONTEXTS)]
    for axes, title in zip(panels[0], titles, strict=True):
        axes.set_title(title, fontsize=9)
    return figure
