"""A look at the data sets of `docs/data.md`: some tasks of each in one figure.

    BNNP_DATA=FOLDER python examples/data_sets.py ERA5_FILE... --out docs/figures/data_sets.png

Files of ERA5 are those of the Climate Data Store; without any, the folder `era5` of BNNP_DATA or of the cache is read.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

import bnnp
from bnnp.plots import save_figure


def heartbeats(axes: Axes) -> None:
    for task in bnnp.tasks.ecg().draw(3, torch.Generator().manual_seed(0)):
        axes.plot(task.x, task.y, lw=1)
    axes.set(title="ecg: three tasks", xlabel="seconds", ylabel="voltage (scaled)")


def digits(axes: Axes) -> None:
    source = bnnp.tasks.mnist("test")
    image = torch.cat([torch.from_numpy(source.to_image(source[i].y)) for i in range(3)], dim=1)
    axes.imshow(image, cmap="gray_r", extent=(-1, 5, -1, 1))
    axes.set(title="mnist: three tasks", xticks=[], yticks=[-1, 1])


def abalones(axes: Axes) -> None:
    test = bnnp.tasks.abalone("test")
    for task in bnnp.tasks.abalone("train").tasks:
        axes.plot(task.x[:, 0], task.y, ".", ms=2, alpha=0.4, label=task.name)
    axes.plot(test.splits[0].context.x[:, 0], test.splits[0].context.y, "k.", ms=2, label="infant, context")
    axes.set(title="abalone: one of seven inputs", xlabel="length / 200 mm", ylabel="rings")
    axes.legend(markerscale=4, fontsize=7)


def cells(axes: Axes) -> None:
    for task in [*bnnp.tasks.paul15("train").tasks[::3], bnnp.tasks.paul15("test")[0]]:
        axes.plot(task.x[:, 0], task.y, ".", ms=3, label=task.name)
    axes.set(title="paul15: one of 100 inputs", xlabel="first component", ylabel="pseudotime")
    axes.legend(markerscale=3, fontsize=7)


def precipitation(maps: list[Axes], files: list[Path]) -> None:
    tasks = bnnp.tasks.era5(files=files or None, num_test=0)
    wettest = sorted(tasks.tasks, key=lambda task: -float(task.y.mean()))
    for axes, task in zip(maps, (wettest[0], wettest[len(wettest) // 4]), strict=True):
        values = axes.scatter(task.x[:, 0], task.x[:, 1], c=task.y[:, 0], s=26, marker="s", cmap="viridis")
        axes.set(title=f"era5: {task.name} UTC", xlabel="longitude", ylabel="latitude")
        plt.colorbar(values, ax=axes, label="precipitation, mm")


def main(files: list[Path], out: Path) -> None:
    figure, panels = plt.subplots(2, 3, figsize=(11, 6), layout="constrained")
    for draw, axes in zip((heartbeats, digits, abalones, cells), panels.flat, strict=False):
        draw(axes)
    precipitation(list(panels.flat[4:]), files)
    print(f"wrote {save_figure(figure, out)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--out", type=Path, default=Path("data_sets.png"))
    main(**vars(parser.parse_args()))
