"""A million points and a stream

Takeaway: a data set may have a million points, which go through in pieces, and a posterior takes in new points
without the old ones. Neither needs memory that grows. Here a few thousand points do as well as a million: try a part
before you take all.

    python examples/million_points.py OUT_FOLDER
"""

import resource
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from matplotlib.figure import Figure

import bnnp

PHASE = 1.0
"""Of the new sensor; those that taught had others."""


def surface(x: np.ndarray, phase: float) -> np.ndarray:
    """What a sensor would say at a place (two coordinates) without noise."""
    return np.sin(2 * x[:, :1] + phase) * np.cos(x[:, 1:] - phase)


def measured(count: int, phase: float, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x = generator.uniform(-2, 2, size=(count, 2))
    return x, surface(x, phase) + generator.normal(0, 0.2, size=(count, 1))


def learned(steps: int) -> bnnp.BNNP:
    """What sensors have in common, from 60 of them with 40 measurements each."""
    generator = np.random.default_rng(1)
    data = [measured(40, generator.uniform(0, 2 * np.pi), generator) for _ in range(60)]
    model = bnnp.BNNP(2, 1, (24, 24), "silu", last_layer="likelihood", seed=0)
    bnnp.fit(model, bnnp.tasks.from_arrays(data), steps=steps, progress=False, seed=0)
    return model


def error(post: bnnp.WeightPosterior) -> float:
    """Of the surface at 2000 places (root mean square)."""
    x = np.random.default_rng(2).uniform(-2, 2, size=(2000, 2))
    return float(np.sqrt(np.square(post.predict(x).mean - surface(x, PHASE)).mean()))


def main(folder: Annotated[Path, typer.Argument()] = Path("million_points"), quick: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    model = learned(20 if quick else 600)

    # A new sensor with a million measurements, on disk. They go through every layer in pieces of 16,384.
    count = 20_000 if quick else 1_000_000
    for name, values in zip("xy", measured(count, PHASE, np.random.default_rng(0)), strict=True):
        np.save(folder / f"{name}.npy", values)
    x, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "xy")
    print("   points   seconds   error of the surface   (seconds of the processor)")
    for points in (100, 10_000, count):
        began = time.process_time()
        whole = model.condition(x[:points], y[:points], num_samples=8, chunk_size=16_384, seed=0)
        print(f"{points:>9,} {time.process_time() - began:>9.1f}   {error(whole):.3f}")
    print(f"Memory of the process at the most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GB.")

    # A stream: 20 points at a time. An update needs nothing but the posterior, whose file keeps its size.
    updates = 5 if quick else 100
    first = post = model.condition(x[:20], y[:20], num_samples=8, seed=0)
    print("\n updates    points   error   file, kB")
    for update in range(updates + 1):
        if update in (0, 1, updates // 5, updates):
            size = post.save(folder / "stream.bnnp").stat().st_size / 1000
            print(f"{update:>8} {20 * (update + 1):>9,}   {error(post):.3f} {size:>10.0f}")
        if update < updates:
            new = slice(20 * (update + 1), 20 * (update + 2))
            post = post.update(x[new], y[new])
    anew = model.condition(x[: 20 * (updates + 1)], y[: 20 * (updates + 1)], num_samples=8, seed=0)
    print(f"With all these points at once the error is {error(anew):.3f}.")

    shown = {"20 points": first, f"after {updates} updates": post, f"{count:,} points": whole}
    bnnp.plots.save_figure(figure(shown), folder / "million_points.png")


def figure(posteriors: dict[str, bnnp.WeightPosterior]) -> Figure:
    axis = np.linspace(-2, 2, 41)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    images = {name: post.predict(grid).mean for name, post in posteriors.items()} | {"truth": surface(grid, PHASE)}
    drawing = Figure(figsize=(9, 2.6), layout="constrained")
    for panel, (name, values) in zip(drawing.subplots(1, 4), images.items(), strict=True):
        panel.imshow(values.reshape(41, 41), origin="lower", extent=(-2, 2, -2, 2), vmin=-1.2, vmax=1.2, cmap="RdBu_r")
        panel.set_title(name, fontsize=10)
    return drawing


if __name__ == "__main__":
    typer.run(main)
