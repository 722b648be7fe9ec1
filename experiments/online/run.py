"""New points without the old ones: how good are updates of the last layer alone? (Paper, App. D.)"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import bnnp
from bnnp._core.files import write_atomically
from bnnp.plots import save_figure
from bnnp.plots.functions import CONTEXT
from bnnp.tasks.task import Split, Task
from claims import Claim, paired
from common import model_file, score_trivial, train
from harness import Run
from score_tables import cell, markdown_table, mean_and_error, over, text_of

BATCH, UPDATES, TEST_SEED = 8, 4, 69
LOW, HIGH = -2.0, 2.0
CLOSE = 0.05
"""Nats a point: a difference in log-density that nobody would notice."""
WAYS = {"all": "all points anew", "online": "online updates", "new": "new points only"}


def runs(settings: Mapping[str, Any]) -> dict[str, Run]:
    """A model for every depth and seed; the paper's text has no settings for its demonstration."""
    training = {name: value for name, value in settings.items() if name not in ("depths", "seeds")}
    return {
        f"depth-{depth}-{seed}": Run(learn, {"depth": depth, "seed": seed, **training})
        for depth in settings["depths"]
        for seed in settings["seeds"]
    } | {"trivial": Run(trivial, {"tests": settings["tests"]})}


def learn(
    depth: int, width: int, steps: int, samples: int, tests: int, scored: int, seed: int, folder: Path
) -> list[dict[str, float | str]]:
    """Train; then take in five batches of points in three ways, and score each after every batch at other points."""
    model = bnnp.BNNP(1, 1, (width,) * depth, "silu", likelihood=bnnp.Gaussian(0.05), seed=seed)
    train(
        model,
        bnnp.tasks.gp(low=LOW, high=HIGH),
        folder,
        f"depth-{depth}-{seed}",
        way="ours",
        objective=bnnp.objectives.PPAVI(samples),
        steps=steps,
        context_share=(0.05, 0.5),
        seed=seed,
    )
    first = BATCH * (UPDATES + 1)
    rows: list[dict[str, float | str]] = []
    for number, (x, y) in enumerate(tasks_to_test(tests)):
        for points, found in posteriors(model, x, y, scored):
            predictions = {way: post.predict(x[first:]) for way, post in found.items()}
            for way, pred in predictions.items():
                difference = pred.mean - predictions["all"].mean
                rows.append(
                    {
                        "task": number,
                        "points": points,
                        "way": way,
                        "distance": float(np.sqrt(np.square(difference).mean())),
                        "lppd": float(pred.log_prob(y[first:]).mean()),
                        "mae": float(np.abs(pred.mean - y[first:]).mean()),
                    }
                )
    return rows


def tasks_to_test(count: int, seed: int = TEST_SEED) -> list[tuple[np.ndarray, np.ndarray]]:
    drawn = bnnp.tasks.gp(low=LOW, high=HIGH, points=(128, 128)).draw(count, torch.Generator().manual_seed(seed))
    return [(task.x.numpy(), task.y.numpy()) for task in drawn]


