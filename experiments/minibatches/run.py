"""Contexts in chunks: is the posterior that of the whole, and what does training by one chunk cost? (Paper, App. C.)"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import bnnp
from bnnp._core.files import write_atomically
from bnnp.plots import save_figure
from bnnp.tasks.synthetic import GaussianProcess
from bnnp.tasks.task import Split
from claims import Claim, paired
from common import fixed_tests, model_file, score_trivial, train
from harness import Run
from score_tables import cell, markdown_table, mean_and_error, over, text_of

WAYS = {"whole": "whole contexts", "chunks": "derivatives of one chunk", "limited": "contexts of one chunk only"}
LOW, HIGH, POINTS, SHARE, TEST_SEED = -2.0, 2.0, 96, (1 / 3, 2 / 3), 69
CLOSE, NOTHING = 0.05, 1e-3
"""Nats a point that nobody would notice; the share of a posterior's spread below which a change is rounding."""
FLAT, TWICE = 1.5, 2.0
"""Memory that grows less than this is called bounded; time of more than this times the other is called more."""


def runs(settings: Mapping[str, Any]) -> dict[str, Run]:
    """Training in three ways for every seed, comparisons of posteriors, and what a step takes."""
    planned = {"trivial": Run(trivial, {"tests": settings["tests"]})}
    shared = {name: settings[name] for name in ("tests", "scored")}
    for seed in settings["seeds"]:
        for way in WAYS:
            own = {"way": way, "seed": seed, "chunk": settings["chunk"], **settings["training"]}
            planned[f"{way}-{seed}"] = Run(learn, own | shared)
        own = {"seed": seed, "sizes": settings["sizes"]}
        planned[f"exact-{seed}"] = Run(compare, own | shared, needs=(f"whole-{seed}",))
    for points in settings["cost"]["points"]:
        for way in ("whole", "chunks"):
            own = {"points": points, "chunk": settings["cost"]["chunk"] if way == "chunks" else 0}
            own |= {"steps": settings["cost"]["steps"], "repeats": len(settings["seeds"])}
            planned[f"cost-{way}-{points}"] = Run(cost, own)
    return planned


def source_of(points: tuple[int, int] = (POINTS, POINTS)) -> GaussianProcess:
    return bnnp.tasks.gp(low=LOW, high=HIGH, points=points)


def tests_of(count: int) -> list[Split]:
    """Contexts of 32 to 64 points, which no chunk holds."""
    return fixed_tests(source_of(), count, SHARE, TEST_SEED)


def learn(
    way: str,
    seed: int,
    chunk: int,
    width: int,
    steps: int,
    samples: int,
    learning_rate: tuple[float, float],
    tests: int,
    scored: int,
    folder: Path,
) -> dict[str, Any]:
    """Train, and score at contexts that are larger than a chunk.

    `limited` is what the paper calls naive: contexts are never larger than a chunk. Targets are as many as elsewhere.
    """
    limited = way == "limited"
    low, high = (round(share * POINTS) for share in SHARE)
    model = bnnp.BNNP(1, 1, (width, width), "silu", likelihood=bnnp.Gaussian(0.05), seed=seed)
    train(
        model,
        source_of((chunk + low, chunk + high)) if limited else source_of(),
        folder,
        f"{way}-{seed}",
        way="ours",
        objective=bnnp.objectives.PPAVI(samples),
        steps=steps,
        learning_rate=learning_rate,
        context_share=bnnp.tasks.ContextCount(chunk, chunk) if limited else SHARE,
        chunk_size=chunk if way == "chunks" else None,
        seed=seed,
    )
    return bnnp.evaluate(model, tests_of(tests), num_samples=scored, seed=0).to_dict()


def compare(seed: int, sizes: Sequence[int], tests: int, scored: int, folder: Path) -> dict[str, float]:
    """How far predictions by chunks are from those by the whole context, in units of the posterior's spread.

    The largest over tasks, for every size of chunks; and for the first chunk of the largest size alone, which must be
    far, or nothing would be shown.
    """
    model = bnnp.load(model_file(folder, f"whole-{seed}"))
    found = {str(size): 0.0 for size in sizes} | {"first chunk alone": 0.0}
    for index, split in enumerate(tests_of(tests)):
        x, y, at = split.context.x, split.context.y, split.target.x
        whole = model.condition(x, y, num_samples=scored, seed=index).predict(at)
        others = {str(n): model.condition(x, y, num_samples=scored, seed=index, chunk_size=n) for n in sizes}
        others["first chunk alone"] = model.condition(x[: max(sizes)], y[: max(sizes)], num_samples=scored, seed=index)
        spread = float(np.sqrt(np.square(whole.function_std).mean()))
        for name, post in others.items():
            change = float(np.abs(post.predict(at).mean - whole.mean).max()) / spread
            found[name] = max(found[name], change)
    return found


