"""Images as functions of pixels' places: digits drawn from a learned prior, and completed (paper, section 4.2)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

import bnnp
from bnnp._core.files import write_atomically
from bnnp.plots import save_figure
from bnnp.tasks.datasets.images import Images
from bnnp.tasks.source import TaskSource
from bnnp.tasks.task import Task
from common import model_file, train
from harness import Run
from score_tables import markdown_table

SEED = 0
SHARES = (0.01, 0.05, 0.2, 0.5)
FINE = 100
UNSEEN = "#9ecae1"
SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "invented": True,
        "hidden": (8, 8),
        "attentive": True,
        "pixels": 60,
        "context_count": (0, 30),
        "kl_weight": 1.0,
        "samples": 2,
        "episodes": [{"steps": 3, "learning_rate": (1e-3, 1e-4)}],
        "tests": 2,
        "drawn": 16,
    },
    "small": {  # a few pixels of each image, and contexts from none on, so that what the prior draws is trained for
        "invented": False,
        "hidden": (48, 48, 48),
        "attentive": True,
        "pixels": 180,
        "context_count": (0, 90),
        "kl_weight": 0.1,
        "samples": 10,
        "episodes": [{"steps": 11_000, "learning_rate": (1e-3, 2e-5)}],
        "tests": 32,
        "drawn": 200,
    },
    "paper": {
        "invented": False,
        "hidden": (64, 64, 64, 64),
        "attentive": True,
        "pixels": 784,
        "context_count": (8, 470),
        "kl_weight": 1.0,
        "samples": 16,
        "episodes": [
            {"steps": 250_000, "learning_rate": (5e-4, 1e-5)},
            {"steps": 250_000, "learning_rate": (5e-5, 1e-6)},
        ],
        "recipe": "paper",
        "tests": 64,
        "drawn": 200,
    },
}


def runs(scale: str) -> dict[str, Run]:
    return {"digits": Run(learn, SCALES[scale])}


@dataclass(frozen=True)
class SomePixels(TaskSource):
    """Images of which a draw has some pixels only, chosen anew each time."""

    images: Images = field(repr=False)
    pixels: int

    @property
    def in_size(self) -> int:
        return 2

    @property
    def out_size(self) -> int:
        return 1

    def draw(self, count: int, generator: torch.Generator) -> list[Task]:
        drawn = self.images.draw(count, generator)
        return [task.take(torch.randperm(len(task), generator=generator)[: self.pixels]) for task in drawn]


def images(split: str, invented: bool) -> Images:
    """MNIST, or bars at random angles, for trying out."""
    if not invented:
        return bnnp.tasks.mnist(split)
    random = np.random.default_rng(split == "test")
    x, y = np.meshgrid(np.linspace(-1, 1, 28), np.linspace(-1, 1, 28))
    angles = random.uniform(0, np.pi, 40)
    off = np.abs(np.cos(angles)[:, None, None] * x + np.sin(angles)[:, None, None] * y)
    pixels = (255 * np.clip(1.5 - 6 * off, 0, 1)).astype(np.uint8)
    return Images(split, 28, False, tuple(range(10)), pixels, np.arange(40) % 10, np.arange(40))


def learn(
    invented: bool,
    hidden: tuple[int, ...],
    attentive: bool,
    pixels: int,
    context_count: tuple[int, int],
    kl_weight: float,
    samples: int,
    episodes: list[dict[str, Any]],
    tests: int,
    drawn: int,
    folder: Path,
    recipe: str = "default",
) -> dict[str, Any]:
    """Train, keep the model, complete test images, and compare what the prior draws with real digits."""
    training, test = images("train", invented), images("test", invented)
    make = bnnp.AttBNNP if attentive else bnnp.BNNP
    model = make(2, 1, hidden, "relu", "unitwise", bnnp.Bernoulli(), seed=SEED)
    for number, episode in enumerate(episodes):
        train(
            model,
            SomePixels(training, pixels),
            folder,
            "digits",
            recipe=recipe,
            objective=bnnp.objectives.PPAVI(samples, kl_weight=kl_weight),
            context_share=bnnp.tasks.ContextCount(*context_count),
            seed=SEED + number,
            **episode,
        )
    return {
        "completions": [_completed(model, test[i], i) for i in range(tests)],
        "nearest": nearest(model, training, test, drawn),
    }


def seen_pixels(task: Task, share: float, seed: int) -> torch.Tensor:
    """A random share of the pixels. Larger shares contain the smaller ones."""
    order = torch.randperm(len(task), generator=torch.Generator().manual_seed(seed))
    return order[: max(1, round(share * len(task)))]


def _completed(model: bnnp.BNNP, task: Task, seed: int) -> list[dict[str, float]]:
    """For every share of seen pixels, how the unseen ones are predicted."""
    rows = []
    for share in SHARES:
        seen = seen_pixels(task, share, seed)
        unseen = np.setdiff1d(np.arange(len(task)), seen)
        pred = model.condition(task.x[seen], task.y[seen], num_samples=100, seed=seed).predict(task.x[unseen])
        truth = task.y.numpy()[unseen]
        rows.append(
            {
                "log density": float(pred.log_prob(truth).mean()),
                "absolute error": float(np.abs(pred.mean - truth).mean()),
                "spread": float(pred.function_std.mean()),
            }
        )
    return rows


def nearest(model: bnnp.BNNP, training: Images, test: Images, count: int) -> dict[str, dict[str, float]]:
    """Distance to the most similar of 10,000 training images, a pixel, and how many digits these are.

    Real test digits are what a perfect prior would have.
    """
    some = training.draw(min(10_000, len(training)), torch.Generator().manual_seed(1))
    known = torch.stack([task.y[:, 0] for task in some]).float()
    labels = [task.name.split()[-1] for task in some]
    standard = bnnp.BNNP(2, 1, model.network.sizes[1:-1], "relu", likelihood=bnnp.Bernoulli(), seed=0)
    shown = {"test digits": torch.stack([test[i % len(test)].y[:, 0] for i in range(count)])}
    for name, one in (("learned prior", model), ("standard prior", standard)):
        values = [f(training.coordinates)[:, 0] for f in one.prior.functions(count, seed=1)]
        shown[name] = torch.from_numpy(np.stack(values))
    found = {}
    for name, values in shown.items():
        distance, place = torch.cdist(values.float(), known).min(1)
        found[name] = {
            "distance": float((distance.square() / known.shape[1]).mean().sqrt()),
            "digits": len({labels[int(i)] for i in place}),
        }
    return found


# --- the report ------------------------------------------------------------------------------------------------------


def report(scale: str, results: Mapping[str, Any], folder: Path) -> list[Path]:
    found = results["digits"]
    names = list(found["completions"][0][0])
    rows = []
    for number, share in enumerate(SHARES):
        values = np.array([[one[number][name] for name in names] for one in found["completions"]])
        errors = values.std(0, ddof=1) / np.sqrt(len(values))
        rows.append([f"{share:.0%}", *(f"{m:.3f} ± {e:.3f}" for m, e in zip(values.mean(0), errors, strict=True))])
    text = "Unseen pixels of test images, by the share that is seen:\n\n"
    text += markdown_table(["seen", *names], rows)
    text += (
        "\nThe most similar of 10,000 training images (root mean square a pixel), and how many digits these are:\n\n"
    )
    text += markdown_table(
        ["", "distance", "digits"],
        [[name, f"{one['distance']:.3f}", str(one["digits"])] for name, one in found["nearest"].items()],
    )
    model, test = bnnp.load(model_file(folder, "digits")), images("test", SCALES[scale]["invented"])
    return [
        write_atomically(folder / "table.md", text),
        save_figure(_prior(model, test), folder / "prior.png"),
        save_figure(_completions(model, test), folder / "completions.png"),
    ]


def _prior(model: bnnp.BNNP, source: Images) -> Figure:
    """Functions of the prior at 28 x 28 places; and the first three of them at 100 x 100."""
    functions = model.prior.functions(16, seed=0)
    figure = Figure(figsize=(12, 3.3), layout="constrained")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=(1, 2.9))[0]
    for axes, function in zip(left.subplots(4, 4).ravel(), functions, strict=True):
        _show(axes, source.to_image(function(source.coordinates)))
    left.suptitle(f"{source.side} x {source.side}", fontsize=9)
    for axes, function in zip(right.subplots(1, 3), functions, strict=False):
        _show(axes, source.to_image(function(bnnp.tasks.pixel_grid(FINE)), side=FINE))
    right.suptitle(f"the first three, at {FINE} x {FINE}", fontsize=9)
    return figure


def _completions(model: bnnp.BNNP, source: Images) -> Figure:
    """Two test images, completed from more and more pixels."""
    columns = ("full", "context", "mean", "std", "sample", "sample", "sample")
    figure = Figure(figsize=(1.2 * 2 * len(columns), 1.3 * len(SHARES)), layout="constrained")
    panels = figure.subplots(len(SHARES), 2 * len(columns))
    for block in range(2):
        task = source[18 * (1 - block)]
        for row, share in enumerate(SHARES):
            seen = seen_pixels(task, share, block)
            pred = model.condition(task.x[seen], task.y[seen], num_samples=100, seed=block).predict(task.x)
            context = np.full((len(task), 1), np.nan)
            context[seen] = task.y[seen]
            shown = (task.y.numpy(), context, pred.mean, pred.function_std, *pred.samples[:3])
            for column, values in enumerate(shown):
                axes = panels[row, block * len(columns) + column]
                _show(axes, source.to_image(values), "magma" if column == 3 else "gray", 0.5 if column == 3 else 1.0)
                if row == 0:
                    axes.set_title(columns[column], fontsize=8)
            panels[row, block * len(columns)].set_ylabel(f"{share:.0%}", fontsize=8)
    return figure


def _show(axes: Any, image: np.ndarray, colours: str = "gray", limit: float = 1.0) -> None:
    axes.set_facecolor(UNSEEN)
    axes.imshow(image, cmap=colours, vmin=0, vmax=limit)
    axes.set_xticks([])
    axes.set_yticks([])
