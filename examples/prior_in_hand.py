"""A prior one can hold

Takeaway: the learned prior is an object. Draw functions from it to see what it believes, give it to the no-U-turn
sampler to check the fast posterior, and freeze a part of it when you train on.

    python examples/prior_in_hand.py OUT_FOLDER
"""

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from matplotlib.figure import Figure

import bnnp

X = np.array([[-1.5], [-0.6], [0.1], [0.9], [1.6]])
GRID = np.linspace(-2, 2, 81)[:, None]


def wave(x: np.ndarray) -> np.ndarray:
    return np.sin(2.5 * x) + 0.3 * x


def main(folder: Annotated[Path, typer.Argument()] = Path("prior_in_hand"), quick: bool = False) -> None:
    # A model that ships. It has learned from smooth random functions, draws of a Gaussian process.
    model = bnnp.load("zoo:gp")
    prior = model.prior
    drawn = [f(GRID) for f in prior.functions(5, seed=0)]
    print(f"Five functions before any data: at x = 0 they are {[round(float(f[40, 0]), 1) for f in drawn]}.")
    print(f"The prior is a distribution over {sum(w.numel() for w in prior.sample(1, seed=0))} weights.")

    # The fast posterior of five points: one pass.
    began = time.process_time()
    fast = model.condition(X, wave(X), num_samples=200, seed=0).predict(GRID)
    seconds = time.process_time() - began

    # The same prior, the same points, by a Markov chain: slow, and exact if one waits long enough.
    began = time.process_time()
    samples, warmup, chains = (8, 4, 2) if quick else (200, 200, 2)
    post = bnnp.infer(model, X, wave(X), method="nuts", num_samples=samples, warmup=warmup, chains=chains, seed=0)
    slow = post.predict(GRID)
    print(f"One pass took {seconds:.1f} s of the processor, the no-U-turn sampler {time.process_time() - began:.0f} s.")
    print(f"Their means are at most {np.abs(fast.mean - slow.mean).max():.2f} apart.")
    print(f"The largest standard deviations are {fast.std.max():.2f} and {slow.std.max():.2f}.")
    print(
        f"What the chain says of itself: R-hat {post.diagnostics.rhat:.2f}, {post.diagnostics.ess:.0f} effective draws."
    )

    # Train on, on ten data sets of another kind, while the first half of the prior stays as it is.
    generator = np.random.default_rng(0)
    data = []
    for _ in range(10):
        x = generator.uniform(-2, 2, size=(20, 1))
        data.append(
            (x, generator.normal(2, 0.2) * np.cos(x + generator.normal(0, 0.2)) + generator.normal(0, 0.1, x.shape))
        )
    before = prior.sample(1, seed=0)
    model.set_prior_learnability(0.5)
    bnnp.fit(model, bnnp.tasks.from_arrays(data), steps=10 if quick else 300, progress=False, seed=0)
    pairs = zip(before, prior.sample(1, seed=0), strict=True)
    same = sum(int(((old - new).abs() < 1e-5).sum()) for old, new in pairs)  # to rounding
    print(f"After training on, with half of the prior frozen, {same} weights of the same draw are what they were.")

    bnnp.plots.save_figure(figure(drawn, fast, slow), folder / "prior_in_hand.png")


def figure(drawn: list[np.ndarray], fast: bnnp.Predictive, slow: bnnp.Predictive) -> Figure:
    drawing = Figure(figsize=(9, 3), layout="constrained")
    panels = drawing.subplots(1, 3, sharey=True)
    panels[0].set_title("functions before any data", fontsize=10)
    for values in drawn:
        panels[0].plot(GRID, values, linewidth=1)
    for panel, pred, title in zip(panels[1:], (fast, slow), ("one pass", "no-U-turn sampler"), strict=True):
        panel.fill_between(
            GRID[:, 0], (pred.mean - 1.64 * pred.std)[:, 0], (pred.mean + 1.64 * pred.std)[:, 0], alpha=0.3
        )
        panel.plot(GRID, pred.mean)
        panel.plot(X, wave(X), "ko", markersize=4)
        panel.set_title(title, fontsize=10)
    return drawing


if __name__ == "__main__":
    typer.run(main)