def cost(points: int, chunk: int, steps: int, repeats: int) -> dict[str, list[float]]:
    """What a step takes, each repeat in a process of its own (`cost.py`)."""
    command = [sys.executable, str(Path(__file__).with_name("cost.py")), str(points), str(chunk), str(steps)]
    answers = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(repeats)]
    found = [json.loads(answer.splitlines()[-1]) for answer in answers]
    return {name: [one[name] for one in found] for name in ("megabytes", "seconds")}


def trivial(tests: int) -> dict[str, Any]:
    """What needs no learning, given the same contexts; and the exact posterior."""
    splits = tests_of(tests)
    exact = bnnp.evaluate(bnnp.Oracle(source_of()), splits, num_samples=100)
    return score_trivial(fixed_tests(source_of(), 32, SHARE, TEST_SEED + 1), splits) | {
        "exact posterior": exact.to_dict()
    }


# --- the report ------------------------------------------------------------------------------------------------------

SCORES = (("marginal_lppd", 3), ("mae", 4))


def report(settings: Mapping[str, Any], results: Mapping[str, Any], folder: Path) -> list[Path]:
    rows = []
    for way, label in WAYS.items():
        found = scores_of(way, settings, results)
        if found:
            cells = [text_of(over([mean_and_error(one, score)[0] for one in found]), n) for score, n in SCORES]
            rows.append([label, *cells, str(len(found))])
    for name, scores in results.get("trivial", {}).items():
        rows.append([name, *(cell(scores, score, digits) for score, digits in SCORES), ""])
    text = f"Trained with chunks of {settings['chunk']} points, scored at contexts of 32 to 64:\n\n"
    text += markdown_table(["training", "marginal LPPD", "MAE", "seeds"], rows)
    text += "\nLargest change of a predicted mean against the whole context, in units of the posterior's spread:\n\n"
    rows = [
        [name if name == "first chunk alone" else f"chunks of {name}", f"{max(values):.2g}", str(len(values))]
        for name, values in changes_of(settings, results).items()
    ]
    text += markdown_table(["context", "largest change", "seeds"], rows)
    text += f"\nA training step of one task, [3, 64, 64, 1], chunks of {settings['cost']['chunk']} points:\n\n"
    rows = []
    for points in settings["cost"]["points"]:
        found = [results.get(f"cost-{way}-{points}") for way in ("whole", "chunks")]
        if all(found):
            cells = [text_of(over(one[kind]), n) for kind, n in KINDS.items() for one in found if one]
            rows.append([f"{points:,}", *cells, str(len(settings["seeds"]))])
    header = ["points", "MB, whole", "MB, chunks", "seconds, whole", "seconds, chunks", "repeats"]
    table = write_atomically(folder / "table.md", text + markdown_table(header, rows))
    return [table, save_figure(_figure(settings, results), folder / "figure.png")]


KINDS = {"megabytes": 0, "seconds": 2}


