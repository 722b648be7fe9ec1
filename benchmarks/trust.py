"""What `post.check()` finds: importance weights, simulations and surprise, on the models that ship and on tables.

    python benchmarks/trust.py                                     # zoo models: about five minutes on one core
    python benchmarks/trust.py --made                              # inference networks that were made right and wrong
    python benchmarks/trust.py ChickWeight.csv sleepstudy.csv      # tables: task first, output last, inputs between

Models of tables learn by `bnnp.learn` from all tasks but the last four, whose first half is then the known points.
"""

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import bnnp
from bnnp.evaluation import Trust
from bnnp.tasks import Task

TASKS, SIZES = 4, (5, 20)
ZOO = {"zoo:gp": "gp", "zoo:sawtooth": "sawtooth", "zoo:heaviside": "heaviside"}


def row(name: str, model: bnnp.BNNP, contexts: Sequence[Task]) -> str:
    began = time.process_time()
    found: list[Trust] = [model.condition(task.x, task.y).check() for task in contexts]
    seconds = (time.process_time() - began) / len(found)
    effective = [trust.effective for trust in found]
    k = ", ".join(f"{trust.pareto_k:.2f}" for trust in found)
    said = sum(trust.weights_say_something for trust in found)
    coverage = statistics.mean(trust.coverage for trust in found)
    unlikely = ", ".join(f"{trust.as_unlikely:.2f}" for trust in found)
    cells = (name, f"{min(effective):.0f} to {max(effective):.0f}", k, f"{said} of {len(found)}", f"{coverage:.2f}")
    return "| " + " | ".join([*cells, unlikely, f"{seconds:.1f}"]) + " |"


def of_zoo(name: str, source: str, size: int) -> list[Task]:
    generator = torch.Generator().manual_seed(0)
    drawn = getattr(bnnp.tasks, source)().draw(TASKS, generator)
    return [task.take(torch.randperm(len(task), generator=generator)[:size]) for task in drawn]


def of_table(path: Path) -> tuple[bnnp.BNNP, list[Task]]:
    task, *x, y = path.read_text().splitlines()[0].split(",")
    tasks = bnnp.tasks.from_table(path, task=task, x=x, y=[y]).tasks
    known = bnnp.tasks.from_arrays([(one.x, one.y) for one in tasks[:-TASKS]])
    model = bnnp.BNNP(len(x), 1, (32, 32), "silu", last_layer="likelihood", dtype=torch.float64, seed=0)
    learned = bnnp.learn(model, known, minutes=1, progress=False)
    print(path.stem, *learned.decisions, sep="\n", file=sys.stderr)
    return model, [one.take(slice(0, len(one) // 2)) for one in tasks[-TASKS:]]


def made(log_pseudo_noise: float) -> tuple[bnnp.BNNP, list[Task]]:
    """A model whose inference network says the same of all points, and data sets drawn from its prior."""
    x, generator = np.linspace(-1, 1, 6)[:, None], np.random.default_rng(0)
    model = bnnp.BNNP(1, 1, (4,), likelihood=bnnp.Gaussian(1.0), last_layer="likelihood", dtype=torch.float64, seed=0)
    with torch.no_grad():
        list(model.layers[0].parameters())[-1].zero_()[-1] = log_pseudo_noise
    return model, [Task.of(x, f(x) + generator.normal(size=x.shape)) for f in model.prior.functions(TASKS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="*")
    parser.add_argument("--made", action="store_true")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore", bnnp.ExtrapolationWarning)
    heads = ("model, points", "effective of 1000", "Pareto k", "say something", "coverage", "as unlikely", "CPU s")
    print("| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), sep="\n")
    for path in chosen.tables:
        model, contexts = of_table(path)
        print(row(f"{path.stem}, half", model, contexts), flush=True)
    if chosen.made:
        print(row("knows nothing and says so, 6", *made(5.0)), flush=True)
        print(row("wrong and sure, 6", *made(-5.0)), flush=True)
    elif not chosen.tables:
        for name, source in ZOO.items():
            for size in SIZES:
                print(row(f"{name}, {size}", bnnp.load(name), of_zoo(name, source, size)), flush=True)
        print(row("zoo:gp on heaviside, 20", bnnp.load("zoo:gp"), of_zoo("", "heaviside", 20)), flush=True)
        print(row("zoo:sawtooth on gp, 20", bnnp.load("zoo:sawtooth"), of_zoo("", "gp", 20)), flush=True)


if __name__ == "__main__":
    main()