def posteriors(model: bnnp.BNNP, x: np.ndarray, y: np.ndarray, scored: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """After each batch: given all points so far, by updates, and given the new points alone."""
    online = model.condition(x[:BATCH], y[:BATCH], num_samples=scored, seed=0)
    for step in range(UPDATES + 1):
        seen, new = slice(0, BATCH * (step + 1)), slice(BATCH * step, BATCH * (step + 1))
        if step > 0:
            online = online.update(x[new], y[new])
        anew, alone = (model.condition(x[part], y[part], num_samples=scored, seed=0) for part in (seen, new))
        yield BATCH * (step + 1), {"all": anew, "online": online, "new": alone}


def trivial(tests: int) -> dict[str, Any]:
    """What needs no learning, given all points that have come; and the exact posterior."""
    first = BATCH * (UPDATES + 1)
    splits = [_divided(x, y, first) for x, y in tasks_to_test(tests)]
    training = [_divided(x, y, first) for x, y in tasks_to_test(32, TEST_SEED + 1)]
    exact = bnnp.evaluate(bnnp.Oracle(bnnp.tasks.gp(low=LOW, high=HIGH)), splits, num_samples=100)
    return score_trivial(training, splits) | {"exact posterior": exact.to_dict()}


def _divided(x: np.ndarray, y: np.ndarray, first: int) -> Split:
    return Split(Task.of(x[:first], y[:first]), Task.of(x[first:], y[first:]))


# --- the report ------------------------------------------------------------------------------------------------------


def report(settings: Mapping[str, Any], results: Mapping[str, Any], folder: Path) -> list[Path]:
    depths = [depth for depth in settings["depths"] if _found(depth, settings, results)]
    last = BATCH * (UPDATES + 1)
    header = ["hidden layers", "distance of means, online to all"]
    header += [f"{score}, {label}" for score in ("marginal LPPD", "MAE") for label in WAYS.values()]
    rows = []
    for depth in depths:
        found = _found(depth, settings, results)
        cells = [text_of(over(_means(found, way, last, score)), 3) for score in ("lppd", "mae") for way in WAYS]
        rows.append([str(depth), text_of(over(_means(found, "online", last, "distance")), 4), *cells, str(len(found))])
    text = f"After {last} points, in batches of {BATCH}:\n\n" + markdown_table([*header, "seeds"], rows)
    rows = [
        [name, cell(one, "marginal_lppd", 3), cell(one, "mae", 3)] for name, one in results.get("trivial", {}).items()
    ]
    text += f"\nGiven all {last} points:\n\n" + markdown_table(["", "marginal LPPD", "MAE"], rows)
    files = [write_atomically(folder / "table.md", text)]
    if depths:
        files.append(save_figure(_curves(depths, settings, results), folder / "figure.png"))
    shown = model_file(folder, f"depth-{2 if 2 in depths else settings['depths'][0]}-{settings['seeds'][0]}")
    if not shown.is_file():
        return files
    return [*files, save_figure(_demonstration(bnnp.load(shown)), folder / "demonstration.png")]


def _found(depth: int, settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """The rows of every seed."""
    return [results[key] for seed in settings["seeds"] if (key := f"depth-{depth}-{seed}") in results]


def _means(found: list[list[dict[str, Any]]], way: str, points: int, score: str) -> list[float]:
    """For every seed, the mean over tasks."""
    return [
        float(np.mean([row[score] for row in rows if row["way"] == way and row["points"] == points])) for rows in found
    ]


def claims(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[Claim]:
    """Updates stay close to conditioning anew: they lose less than 0.05 nats; and what depth does to that."""
    claims, last = [], BATCH * (UPDATES + 1)
    others = {name: mean_and_error(one, "marginal_lppd")[0] for name, one in results.get("trivial", {}).items()}
    exact = others.pop("exact posterior", None)
    rest: dict[str, Any] = {"paper": "by eye", "oracle": "" if exact is None else f"{exact:.2f}"}
    rest["trivial"] = f"{max(others.values()):.2f}" if others else ""
    for depth in settings["depths"]:
        found = _found(depth, settings, results)
        text = f"{depth} hidden layers: online updates lose less than {CLOSE} of marginal LPPD"
        every, online, new = (_means(found, way, last, "lppd") for way in ("all", "online", "new"))
        ours = (
            f"all {text_of(over(every), 3)}; online {text_of(over(online), 3)}; new points only {text_of(over(new), 3)}"
        )
        lost = paired([value + CLOSE for value in online], every)
        claims.append(Claim("App. D", text, ours=ours if found else "", gain=lost, seeds=len(found), **rest))
    return [*claims, _of_depth(settings, results)]


def _of_depth(settings: Mapping[str, Any], results: Mapping[str, Any]) -> Claim:
    """Whether a deeper network, of which a smaller part is updated, loses more."""
    few, many = min(settings["depths"]), max(settings["depths"])
    text = f"online updates lose more of marginal LPPD with {many} hidden layers than with {few}"
    losses = [_losses(_found(depth, settings, results)) for depth in (many, few)]
    if not losses[0] or len(losses[0]) != len(losses[1]):
        return Claim("App. D", text, "by eye")
    ours = "; ".join(text_of(over(lost), 3) for lost in losses)
    return Claim("App. D", text, "by eye", ours, oracle="0", gain=paired(*losses), seeds=len(losses[0]))


def _losses(found: list[list[dict[str, Any]]]) -> list[float]:
    """For every seed, how much better it is to condition on all points anew."""
    values = [_means(found, way, BATCH * (UPDATES + 1), "lppd") for way in ("all", "online")]
    return [every - online for every, online in zip(*values, strict=True)]


def _curves(depths: list[int], settings: Mapping[str, Any], results: Mapping[str, Any]) -> Figure:
    points = [BATCH * (step + 1) for step in range(UPDATES + 1)]
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    panels = figure.subplots(1, 3)
    for depth in depths:
        found = _found(depth, settings, results)
        distances = [over(_means(found, "online", n, "distance"))[0] for n in points]
        panels[0].plot(points, distances, "o-", markersize=4, label=f"hidden layers: {depth}")
    panels[0].set(xlabel="points seen", ylabel="distance of means, online to all")
    panels[0].set_ylim(top=1.5 * panels[0].get_ylim()[1])
    panels[0].legend(fontsize=8, loc="upper right", ncols=2)
    for axes, depth in zip(panels[1:], (depths[0], depths[-1]), strict=True):
        found = _found(depth, settings, results)
        for way, label in WAYS.items():
            values = [over(_means(found, way, n, "lppd"))[0] for n in points]
            axes.plot(points, values, "--" if way == "online" else "-", marker="o", markersize=4, label=label)
        axes.set(xlabel="points seen", ylabel="marginal LPPD at other points", title=f"hidden layers: {depth}")
        axes.legend(fontsize=8)
    return figure


def _demonstration(model: bnnp.BNNP) -> Figure:
    """The paper's figure: rows take in more points; black points are no longer there."""
    ((x, y),) = tasks_to_test(1)
    grid = np.linspace(LOW, HIGH, 200)[:, None]
    figure = Figure(figsize=(9, 1.9 * UPDATES), layout="constrained")
    panels = figure.subplots(UPDATES, 3, sharex=True, sharey=True)
    for row, (points, found) in zip(panels, posteriors(model, x, y, 50), strict=False):
        for axes, (way, post) in zip(row, found.items(), strict=True):
            axes.plot(grid, post.predict(grid).samples[:30, :, 0].T, color="#1f77b4", alpha=0.25, linewidth=0.8)
            old, new = slice(0, points - BATCH), slice(points - BATCH, points)
            axes.plot(x[old], y[old], "o", color=CONTEXT if way == "all" else "black", markersize=3)
            axes.plot(x[new], y[new], "o", color=CONTEXT, markersize=3)
    for axes, label in zip(panels[0], WAYS.values(), strict=True):
        axes.set_title(label, fontsize=9)
    panels[0, 0].set_ylim(-3, 3)
    return figure
