"""Are there priors over weights that look like the process? (Paper, section 4.2, functions of one input.)"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import bnnp
from bnnp._core.files import write_atomically
from bnnp.plots import draw_functions, draw_posterior, save_figure
from bnnp.plots.functions import TRUTH
from bnnp.tasks.source import TaskSource
from bnnp.tasks.synthetic import Synthetic
from common import fixed_tests, learned_noise, model_file, train
from harness import Run
from score_tables import cell, markdown_table

SEED, TEST_SEED = 0, 69
ACTIVATIONS = {"sawtooth": "relu", "heaviside": "tanh", "bnn": "relu", "ecg": "tanh"}
NAMES = {"sawtooth": "sawtooth", "heaviside": "Heaviside", "bnn": "standard BNN", "ecg": "ECG"}
NOISE = 0.05
CONTEXTS = (2, 5, 10, 25)
GRID = 128
_PAPER = {
    "hidden": (64, 64),
    "steps": 50_000,
    "samples": 32,
    "learning_rate": (3e-3, 1e-4),
    "share": (0.1, 0.5),
    "recipe": "paper",
}
_SMALL = {
    "hidden": (48, 48),
    "steps": 6000,
    "samples": 10,
    "learning_rate": (2e-3, 5e-5),
    "share": (0.02, 0.5),
}
_SMOKE = {"hidden": (6, 6), "steps": 3, "samples": 2, "learning_rate": (2e-3, 1e-4), "share": (0.1, 0.5)}
TRAINING: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {"sawtooth": _SMOKE, "bnn": _SMOKE},
    "small": {  # contexts go down to a point or two, so that what is drawn without data is trained for, too
        "sawtooth": _SMALL,
        "heaviside": _SMALL,
        "bnn": _SMALL,
        "ecg": _SMALL | {"count": (1, 64), "points": (100, 150)},
    },
    "paper": {
        "sawtooth": _PAPER,
        "heaviside": _PAPER | {"weight": 0.1},
        "bnn": _PAPER,
        "ecg": _PAPER | {"steps": 500_000, "samples": 24, "learning_rate": (1e-3, 5e-5), "count": (2, 64)},
    },
}


def runs(scale: str) -> dict[str, Run]:
    """One model per process."""
    tests = 2 if scale == "smoke" else 64
    return {
        process: Run(learn, {"process": process, "tests": tests, **choices})
        for process, choices in TRAINING[scale].items()
    }


def learn(
    process: str,
    tests: int,
    hidden: tuple[int, ...],
    steps: int,
    samples: int,
    learning_rate: tuple[float, float],
    share: tuple[float, float],
    folder: Path,
    count: tuple[int, int] | None = None,
    points: tuple[int, int] | None = None,
    weight: float = 1.0,
    recipe: str = "default",
) -> dict[str, Any]:
    """Train, keep the model, and measure what it has learned.

    count, points: sizes of contexts and of tasks, where they are not those of the process.
    weight: of the predictive term and the KL; the paper has 0.1 for Heaviside functions.
    """
    model = bnnp.BNNP(1, 1, hidden, ACTIVATIONS[process], "unitwise", bnnp.Gaussian(NOISE), seed=SEED)
    train(
        model,
        source_of(process, points),
        folder,
        process,
        objective=bnnp.objectives.PPAVI(samples, predictive_weight=weight, kl_weight=weight),
        steps=steps,
        learning_rate=learning_rate,
        context_share=share if count is None else bnnp.tasks.ContextCount(*count),
        recipe=recipe,
        seed=SEED,
    )
    return measured(process, model, tests)


def measured(process: str, model: bnnp.BNNP, tests: int) -> dict[str, Any]:
    """What a model has learned: its noise, its scores on fresh tasks, how far its prior is from the process."""
    splits = fixed_tests(source_of(process, (100, 100)), tests, (0.02, 0.5), TEST_SEED)
    scores = bnnp.evaluate(model, splits, num_samples=200, seed=0).to_dict()
    return {
        "noise": learned_noise(model),
        "scores": scores,
        "distances": distances(process, model, 10 * tests),
    }


def source_of(process: str, points: tuple[int, int] | None = None) -> TaskSource:
    sizes = {} if points is None else {"points": points}
    return bnnp.tasks.SOURCES[process](**sizes)


def distances(process: str, model: bnnp.BNNP, count: int) -> dict[str, float]:
    """Energy distances from draws of the process to those of the priors, on a grid; and to other draws of itself.

    A draw is a whole function, so that the distance is about how its values hang together, not about single values.
    """
    x, real = real_functions(process, 2 * count)
    standard = bnnp.BNNP(1, 1, model.network.sizes[1:-1], ACTIVATIONS[process], seed=0)
    drawn = {
        "the process itself": real[count:],
        "learned prior": values_of(model, x, count),
        "standard prior": values_of(standard, x, count),
    }
    return {name: energy_distance(real[:count], values) for name, values in drawn.items()}


def values_of(model: bnnp.BNNP, x: np.ndarray, count: int) -> torch.Tensor:
    return torch.from_numpy(np.stack([f(x[:, None])[:, 0] for f in model.prior.functions(count, seed=1)])).double()


def real_functions(process: str, count: int) -> tuple[np.ndarray, torch.Tensor]:
    """Functions of the process on a grid, without noise where that is known: (grid,), (count, grid)."""
    generator = torch.Generator().manual_seed(TEST_SEED)
    source = source_of(process)
    if isinstance(source, Synthetic):
        x = torch.linspace(source.low, source.high, GRID, dtype=torch.float64)
        return x.numpy(), torch.stack([source.values(x[:, None], generator)[:, 0] for _ in range(count)])
    tasks = source.draw(count, generator)
    every = len(tasks[0]) // GRID
    return tasks[0].x[::every, 0].numpy(), torch.stack([task.y[::every, 0] for task in tasks])


def energy_distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """`2 E|a - b| - E|a - a'| - E|b - b'|`, the root of it, for the root mean square difference along the grid."""

    def mean(p: torch.Tensor, q: torch.Tensor, pairs: int) -> torch.Tensor:
        return torch.cdist(p, q).sum() / pairs / math.sqrt(p.shape[1])

    n, m = len(a), len(b)
    squared = 2 * mean(a, b, n * m) - mean(a, a, n * (n - 1)) - mean(b, b, m * (m - 1))
    return float(squared.clamp(min=0).sqrt())


def report(scale: str, results: Mapping[str, Any], folder: Path) -> list[Path]:
    found = {process: results[process] for process in NAMES if process in results}
    header = ["process", "learned noise", "marginal LPPD", "pooled LPPD", "MAE"]
    header += [f"distance: {name}" for name in next(iter(found.values()))["distances"]]
    rows = [
        [
            NAMES[process],
            f"{result['noise']:.3f}",
            cell(result["scores"], "marginal_lppd"),
            cell(result["scores"], "pooled_lppd"),
            cell(result["scores"], "mae", 3),
            *(f"{distance:.3f}" for distance in result["distances"].values()),
        ]
        for process, result in found.items()
    ]
    note = "\nDistances are energy distances of whole functions from draws of the process; 0 is the same.\n"
    table = write_atomically(folder / "table.md", markdown_table(header, rows) + note)
    return [table, save_figure(_figure(list(found), folder), folder / "figure.png")]


def _figure(processes: list[str], folder: Path) -> Figure:
    """The paper's figure: a row a process; draws of it, of the learned prior, and posteriors given more and more."""
    columns = 2 + len(CONTEXTS)
    figure = Figure(figsize=(2.5 * columns, 2 * len(processes)), layout="constrained")
    panels = figure.subplots(len(processes), columns, squeeze=False)
    for row, process in zip(panels, processes, strict=True):
        model = bnnp.load(model_file(folder, process))
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
