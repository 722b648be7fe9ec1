"""How time and memory of a training step grow with the size of everything, as a table and a figure.

    python benchmarks/growth.py docs/figures/growth.png

About ten minutes on two quiet cores. Around [1, 48, 48, 1], unitwise prior, 16 samples, 5 tasks of 60 points with 20
points of context, one size is changed at a time. Every point is the median of three steps in a process of its own.
"""

import statistics
import sys
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np

from bnnp.bench import Setting, measure_in_process

CENTRE = Setting("centre", (1, 48, 48, 1), "unitwise", False, 16, 5, 60, 20)
AXES = {
    "context points": ([5, 10, 20, 40, 80, 160, 320, 640, 1280], lambda n: replace(CENTRE, context=n, points=n + 40)),
    "width": ([8, 16, 32, 64, 128, 256], lambda w: replace(CENTRE, sizes=(1, w, w, 1))),
    "hidden layers": ([1, 2, 4, 8, 16], lambda depth: replace(CENTRE, sizes=(1, *[48] * depth, 1))),
    "samples": ([1, 4, 16, 64, 256, 1024], lambda k: replace(CENTRE, samples=k)),
    "tasks in a batch": ([1, 5, 20, 80, 320], lambda t: replace(CENTRE, tasks=t)),
}


def main(path: str) -> None:
    figure, panels = plt.subplots(2, len(AXES), figsize=(15, 5), layout="constrained", sharey="row")
    print("| what grows | size | seconds per step | peak memory, MB |\n|---|---|---|---|")
    for (name, (sizes, setting)), time_panel, memory_panel in zip(AXES.items(), panels[0], panels[1], strict=True):
        seconds, megabytes = [], []
        for size in sizes:
            answer = measure_in_process(setting(size), ["library"], 3)
            seconds.append(statistics.median(answer["seconds"]["library"]))
            megabytes.append(answer["peak_megabytes"])
            print(f"| {name} | {size} | {seconds[-1]:.3g} | {megabytes[-1]:.0f} |", flush=True)
        time_panel.loglog(sizes, seconds, "o-", color="tab:blue")
        memory_panel.loglog(sizes, megabytes, "o-", color="tab:green")
        steps = np.diff(np.log(seconds[-3:])) / np.diff(np.log(sizes[-3:]))
        time_panel.set_title(f"{name}\nlast slope {steps[-1]:.1f}", fontsize=10)
        memory_panel.set_xlabel(name)
    panels[0][0].set_ylabel("seconds per step")
    panels[1][0].set_ylabel("peak memory, MB")
    figure.savefig(path, dpi=110)
    print(f"wrote {path}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "growth.png")
