"""Few data sets

Takeaway: with few data sets let `bnnp.learn` decide. It then leaves the prior at its start, which is fitted in closed
form. To train everything on three or six data sets gives intervals that are far too narrow. To train half of the
prior keeps them wider, at about twice the error. With three data sets nothing gives intervals to rely on, with six
they are still too narrow, and with twelve they held.

    python examples/few_data_sets.py OUT_FOLDER
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer
from matplotlib.figure import Figure

import bnnp

SCORES = {"error": "Error (root mean square)", "within": "Share of hidden points within 90 % intervals"}


def site(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A simulated site: a wave of its own height and delay about a common trend, 20 measurements with noise 0.1."""
    x = generator.uniform(-2, 2, size=(20, 1))
    height, delay = generator.normal([1, 0], [0.3, 0.4])
    return x, 0.5 * x + height * np.sin(3 * x - delay) + generator.normal(0, 0.1, x.shape)


def untrained() -> bnnp.BNNP:
    return bnnp.BNNP(1, 1, (32, 32), "silu", last_layer="likelihood", dtype=torch.float64, seed=0)


def in_closed_form(tasks: bnnp.tasks.Collection, steps: int) -> bnnp.BNNP:
    return bnnp.learn(untrained(), tasks, progress=False, seed=0).model


def train_everything(tasks: bnnp.tasks.Collection, steps: int, learnability: float = 1.0) -> bnnp.BNNP:
    model = untrained()
    model.set_prior_learnability(learnability)
    bnnp.fit(model, tasks, steps=steps, progress=False, seed=0)
    return model


def train_half(tasks: bnnp.tasks.Collection, steps: int) -> bnnp.BNNP:
    return train_everything(tasks, steps, learnability=0.5)


WAYS = {"bnnp.learn": in_closed_form, "train everything": train_everything, "train half of the prior": train_half}


def scores(model: bnnp.BNNP, new: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """Of hidden points: error, and the share within their 90 % intervals."""
    errors, within = [], []
    for x, y in new:
        pred = model.condition(x[:5], y[:5], num_samples=32, seed=0).predict(x[5:])
        low, high = pred.interval(0.9)
        errors.append(np.square(pred.mean - y[5:]))
        within.append((low <= y[5:]) & (y[5:] <= high))
    return {"error": float(np.sqrt(np.mean(errors))), "within": float(np.mean(within))}


def main(folder: Annotated[Path, typer.Argument()] = Path("few_data_sets"), quick: bool = False) -> None:
    sizes, repeats, steps = ((3,), 1, 20) if quick else ((3, 6, 12), 2, 600)
    new = [site(np.random.default_rng([1, i])) for i in range(4 if quick else 30)]
    rows = []
    for size in sizes:
        for repeat in range(repeats):  # with other sites to learn from
            tasks = bnnp.tasks.from_arrays([site(np.random.default_rng([0, repeat, i])) for i in range(size)])
            for name, learn in WAYS.items():
                rows.append({"data sets": size, "way": name, **scores(learn(tasks, steps), new)})
    table = pd.DataFrame(rows).pivot_table(list(SCORES), "way", "data sets", sort=False)
    print(f"{len(new)} new sites, 5 points of each known; means of {repeats} repeats.")
    print("No error can be below the noise, 0.1.")
    for kind, words in SCORES.items():
        print(f"\n{words}")
        print(table[kind].round(2).to_string())
    bnnp.plots.save_figure(figure(table), folder / "few_data_sets.png")


def figure(table: pd.DataFrame) -> Figure:
    drawing = Figure(figsize=(8, 3.2), layout="constrained")
    panels = drawing.subplots(1, 2)
    for panel, kind, goal in zip(panels, SCORES, (0.1, 0.9), strict=True):
        panel.plot(table[kind].T, "o-", label=list(table.index))
        panel.axhline(goal, color="0.5", linestyle="--")
        panel.set(xlabel="data sets to learn from", ylim=(0, None))
    panels[0].set_ylabel("error of hidden points")
    panels[1].set_ylabel("within 90 % intervals")
    panels[1].legend(fontsize=8)
    return drawing


if __name__ == "__main__":
    typer.run(main)
