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
from claims import Claim, paired
from common import model_file, train
from harness import Run
from score_tables import markdown_table, over, text_of

MODELS = ("BNAM", "BNNP")
APPENDED = (0.0, 3.0, 10.0, 100.0)
GRID, TEST_SEED = 100, 69
NOTHING = 1e-5
"""Below this, a change is rounding."""


def runs(settings: Mapping[str, Any]) -> dict[str, Run]:
    """Both models for every seed; the paper's text has no settings for its demonstration."""
    training = {name: value for name, value in settings.items() if name != "seeds"}
    return {
        f"{name}-{seed}": Run(learn, {"name": name, "seed": seed, **training})
        for name in MODELS
        for seed in settings["seeds"]
    }


def learn(
    name: str, width: int, steps: int, samples: int, reach: float, tests: int, seed: int, folder: Path
) -> list[dict[str, float]]:
    """Train; then ask the same posteriors at a grid, and at the same grid with one more input."""
    likelihood = bnnp.Gaussian(0.05)
    if name == "BNAM":
        model = bnnp.BNAM(1, 1, bnnp.Transformer(width), activation="silu", likelihood=likelihood, seed=seed)
    else:
        model = bnnp.BNNP(1, 1, (width, width), "silu", likelihood=likelihood, seed=seed)
    train(
        model,
        bnnp.tasks.gp(low=-reach, high=reach),
        folder,
        f"{name}-{seed}",
        way="ours",
        objective=bnnp.objectives.PPAVI(samples),
        steps=steps,
        context_share=(0.05, 0.5),
        learning_rate=(2e-3, 5e-5),
        seed=seed,
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


def report(settings: Mapping[str, Any], results: Mapping[str, Any], folder: Path) -> list[Path]:
    names, rows = ("change of mean", "change of samples", "spread"), []
    for model in MODELS:
        for appended in APPENDED:
            some = [_means(model, appended, name, settings, results) for name in names]
            if some[0]:
                rows.append([model, f"{appended:g}", *map(text_of, map(over, some), (4, 4, 2)), str(len(some[0]))])
    text = f"Root mean square changes at {GRID} inputs when one more is asked for; spread is the posterior's own:\n\n"
    text += markdown_table(["model", "appended x", *names, "seeds"], rows)
    table = write_atomically(folder / "table.md", text)
    files = {name: model_file(folder, f"{name}-{settings['seeds'][0]}") for name in MODELS}
    there = {name: file for name, file in files.items() if file.is_file()}
    return [table, save_figure(_figure(there, settings["reach"]), folder / "figure.png")] if there else [table]


def _means(model: str, appended: float, name: str, settings: Any, results: Mapping[str, Any]) -> list[float]:
    """For every seed, the mean over contexts."""
    found = [results[key] for seed in settings["seeds"] if (key := f"{model}-{seed}") in results]
    return [float(np.mean([row[name] for row in rows if row["appended"] == appended])) for rows in found]


def claims(settings: Mapping[str, Any], results: Mapping[str, Any]) -> list[Claim]:
    """Far outside the data, one input more changes a BNAM's means by more than its own spread; a BNNP's never."""
    claims = []
    for appended in (APPENDED[0], APPENDED[-1]):
        far = appended == APPENDED[-1]
        text = f"x = {appended:g} appended changes the BNAM's means by {'more' if far else 'less'} than its spread"
        change, spread = (_means("BNAM", appended, n, settings, results) for n in ("change of mean", "spread"))
        ours = f"{text_of(over(change), 4)}; spread {text_of(over(spread))}" if change else ""
        gain = paired(change, spread) if far else paired(spread, change)
        claims.append(Claim("App. E", text, "by eye", ours, oracle="0", gain=gain, seeds=len(change)))
    change = _means("BNNP", APPENDED[-1], "change of mean", settings, results)
    text = f"x = {APPENDED[-1]:g} appended changes nothing in a BNNP (less than {NOTHING:g})"
    gain = paired([NOTHING] * len(change), change)
    claims.append(Claim("App. E", text, "by eye", text_of(over(change), 6), oracle="0", gain=gain, seeds=len(change)))
    return claims


def _figure(models: Mapping[str, Path], reach: float) -> Figure:
    """The paper's figure, with the BNNP below."""
    ((x, y),) = contexts(reach, 1)
    figure = Figure(figsize=(8, 2.6 * len(models)), layout="constrained")
    panels = figure.subplots(len(models), 2, sharex=True, sharey=True, squeeze=False)
    for row, (name, file) in zip(panels, models.items(), strict=True):
        post = bnnp.load(file).condition(x, y, num_samples=30, seed=0)
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
