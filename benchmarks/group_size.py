"""How many targets should share a term of the objective? On processes with and without several modes.

    OMP_NUM_THREADS=1 python benchmarks/group_size.py run --out groups.json
    python benchmarks/group_size.py table groups.json

`gp` and `sawtooth` are learned from the default start for so many steps; `heaviside`, whose hidden weights have several
modes, is trained further from the model that ships, whose prior draws are at the two levels: does it stay there? Scores
are of 64 fresh tasks, with the last layer integrated given 100 samples of the hidden layers.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import bnnp
from bnnp._core.random import child
from bnnp.tasks.split import context_size, random_split

GROUPS = {"1": 1, "2": 2, "5": 5, "all": None}
STEPS = {"gp": 600, "sawtooth": 1500, "heaviside": 400}
SCORES = ("marginal_lppd", "joint_lppd", "crps")


def source_of(process: str):
    return bnnp.tasks.heaviside(noise=0.05) if process == "heaviside" else getattr(bnnp.tasks, process)()


def model_of(process: str, seed: int) -> bnnp.BNNP:
    if process == "heaviside":
        return bnnp.load("zoo:heaviside")
    activation = {"gp": "silu", "sawtooth": "relu"}[process]
    return bnnp.BNNP(1, 1, (48, 48), activation, likelihood=bnnp.Gaussian(0.05), seed=seed)


def share_at_levels(model: bnnp.BNNP) -> float:
    """Of values of prior draws within 0.1 of -1 or 1."""
    x = np.linspace(-5, 5, 200)[:, None]
    values = np.stack([f(x) for f in model.prior.functions(200, seed=0)])
    return float((np.abs(np.abs(values) - 1) < 0.1).mean())


def measure(process: str, group: str, seed: int, samples: int) -> dict:
    source, model = source_of(process), model_of(process, seed)
    size = context_size((0.1, 0.5))
    tests = [random_split(task, size, child(2, i)) for i, task in enumerate(source.draw(64, child(3)))]
    started = time.process_time()
    objective = bnnp.objectives.PPAVI(samples, group_size=GROUPS[group])
    settings = bnnp.FitSettings(learning_rate=(1e-3 if process == "heaviside" else 3e-3, 1e-4))
    bnnp.fit(model, source, objective=objective, steps=STEPS[process], settings=settings, seed=seed, progress=False)
    seconds = time.process_time() - started
    scores = bnnp.evaluate(model, tests, num_samples=100, seed=0)
    assert isinstance(model.likelihood, bnnp.Gaussian)
    row = {"process": process, "group": group, "seed": seed, "cpu_seconds": seconds}
    row |= {name: scores[name] for name in SCORES} | {"noise": float(model.likelihood.noise.detach().mean())}
    return row | ({"at levels": share_at_levels(model)} if process == "heaviside" else {})


def run(options: argparse.Namespace) -> None:
    rows = []
    for process in options.processes:
        if process == "heaviside":
            model = model_of(process, 0)
            print("heaviside before training:", round(share_at_levels(model), 3), "at levels", flush=True)
        for group in GROUPS:
            for seed in range(options.seeds):
                rows.append(measure(process, group, seed, options.samples))
                print({k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items()}, flush=True)
                Path(options.out).write_text(json.dumps({"samples": options.samples, "rows": rows}, indent=1))


def table(options: argparse.Namespace) -> None:
    rows = [row for path in options.records for row in json.loads(Path(path).read_text())["rows"]]
    print("| process | group | marginal LPPD | joint LPPD | CRPS | noise | prior draws at the levels | CPU s |")
    print("|---|---|---|---|---|---|---|---|")
    for process, group in dict.fromkeys((row["process"], row["group"]) for row in rows):
        some = [row for row in rows if (row["process"], row["group"]) == (process, group)]
        cells = [
            " / ".join(f"{row[name]:.3f}" for row in some) if name in some[0] else ""
            for name in (*SCORES, "noise", "at levels")
        ]
        seconds = np.mean([row["cpu_seconds"] for row in some])
        print(f"| {process} | {group} | {' | '.join(cells)} | {seconds:.0f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runner = verbs.add_parser("run")
    runner.add_argument("--processes", nargs="+", default=list(STEPS), choices=list(STEPS))
    runner.add_argument("--seeds", type=int, default=2)
    runner.add_argument("--samples", type=int, default=8)
    runner.add_argument("--out", required=True)
    runner.set_defaults(call=run)
    shower = verbs.add_parser("table")
    shower.add_argument("records", nargs="+")
    shower.set_defaults(call=table)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
