"""The model family at equal training time, on Gaussian process tasks, and the BNAM's lack of consistency (App. E.2).

OMP_NUM_THREADS=1 python benchmarks/family.py run --minutes 5 --out family.json
python benchmarks/family.py draw family_BNAM.bnnp family_BNNP.bnnp docs/figures/bnam_consistency.png
"""

import argparse
import json
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import bnnp
from bnnp._random import child
from bnnp.models import AmortisedModel
from bnnp.tasks.split import context_size, random_split

MODELS = {
    "BNNP": lambda: bnnp.BNNP(1, 1, (32, 32), "silu", likelihood=bnnp.Gaussian(0.05)),
    "AttBNNP": lambda: bnnp.AttBNNP(1, 1, (32, 32), "silu", likelihood=bnnp.Gaussian(0.05)),
    "BNAM": lambda: bnnp.BNAM(1, 1, 32, 1, 4, activation="silu", likelihood=bnnp.Gaussian(0.05)),
}
SOURCE = bnnp.tasks.gp(low=-2, high=2)


def trained(name: str, minutes: float) -> tuple[AmortisedModel, int]:
    """A model after so many minutes of CPU time; the number of steps is set by the time of the first thirty."""

    def fit(steps: int):
        return bnnp.fit(
            MODELS[name](),
            SOURCE,
            objective=bnnp.objectives.PPAVI(8),
            steps=steps,
            context_share=(0.05, 0.5),
            learning_rate=(2e-3, 5e-5),
            progress=False,
        )

    fit(3)
    started = time.process_time()
    fit(30)
    steps = max(10, round(60 * minutes / ((time.process_time() - started) / 30)))
    return fit(steps).model, steps


def run(options: argparse.Namespace) -> None:
    size = context_size((0.05, 0.5))
    tests = [random_split(task, size, child(2, i)) for i, task in enumerate(SOURCE.draw(32, child(3)))]
    rows = {}
    for name in options.models.split(","):
        model, steps = trained(name, options.minutes)
        model.save(f"{Path(options.out).with_suffix('')}_{name}.bnnp")
        scores = bnnp.evaluate(model, tests, num_samples=200, seed=0)
        rows[name] = {"steps": steps, **{k: scores[k] for k in ("pooled_lppd", "marginal_lppd", "joint_lppd", "mae")}}
        print(name, json.dumps(rows[name]), flush=True)
    Path(options.out).write_text(json.dumps(rows, indent=1))


def draw(options: argparse.Namespace) -> None:
    """Predictions on a grid, and on the same grid with x = 100 appended."""
    task = SOURCE.draw(1, child(4))[0]
    x, y = task.x[:12].numpy(), task.y[:12].numpy()
    grid = np.linspace(-2, 2, 100)[:, None]
    figure, panels = plt.subplots(2, 2, figsize=(8, 5), sharex=True, sharey=True, layout="constrained")
    for row, path in zip(panels, (options.bnam, options.bnnp), strict=True):
        model = bnnp.load(path)
        post = model.condition(x, y, num_samples=30)
        for panel, inputs in zip(row, (grid, np.vstack([grid, [[100.0]]])), strict=True):
            samples = post.predict(inputs).samples[:, :100, 0]
            panel.plot(grid, samples.T, color="tab:blue", alpha=0.3, lw=0.8)
            panel.plot(x, y, "o", color="tab:orange", ms=3)
        row[0].set_ylabel(type(model).__name__)
    panels[0][0].set_title("at 100 inputs")
    panels[0][1].set_title("the same 100, with x = 100 appended")
    panels[0][0].set_ylim(-3, 3)
    figure.savefig(options.figure, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runner = verbs.add_parser("run")
    runner.add_argument("--minutes", type=float, default=5.0)
    runner.add_argument("--models", default=",".join(MODELS))
    runner.add_argument("--out", required=True)
    runner.set_defaults(call=run)
    drawer = verbs.add_parser("draw")
    drawer.add_argument("bnam")
    drawer.add_argument("bnnp")
    drawer.add_argument("figure")
    drawer.set_defaults(call=draw)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
