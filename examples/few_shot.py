"""Few-shot classification: a BNNP with a categorical likelihood on tasks of three clouds of points in the plane.

    python examples/few_shot.py [OUT_FOLDER] [--steps N]

Each task has three classes: a class has its own centre, N(0, 1) in both coordinates, and is narrow or wide. Meta-learns
on such tasks, then sees 1, 5 and 10 labelled points per class of new ones. Prints accuracy, log-density and calibration
beside the nearest centroid and the Bayes-optimal predictions, which this generator knows; writes `few_shot.png` and the
model. About five minutes on one core. `docs/notes/other_outputs.md` shows what comes out.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

import bnnp
from bnnp.plots import save_figure
from bnnp.tasks.source import TaskSource
from bnnp.tasks.task import Task

CLASSES = 3
WIDTHS = (0.25, 0.8)
"""Standard deviations of a narrow and of a wide class, each with probability one half."""
SHOTS = (1, 5, 10)
COLOURS = np.array([[0.12, 0.47, 0.71], [0.85, 0.37, 0.01], [0.20, 0.63, 0.17]])

Classifier = Callable[[Task, np.ndarray], np.ndarray]
"""Class probabilities (points, classes) at new inputs, given a context."""


@dataclass(frozen=True)
class Clouds(TaskSource):
    """Three Gaussian clouds per task. Labels are drawn for each point by itself, all classes alike.

    points: of a task.
    """

    points: int = 90

    @property
    def in_size(self) -> int:
        return 2

    @property
    def out_size(self) -> int:
        return 1

    def draw(self, count: int, generator: torch.Generator) -> list[Task]:
        return [self._draw_one(generator) for _ in range(count)]

    def _draw_one(self, generator: torch.Generator) -> Task:
        centres = torch.randn(CLASSES, 2, generator=generator, dtype=torch.float64)
        widths = torch.tensor(WIDTHS, dtype=torch.float64)[torch.randint(2, (CLASSES,), generator=generator)]
        labels = torch.randint(CLASSES, (self.points,), generator=generator)
        noise = torch.randn(self.points, 2, generator=generator, dtype=torch.float64)
        return Task(centres[labels] + widths[labels, None] * noise, labels[:, None].double())


# --- three ways to predict classes -----------------------------------------------------------------------------------


def by_model(model: bnnp.BNNP) -> Classifier:
    return lambda context, x: model.condition(context.x, context.y, num_samples=200, seed=0).predict(x).mean


def by_centroid(context: Task, x: np.ndarray) -> np.ndarray:
    """Softmax of the distances to the centroids, with the one width that explains the average class."""
    points, labels = context.x.numpy(), context.y.numpy()[:, 0]
    centroids = np.stack([points[labels == label].mean(0) for label in range(CLASSES)])
    variance = np.mean(np.square(WIDTHS))
    return normalised(-np.square(x[:, None] - centroids).sum(-1) / (2 * variance))


def bayes_optimal(context: Task, x: np.ndarray) -> np.ndarray:
    """The exact class probabilities: centres are Gaussian given the width, and the two widths are summed over."""
    points, labels = context.x.numpy(), context.y.numpy()[:, 0]
    columns = [log_density_of_class(points[labels == label], x) for label in range(CLASSES)]
    return normalised(np.stack(columns, axis=-1))


def log_density_of_class(seen: np.ndarray, x: np.ndarray) -> np.ndarray:
    """`log sum_w p(w) p(seen, x | w) / sum_w p(w) p(seen | w)` for each row of `x`."""
    together = [np.vstack([seen, row]) for row in x]
    joint = np.array([[log_evidence(points, width) for width in WIDTHS] for points in together])
    alone = np.array([log_evidence(seen, width) for width in WIDTHS])
    return np.logaddexp(*joint.T) - np.logaddexp(*alone)


def log_evidence(points: np.ndarray, width: float) -> float:
    """Log-density of points about one centre that is N(0, I): by the determinant and inverse of `w^2 I + 1 1^T`."""
    n, variance = len(points), width**2
    squares = np.square(points).sum() / variance - np.square(points.sum(0)).sum() / (variance * (variance + n))
    log_determinant = (n - 1) * np.log(variance) + np.log(variance + n)
    return float(-0.5 * squares - log_determinant - n * np.log(2 * np.pi))


def normalised(log_weights: np.ndarray) -> np.ndarray:
    return np.exp(log_weights - np.logaddexp.reduce(log_weights, axis=-1, keepdims=True))


# --- scores ----------------------------------------------------------------------------------------------------------


def few_of(task: Task, shots: int) -> tuple[Task, Task]:
    """The first points of each class as context, and the last 50 points, which are never in it, as target."""
    labels = task.y[:-50, 0]
    rows = torch.cat([(labels == label).nonzero()[:shots, 0] for label in range(CLASSES)])
    return task.take(rows), task.take(torch.arange(len(task) - 50, len(task)))


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, bins: int = 10) -> float:
    """Expected calibration error: how far accuracy is from confidence, over bins of confidence."""
    confidence, right = probabilities.max(-1), probabilities.argmax(-1) == labels
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs((right - confidence)[place == b].sum()) for b in range(bins)]
    return float(sum(gaps) / len(labels))


def table_of(classifiers: dict[str, Classifier], tasks: list[Task]) -> pd.DataFrame:
    rows = []
    for shots in SHOTS:
        parts = [few_of(task, shots) for task in tasks]
        labels = np.concatenate([target.y.numpy()[:, 0].astype(int) for _, target in parts])
        for name, classify in classifiers.items():
            p = np.concatenate([classify(context, target.x.numpy()) for context, target in parts])
            density = np.log(p[np.arange(len(labels)), labels]).reshape(len(tasks), -1).mean(-1)
            rows.append(
                {
                    "labelled points per class": shots,
                    "predictions": name,
                    "accuracy": (p.argmax(-1) == labels).mean(),
                    "log-density": density.mean(),
                    "standard error": density.std(ddof=1) / np.sqrt(len(tasks)),
                    "calibration error": calibration_error(p, labels),
                }
            )
    return pd.DataFrame(rows)


# --- the figure ------------------------------------------------------------------------------------------------------


def figure_of(model: bnnp.BNNP, task: Task) -> Figure:
    """A column a number of labelled points; rows: the model's classes, its entropy, and the Bayes-optimal classes."""
    axis = np.linspace(-3, 3, 61)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    figure = Figure(figsize=(8.6, 8.2), layout="constrained")
    axes = figure.subplots(3, len(SHOTS))
    for column, shots in enumerate(SHOTS):
        context, _ = few_of(task, shots)
        p = by_model(model)(context, grid)
        draw_image(axes[0, column], mixed_colours(p))
        entropies = draw_image(axes[1, column], entropy(p))
        draw_image(axes[2, column], mixed_colours(bayes_optimal(context, grid)))
        for panel, title in zip(axes[:, column], ("model", "entropy of the model", "Bayes-optimal"), strict=True):
            colours = COLOURS[context.y[:, 0].long()]
            panel.scatter(*context.x.T, c=colours, edgecolors="black", linewidths=0.8, s=30)
            panel.set_title(f"{title}, {shots} per class", fontsize=9)
            panel.set(xlim=(-3, 3), ylim=(-3, 3), xticks=[], yticks=[])
    figure.colorbar(entropies, ax=axes, shrink=0.3, label="entropy, nats")
    return figure


