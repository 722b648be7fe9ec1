"""The one recipe on processes whose best possible prediction is known, with no option but the source.

    OMP_NUM_THREADS=1 python benchmarks/recipe.py run sawtooth --minutes 4 --seed 0 --out records
    python benchmarks/recipe.py table records

A run learns as `bnnp train --source` does, and scores 64 fresh tasks. The gap is the oracle's marginal log predictive
density per point less the model's. The time is CPU time of the process, start included.
"""

import argparse
import json
import time
from pathlib import Path

import torch

import bnnp
from bnnp._core.random import child
from bnnp.recipe import ACTIVATIONS
from bnnp.tasks.split import context_size, random_split

SOURCES = {
    "gp_0.5": bnnp.tasks.gp(low=-2, high=2, length_scale=0.5),
    "gp_0.5_wide": bnnp.tasks.gp(low=-5, high=5, length_scale=0.5),
    "gp_0.25": bnnp.tasks.gp(low=-2, high=2, length_scale=0.25),
    "sawtooth": bnnp.tasks.sawtooth(),
    "heaviside": bnnp.tasks.heaviside(),
}
TESTS, SHARE = 64, (0.1, 0.5)


def run(name: str, minutes: float, seed: int, out: Path) -> None:
    """Learn from a source, score the model and write a record."""
    source, size = SOURCES[name], context_size(SHARE)
    tests = [random_split(task, size, child(2, i)) for i, task in enumerate(source.draw(TESTS, child(3)))]
    models = [
        bnnp.BNNP(source.in_size, source.out_size, (64, 64), activation, last_layer="likelihood", seed=seed)
        for activation in ACTIVATIONS
    ]
    began = time.process_time()
    learned = bnnp.learn(models, source, minutes=minutes, seed=seed)
    seconds, scores = time.process_time() - began, bnnp.evaluate(learned.model, tests, seed=0)
    best = bnnp.evaluate(bnnp.Oracle(source), tests)["marginal_lppd"] if hasattr(source, "oracle") else None
    kept = {key: scores[key] for key in ("marginal_lppd", "pooled_lppd", "mae", "coverage_90")}
    record = {"source": name, "minutes": minutes, "seed": seed, "cpu_seconds": seconds, "oracle": best, **kept}
    record |= {"decisions": learned.decisions, "torch": torch.__version__}
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}-{minutes:g}-{seed}.json").write_text(json.dumps(record, indent=1))
    learned.model.save(out / f"{name}-{minutes:g}-{seed}.bnnp")
    print(json.dumps(record, indent=1))


def table(folder: Path) -> None:
    """Print all records of a folder as rows of a table."""
    print("| source | minutes | seed | CPU seconds | oracle | marginal LPPD | gap | MAE | coverage of 90 % |")
    print("|---|---|---|---|---|---|---|---|---|")
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        best, own = record["oracle"], record["marginal_lppd"]
        known = ["", ""] if best is None else [f"{best:.3f}", f"{best - own:.3f}"]
        given = [record["source"], f"{record['minutes']:g}", record["seed"], f"{record['cpu_seconds']:.0f}"]
        scores = [known[0], f"{own:.3f}", known[1], f"{record['mae']:.3f}", f"{record['coverage_90']:.2f}"]
        print("| " + " | ".join(str(cell) for cell in [*given, *scores]) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("run")
    one.add_argument("name", choices=SOURCES)
    one.add_argument("--minutes", type=float, default=2)
    one.add_argument("--seed", type=int, default=0)
    one.add_argument("--out", type=Path, required=True)
    one.set_defaults(do=lambda given: run(given.name, given.minutes, given.seed, given.out))
    every = verbs.add_parser("table")
    every.add_argument("folder", type=Path)
    every.set_defaults(do=lambda given: table(given.folder))
    given = parser.parse_args()
    given.do(given)


if __name__ == "__main__":
    main()