def scores_of(way: str, settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[Any]:
    return [results[key] for seed in settings["seeds"] if (key := f"{way}-{seed}") in results]


def changes_of(settings: Mapping[str, Any], results: Mapping[str, Any]) -> dict[str, list[float]]:
    """For every way to give a context, the changes of all seeds."""
    found = scores_of("exact", settings, results)
    return {name: [one[name] for one in found] for name in found[0]} if found else {}


def claims(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[Claim]:
    """Inference by chunks is exact; training by one chunk loses little, and less than small contexts; memory."""
    return [*_exact(settings, results), *_trained(settings, results), *_costs(settings, results)]


def _exact(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[Claim]:
    changes = changes_of(settings, results)
    parts = [max(values) for values in zip(*(changes.get(str(n), []) for n in settings["sizes"]), strict=True)]
    alone = changes.get("first chunk alone", [])
    rest: dict[str, Any] = {"paper": "proved", "oracle": "0", "seeds": len(parts)}
    return [
        Claim(
            "App. C",
            f"the posterior by chunks is that of the whole context (means within {NOTHING:g} of its spread)",
            ours=f"{max(parts):.1g} at most" if parts else "",
            gain=paired([NOTHING] * len(parts), parts),
            **rest,
        ),
        Claim(
            "App. C",
            "that of one chunk alone is not (means apart by more than its spread)",
            ours=f"{min(alone):.2g} at least" if alone else "",
            gain=paired(alone, [1.0] * len(alone)),
            **rest,
        ),
    ]


def _trained(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[Claim]:
    lppd = {way: [mean_and_error(s, "marginal_lppd")[0] for s in scores_of(way, settings, results)] for way in WAYS}
    others = {name: mean_and_error(one, "marginal_lppd")[0] for name, one in results.get("trivial", {}).items()}
    exact = others.pop("exact posterior", None)
    rest = {"paper": "expected, without numbers", "oracle": "" if exact is None else f"{exact:.2f}"}
    rest["trivial"] = f"{max(others.values()):.2f}" if others else ""
    budget = f"{settings['training']['steps']:,} steps from the paper's start"
    return [
        _against(
            "whole", CLOSE, f"{budget}, training by one chunk loses less than {CLOSE} of marginal LPPD", lppd, rest
        ),
        _against("limited", 0.0, f"{budget}, it is better at larger contexts than contexts of a chunk", lppd, rest),
    ]


def _against(other: str, allowed: float, text: str, lppd: Mapping[str, list[float]], rest: Any) -> Claim:
    mine, theirs = lppd["chunks"], lppd[other]
    if not mine or len(mine) != len(theirs):
        return Claim("App. C", text, **rest)
    ours = f"{text_of(over(mine), 3)}; {WAYS[other]} {text_of(over(theirs), 3)}"
    gain = paired([value + allowed for value in mine], theirs)
    return Claim("App. C", text, ours=ours, gain=gain, seeds=len(mine), **rest)


def _costs(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[Claim]:
    few, many = (settings["cost"]["points"][end] for end in (0, -1))
    bounded = f"memory of a step in chunks grows less than {FLAT:g}-fold from {few:,} points to {many:,}"
    time = f"a step in chunks takes less than {TWICE:g} times the processor time of a whole one, at {many:,} points"
    keys = [f"cost-chunks-{few}", f"cost-chunks-{many}", f"cost-whole-{many}"]
    if not all(key in results for key in keys):
        return [Claim("App. C", bounded, "argued"), Claim("beyond", time)]
    small, large, whole = (results[key] for key in keys)
    memory = [one["megabytes"] for one in (small, large, whole)]
    seconds = [one["seconds"] for one in (large, whole)]
    return [
        Claim(
            "App. C",
            bounded,
            "argued",
            f"{text_of(over(memory[0]), 0)} MB to {text_of(over(memory[1]), 0)} MB; whole {over(memory[2])[0]:.0f} MB",
            gain=paired([FLAT * value for value in memory[0]], memory[1]),
            seeds=len(memory[0]),
        ),
        Claim(
            "beyond",
            time,
            ours=f"{text_of(over(seconds[0]), 2)} s; whole {text_of(over(seconds[1]), 2)} s",
            gain=paired([TWICE * value for value in seconds[1]], seconds[0]),
            seeds=len(seconds[0]),
        ),
    ]


def _figure(settings: Mapping[str, Any], results: Mapping[str, Any]) -> Figure:
    figure = Figure(figsize=(10, 3.2), layout="constrained")
    quality, *panels = figure.subplots(1, 3)
    for place, way in enumerate(WAYS):
        values = [mean_and_error(one, "marginal_lppd")[0] for one in scores_of(way, settings, results)]
        quality.plot([place] * len(values), values, "o", color=f"C{place}")
    quality.set_xticks(range(len(WAYS)), ["whole", "one chunk", "small contexts"], fontsize=8)
    quality.set_ylabel("marginal LPPD at 32 to 64 points")
    for axes, kind in zip(panels, KINDS, strict=True):
        for way in ("whole", "chunks"):
            there = [n for n in settings["cost"]["points"] if f"cost-{way}-{n}" in results]
            axes.plot(there, [over(results[f"cost-{way}-{n}"][kind])[0] for n in there], "o-", label=way)
        axes.set(xscale="log", yscale="log", xlabel="points of the task", ylabel=f"{kind} of a training step")
        axes.legend(fontsize=8)
    return figure