def draw_image(panel: Axes, values: np.ndarray) -> AxesImage:
    """Values or colours on the grid, row by row from below."""
    side = round(np.sqrt(len(values)))
    image = values.reshape(side, side, *values.shape[1:])
    return panel.imshow(image, origin="lower", extent=(-3, 3, -3, 3), vmin=0, vmax=np.log(CLASSES))


def entropy(p: np.ndarray) -> np.ndarray:
    return -(p * np.log(np.maximum(p, 1e-12))).sum(-1)


def mixed_colours(p: np.ndarray) -> np.ndarray:
    """Colours of the classes mixed by their probabilities, the paler the less is known."""
    certainty = 1 - entropy(p)[:, None] / np.log(CLASSES)
    return np.clip(1 - (0.15 + 0.85 * certainty) * (1 - p @ COLOURS), 0, 1)


def trained(steps: int) -> bnnp.BNNP:
    likelihood = bnnp.Categorical(CLASSES)
    model = bnnp.BNNP(in_size=2, out_size=CLASSES, hidden=(32, 32), likelihood=likelihood, seed=0)
    bnnp.fit(
        model,
        Clouds(),
        objective=bnnp.objectives.PPAVI(num_samples=8),
        steps=steps,
        batch_size=8,
        context_share=bnnp.tasks.ContextCount(3, 30),
        seed=0,
    )
    return model


def main(folder: Path, steps: int = 6000, num_tasks: int = 100) -> pd.DataFrame:
    model = trained(steps)
    tasks = Clouds(points=150).draw(num_tasks, torch.Generator().manual_seed(1))
    ways = {"model": by_model(model), "nearest centroid": by_centroid, "Bayes-optimal": bayes_optimal}
    table = table_of(ways, tasks)
    files = [
        model.save(folder / "few_shot.bnnp"),
        save_figure(figure_of(model, tasks[7]), folder / "few_shot.png"),
    ]
    print(f"50 new points of each of {num_tasks} new tasks")
    print(table.round(3).to_string(index=False))
    for file in files:
        print(f"wrote {file}")
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("few_shot"))
    parser.add_argument("--steps", type=int, default=6000)
    arguments = parser.parse_args()
    main(arguments.folder, arguments.steps)
