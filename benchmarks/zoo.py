"""Train the models that ship with the package (`src/bnnp/zoo`), all in the same way.

    OMP_NUM_THREADS=1 python benchmarks/zoo.py sawtooth --minutes 30 --out records

`bnnp.learn` decides everything, as for `python benchmarks/recipe.py run`, which also says what a record holds; only the
network is smaller, so that the page answers fast, and contexts may be smaller and larger. Nothing depends on the
process but the time.
"""

import argparse
from pathlib import Path

from processes import run

PROCESSES = ("sawtooth", "heaviside", "gp", "ecg", "curves")
HIDDEN, SHARE = (48, 48), (0.02, 0.6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("process", choices=PROCESSES)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    run(given.process, given.minutes, 0, given.out, HIDDEN, SHARE)


if __name__ == "__main__":
    main()
