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
from common import model_file, train
from harness import Run
from score_tables import markdown_table

BATCH, UPDATES, TEST_SEED = 8, 4, 69
LOW, HIGH = -2.0, 2.0
WAYS = {"all": "all points anew", "online": "online updates", "new": "new points only"}
SCALES: dict[str, dict[str, Any]] = {  # the paper's text has no settings for its demonstration
    "smoke": {"depths": (1, 2), "width": 6, "steps": 3, "samples": 2, "tests": 2, "scored": 10},
    "small": {"depths": (1, 2, 3, 4), "width": 32, "steps": 2000, "samples": 8, "tests": 32, "scored": 200},
    "paper": {"depths": (1, 2, 3, 4), "width": 48, "steps": 50_000, "samples": 32, "tests": 64, "scored": 1000},
}


def runs(scale: str) -> dict[str, Run]:
    """A model a depth."""
    choices = dict(SCALES[scale])
    return {f"depth-{depth}": Run(learn, {"depth": depth, **choices}) for depth in choices.pop("depths")}


def learn(
    depth: int, width: int, steps: int, samples: int, tests: int, scored: int, folder: Path
) -> list[dict[str, float | str]]:
    """Train; then take in five batches of points in three ways, and score each after every batch at other points."""
    model = bnnp.BNNP(1, 1, (width,) * depth, "silu", likelihood=bnnp.Gaussian(0.05), seed=0)
    train(
        model,
        bnnp.tasks.gp(low=LOW, high=HIGH),
        folder,
        f"depth-{depth}",
        objective=bnnp.objectives.PPAVI(samples),
        steps=steps,
        context_share=(0.05, 0.5),
        seed=0,
    )
    first = BATCH * (UPDATES + 1)
    rows: list[dict[str, float | str]] = []
    for number, (x, y) in enumerate(test_tasks(tests)):
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


def test_tasks(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    drawn = bnnp.tasks.gp(low=LOW, high=HIGH, points=(128, 128)).draw(count, torch.Generator().manual_seed(TEST_SEED))
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


# --- the report ------------------------------------------------------------------------------------------------------


def report(scale: str, results: Mapping[str, Any], folder: Path) -> list[Path]:
    depths = [depth for depth in SCALES[scale]["depths"] if f"depth-{depth}" in results]
    last = BATCH * (UPDATES + 1)
    header = ["hidden layers", "distance of means, online to all"]
    header += [f"{score}, {label}" for score in ("LPPD", "MAE") for label in WAYS.values()]
    rows = []
    for depth in depths:
        found = results[f"depth-{depth}"]
        cells = [f"{_mean(found, way, last, score):.3f}" for score in ("lppd", "mae") for way in WAYS]
        rows.append([str(depth), f"{_mean(found, 'online', last, 'distance'):.4f}", *cells])
    text = f"After {last} points, in batches of {BATCH}:\n\n" + markdown_table(header, rows)
    files = [write_atomically(folder / "table.md", text)]
    files.append(save_figure(_curves(depths, results), folder / "figure.png"))
    shown = 2 if 2 in depths else depths[0]
    model = bnnp.load(model_file(folder, f"depth-{shown}"))
    return [*files, save_figure(_demonstration(model), folder / "demonstration.png")]


def _mean(rows: list[dict[str, Any]], way: str, points: int, score: str) -> float:
    return float(np.mean([row[score] for row in rows if row["way"] == way and row["points"] == points]))


def _curves(depths: list[int], results: Mapping[str, Any]) -> Figure:
    points = [BATCH * (step + 1) for step in range(UPDATES + 1)]
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    panels = figure.subplots(1, 3)
    for depth in depths:
        distances = [_mean(results[f"depth-{depth}"], "online", n, "distance") for n in points]
        panels[0].plot(points, distances, "o-", markersize=4, label=f"hidden layers: {depth}")
    panels[0].set(xlabel="points seen", ylabel="distance of means, online to all")
    panels[0].legend(fontsize=8)
    for axes, depth in zip(panels[1:], (depths[0], depths[-1]), strict=True):
        for way, label in WAYS.items():
            found = [_mean(results[f"depth-{depth}"], way, n, "lppd") for n in points]
            axes.plot(points, found, "--" if way == "online" else "-", marker="o", markersize=4, label=label)
        axes.set(xlabel="points seen", ylabel="LPPD at other points", title=f"hidden layers: {depth}")
        axes.legend(fontsize=8)
    return figure


def _demonstration(model: bnnp.BNNP) -> Figure:
    """The paper's figure: rows take in more points; black points are no longer there."""
    ((x, y),) = test_tasks(1)
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
