"""The model family at equal training time, on Gaussian process tasks.

OMP_NUM_THREADS=1 python benchmarks/family.py --minutes 5 --out family.json
"""

import argparse
import json
import time
from pathlib import Path

import bnnp
from bnnp._core.random import child
from bnnp.models import AmortisedModel
from bnnp.tasks.split import context_size, random_split

MODELS = {
    "BNNP": lambda: bnnp.BNNP(1, 1, (32, 32), "silu", likelihood=bnnp.Gaussian(0.05)),
    "AttBNNP": lambda: bnnp.AttBNNP(1, 1, (32, 32), "silu", likelihood=bnnp.Gaussian(0.05)),
    "BNAM": lambda: bnnp.BNAM(1, 1, bnnp.Transformer(32), activation="silu", likelihood=bnnp.Gaussian(0.05)),
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
            settings=bnnp.FitSettings(learning_rate=(2e-3, 5e-5)),
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--out", required=True)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
