"""One more input changes the predictions of a BNAM at all others, not those of a BNNP (paper, App. E.2)."""

from collections.abc import Mapping
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

MODELS = ("BNAM", "BNNP")
APPENDED = (0.0, 3.0, 10.0, 100.0)
GRID, TEST_SEED = 100, 69
SCALES: dict[str, dict[str, Any]] = {  # the paper's text has no settings for its demonstration
    "smoke": {"width": 8, "steps": 3, "samples": 2, "reach": 2.0, "tests": 2},
    "small": {"width": 32, "steps": 3000, "samples": 8, "reach": 2.0, "tests": 16},
    "paper": {"width": 64, "steps": 100_000, "samples": 16, "reach": 5.0, "tests": 64},
}


def runs(scale: str) -> dict[str, Run]:
    return {name: Run(learn, {"name": name, **SCALES[scale]}) for name in MODELS}


def learn(name: str, width: int, steps: int, samples: int, reach: float, tests: int, folder: Path) -> list[dict]:
    """Train; then ask the same posteriors at a grid, and at the same grid with one more input."""
    likelihood = bnnp.Gaussian(0.05)
    if name == "BNAM":
        model = bnnp.BNAM(1, 1, bnnp.Transformer(width), activation="silu", likelihood=likelihood, seed=0)
    else:
        model = bnnp.BNNP(1, 1, (width, width), "silu", likelihood=likelihood, seed=0)
    train(
        model,
        bnnp.tasks.gp(low=-reach, high=reach),
        folder,
        name,
        objective=bnnp.objectives.PPAVI(samples),
        steps=steps,
        context_share=(0.05, 0.5),
        learning_rate=(2e-3, 5e-5),
        seed=0,
    )
    rows = []
    for x, y in contexts(reach, tests):
        post = model.condition(x, y, num_samples=30, seed=0)
        before = post.predict(grid(reach))
        for appended in APPENDED:
            after = post.predict(np.vstack([grid(reach), [[appended]]]))
            rows.append(
                {
                    "appended": appended,
                    "change of mean": _distance(before.mean, after.mean[:GRID]),
                    "change of samples": _distance(before.samples, after.samples[:, :GRID]),
                    "spread": float(before.function_std.mean()),
                }
            )
    return rows


def grid(reach: float) -> np.ndarray:
    return np.linspace(-reach, reach, GRID)[:, None]


def contexts(reach: float, count: int, points: int = 12) -> list[tuple[np.ndarray, np.ndarray]]:
    source = bnnp.tasks.gp(low=-reach, high=reach, points=(points, points))
    return [(t.x.numpy(), t.y.numpy()) for t in source.draw(count, torch.Generator().manual_seed(TEST_SEED))]


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.sqrt(np.square(a - b).mean()))


def report(scale: str, results: Mapping[str, Any], folder: Path) -> list[Path]:
    names = ("change of mean", "change of samples", "spread")
    rows = []
    for model, found in results.items():
        for appended in APPENDED:
            some = [row for row in found if row["appended"] == appended]
            means = [float(np.mean([row[name] for row in some])) for name in names]
            rows.append([model, f"{appended:g}", *(f"{mean:.2g}" for mean in means)])
    text = f"Root mean square changes at {GRID} inputs when one more is asked for; spread is the posterior's own:\n\n"
    text += markdown_table(["model", "appended x", *names], rows)
    table = write_atomically(folder / "table.md", text)
    return [table, save_figure(_figure(list(results), SCALES[scale]["reach"], folder), folder / "figure.png")]


def _figure(models: list[str], reach: float, folder: Path) -> Figure:
    """The paper's figure, with the BNNP below."""
    ((x, y),) = contexts(reach, 1)
    figure = Figure(figsize=(8, 2.6 * len(models)), layout="constrained")
    panels = figure.subplots(len(models), 2, sharex=True, sharey=True, squeeze=False)
    for row, name in zip(panels, models, strict=True):
        post = bnnp.load(model_file(folder, name)).condition(x, y, num_samples=30, seed=0)
        for axes, inputs in zip(row, (grid(reach), np.vstack([grid(reach), [[APPENDED[-1]]]])), strict=True):
            axes.plot(
                grid(reach), post.predict(inputs).samples[:, :GRID, 0].T, color="#1f77b4", alpha=0.3, linewidth=0.8
            )
            axes.plot(x, y, "o", color=CONTEXT, markersize=3)
        row[0].set_ylabel(name)
    panels[0, 0].set_title(f"at {GRID} inputs")
    panels[0, 1].set_title(f"the same {GRID}, with x = {APPENDED[-1]:g} appended")
    panels[0, 0].set_ylim(-3, 3)
    return figure
