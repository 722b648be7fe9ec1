"""Images from scattered pixels

Takeaway: an image is a data set too, whose points are pixels. From a fifth of the pixels of a digit the model fills
in the others, and says where it is unsure. Needs the MNIST files (see *Data sets of the paper*).

    python examples/image_completion.py OUT_FOLDER

Learns from the training images of binary 14 x 14 MNIST, then completes test images from 5 %, 20 % and 50 % of their
pixels. Prints the log-probability of the unseen pixels beside two baselines, and how the spread of the completions
shrinks. `--steps 3000`, with `OMP_NUM_THREADS=1`, is what `docs/notes/other_outputs.md` shows.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer
from matplotlib.figure import Figure

import bnnp
from bnnp.plots import save_figure
from bnnp.tasks.datasets.images import Images
from bnnp.tasks.task import Task

SIDE = 14
SHARES = (0.05, 0.2, 0.5)
COLUMNS = ("context", "mean", "std", "sample", "another", "truth")


@dataclass(frozen=True)
class Completion:
    """A test image, the pixels that were seen, and what the model makes of them."""

    task: Task
    seen: np.ndarray
    predictive: bnnp.Predictive

    @property
    def unseen(self) -> np.ndarray:
        return np.setdiff1d(np.arange(len(self.task)), self.seen)


def trained(source: Images, steps: int) -> bnnp.BNNP:
    model = bnnp.BNNP(in_size=2, out_size=1, hidden=(32, 32), likelihood=bnnp.Bernoulli(), seed=0)
    bnnp.fit(
        model,
        source,
        # with its full weight, the KL makes the posterior the prior, and short trainings do not get away from there
        objective=bnnp.objectives.PPAVI(num_samples=8, kl_weight=0.001),
        steps=steps,
        progress=False,
        batch_size=5,
        context_share=(0.05, 0.5),
        seed=0,
    )
    return model


def complete(model: bnnp.BNNP, task: Task, share: float, seed: int) -> Completion:
    """Condition on a random share of the pixels, predict all of them. Larger shares contain the smaller ones."""
    order = np.random.default_rng(seed).permutation(len(task))
    seen = order[: round(share * len(task))]
    posterior = model.condition(task.x[seen], task.y[seen], num_samples=100, seed=seed)
    return Completion(task, seen, posterior.predict(task.x))


def pixel_frequencies(source: Images) -> np.ndarray:
    """How often each pixel is set in the training images, (points, 1)."""
    images = source.draw(len(source), torch.Generator().manual_seed(0))
    return torch.stack([task.y for task in images]).mean(0).numpy()


def log_density(rates: np.ndarray, y: np.ndarray) -> float:
    """Mean log-probability a pixel under independent rates, kept from 0 and 1 as if one image more had told of each."""
    p = np.clip(rates, 1 / 60_002, 1 - 1 / 60_002)
    return float(np.log(np.where(y > 0.5, p, 1 - p)).mean())


def scores(done: Completion, frequencies: np.ndarray) -> dict[str, float]:
    """Of the unseen pixels."""
    y, unseen, predictive = done.task.y.numpy(), done.unseen, done.predictive
    constant = np.full_like(frequencies, frequencies.mean())
    return {
        "model": float(predictive.log_prob(y)[unseen].mean()),
        "frequency of each pixel": log_density(frequencies[unseen], y[unseen]),
        "constant rate": log_density(constant[unseen], y[unseen]),
        "wrong pixels": float(((predictive.mean[unseen] > 0.5) != (y[unseen] > 0.5)).mean()),
        "spread": float(predictive.function_std[unseen].mean()),
    }


def table_of(model: bnnp.BNNP, tasks: list[Task], frequencies: np.ndarray) -> pd.DataFrame:
    """A row a share of seen pixels: means over images, and the standard error of the model's log density."""
    rows = {}
    for share in SHARES:
        found = pd.DataFrame([scores(complete(model, task, share, i), frequencies) for i, task in enumerate(tasks)])
        rows[f"{share:.0%}"] = {**found.mean(), "standard error": found["model"].sem()}
    return pd.DataFrame.from_dict(rows, orient="index")


def draw_row(axes: np.ndarray, source: Images, done: Completion) -> None:
    predictive = done.predictive
    context = np.full((len(done.task), 1), np.nan)
    context[done.seen] = done.task.y[done.seen]
    samples = predictive.samples
    shown = (context, predictive.mean, predictive.function_std, samples[0], samples[1], done.task.y.numpy())
    for column, (panel, values) in enumerate(zip(axes, shown, strict=True)):
        panel.set_facecolor("#9ecae1")  # pixels that nobody has seen
        limit = 0.5 if column == 2 else 1.0
        panel.imshow(source.to_image(values), cmap="magma" if column == 2 else "gray", vmin=0, vmax=limit)
        panel.set_xticks([])
        panel.set_yticks([])


def figure_of(model: bnnp.BNNP, source: Images, tasks: list[Task]) -> Figure:
    """Two blocks of columns, one an image, a row a share of seen pixels."""
    width = len(COLUMNS)
    figure = Figure(figsize=(1.25 * width * len(tasks), 1.35 * len(SHARES) + 0.3), layout="constrained")
    axes = figure.subplots(len(SHARES), width * len(tasks))
    for block, task in enumerate(tasks):
        for row, share in enumerate(SHARES):
            draw_row(axes[row, width * block : width * (block + 1)], source, complete(model, task, share, block))
            axes[row, 0].set_ylabel(f"{share:.0%}")
        for panel, title in zip(axes[0, width * block :], COLUMNS, strict=False):
            panel.set_title(title, fontsize=9)
    return figure


def main(
    folder: Annotated[Path, typer.Argument()] = Path("image_completion"), steps: int = 2000, quick: bool = False
) -> None:
    train, test = (bnnp.tasks.mnist(split, side=SIDE, binary=True) for split in ("train", "test"))
    model = trained(train, 10 if quick else steps)
    num_images = 2 if quick else 60
    table = table_of(model, test.draw(num_images, torch.Generator().manual_seed(1)), pixel_frequencies(train))
    print(f"unseen pixels of {num_images} test images, by the share of pixels that is seen")
    print(table.round(4).T.to_string())
    model.save(folder / "image_completion.bnnp")
    save_figure(figure_of(model, test, [test[18], test[0]]), folder / "image_completion.png")


if __name__ == "__main__":
    typer.run(main)
