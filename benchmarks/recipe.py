"""The one recipe on processes and real data of many kinds, with no option but the source.

    OMP_NUM_THREADS=1 python benchmarks/recipe.py run sawtooth --minutes 4 --seed 0 --out records
    python benchmarks/recipe.py table records

A run learns as `bnnp train --source` does, and scores 64 fresh tasks (rain: the maps of 16 times that were left out).
The gap is the oracle's marginal log predictive density per point less the model's. The time is CPU time of the
process, start included. Draws of the learned prior are compared with the process: the share of values within 0.1 of a
level, the share below the floor, the number of jumps as a share of that of the process, and the energy distance of
whole functions.
"""

import argparse
import json
from pathlib import Path

from processes import SOURCES, run

COLUMNS = "source | seed | CPU seconds | oracle | marginal LPPD | gap | MAE | coverage of 90 % | draws of the prior"


def table(folder: Path) -> None:
    """Print all records of a folder as rows of a table."""
    print(f"| {COLUMNS} |\n{'|---' * len(COLUMNS.split('|'))}|")
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        best, own = record["oracle"], record["marginal_lppd"]
        known = ["", ""] if best is None else [f"{best:.3f}", f"{best - own:.3f}"]
        given = [record["source"], record["seed"], f"{record['cpu_seconds']:.0f}"]
        scores = [known[0], f"{own:.3f}", known[1], f"{record['mae']:.3f}", f"{record['coverage_90']:.3f}"]
        prior = ", ".join(f"{name.replace('_', ' ')} {value:.3f}" for name, value in record["prior"].items())
        print("| " + " | ".join(str(cell) for cell in [*given, *scores, prior]) + " |")


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
