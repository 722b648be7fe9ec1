"""Train the models that ship with the package (`src/bnnp/zoo`), all in the same way.

    OMP_NUM_THREADS=1 python benchmarks/zoo.py train sawtooth --minutes 6 --out records
    python benchmarks/zoo.py ship records        # copy models and records, and write their sections of the README

`bnnp.learn` decides everything, as for `python benchmarks/recipe.py run`, which also says what a record holds; only the
network is smaller, so that the page answers fast, and contexts may be smaller and larger. Nothing depends on the
process but the time. The models that ship are those of one such command each; `make cards` then writes their cards.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from processes import run

ZOO = Path(__file__).parents[1] / "src" / "bnnp" / "zoo"
PROCESSES = {
    "sawtooth": "The paper's sawtooth process on [-2, 2].",
    "heaviside": "The paper's functions with two levels, on [-5, 5].",
    "gp": "The paper's Gaussian process on [-5, 5].",
    "ecg": "Simulated heartbeats, one per task, at a random place (paper, App. F).",
    "curves": "Smooth curves of many kinds on [-3, 3] (`bnnp.tasks.curves`), for people with one data set.",
}
HIDDEN, SHARE = (48, 48), (0.02, 0.6)


def train(given: argparse.Namespace) -> None:
    """Train one model, and keep it with its record."""
    run(given.process, given.minutes, 0, given.out, HIDDEN, SHARE)


def ship(given: argparse.Namespace) -> None:
    """Copy the models of a folder into the package, and write what their records say."""
    page = ZOO / "README.md"
    first, *rest = page.read_text().split("\n## ")
    sections = {part.split("`")[1]: part.strip() for part in rest}
    for file in sorted(given.folder.glob("*.json")):
        record = json.loads(file.read_text())
        name = record["source"]
        shutil.copy(file.with_suffix(".bnnp"), ZOO / f"{name}.bnnp")
        (ZOO / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
        sections[f"zoo:{name}"] = section(record)
    page.write_text("\n\n## ".join([first.strip(), *(text.strip() for text in sections.values())]) + "\n")


def section(record: dict[str, Any]) -> str:
    """What is said of one model; `bnnp card` quotes it."""
    name, layers = record["source"], " - ".join(map(str, (1, *HIDDEN, 1)))
    scores = {
        "marginal LPPD": record["marginal_lppd"],
        "the best possible": record["oracle"],
        "MAE": record["mae"],
        "coverage of 90 %": record["coverage_90"],
    }
    of_prior = {kind.replace("_", " "): value for kind, value in record["prior"].items()}
    known = {kind: f"{value:.3f}" for kind, value in (scores | of_prior).items() if value is not None}
    return f"""`zoo:{name}`
{PROCESSES[name]} Network {layers}, learned in {record["cpu_seconds"] / 60:.0f} minutes of one processor by

    OMP_NUM_THREADS=1 python benchmarks/zoo.py train {name} --minutes {record["minutes"]:g} --out records

What was decided:

{chr(10).join(f"- {sentence}" for sentence in record["decisions"])}

On 64 fresh tasks of which 10 to 50 % of the points are known, and for draws of its prior (`benchmarks/processes.py`):

| {" | ".join(known)} |
{"|---" * len(known)}|
| {" | ".join(known.values())} |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    trainer = verbs.add_parser("train")
    trainer.add_argument("process", choices=PROCESSES)
    trainer.add_argument("--minutes", type=float, default=10.0)
    trainer.add_argument("--out", type=Path, required=True)
    trainer.set_defaults(do=train)
    shipper = verbs.add_parser("ship")
    shipper.add_argument("folder", type=Path)
    shipper.set_defaults(do=ship)
    given = parser.parse_args()
    given.do(given)


if __name__ == "__main__":
    main()
