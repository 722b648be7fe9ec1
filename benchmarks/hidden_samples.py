"""How many samples of the hidden layers does a prediction need, and what does it cost?

    python benchmarks/hidden_samples.py --out hidden_samples.json --figure docs/figures/hidden_samples.png

For the models that ship, on fresh tasks: marginal and joint LPPD with the last layer integrated given K samples, with
as many as the library takes by itself ("auto"), and from 1000 samples of all weights, as it was done before. Times are
of conditioning and predicting, in turns, medians over tasks.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import bnnp
from bnnp._core.random import child
from bnnp.evaluation.score import lppd
from bnnp.tasks.split import context_size, random_split

SOURCES = {
    "zoo:gp": lambda: bnnp.tasks.gp(low=-4, high=4),
    "zoo:sawtooth": bnnp.tasks.sawtooth,
    "zoo:heaviside": lambda: bnnp.tasks.heaviside(noise=0.05),
}
NUMBERS = (5, 20, 100, 500)


def row(name: str, kind: str, tests: list) -> dict:
    model, marginal, joint, seconds, samples = bnnp.load(name), [], [], [], []
    for i, split in enumerate(tests):
        started = time.perf_counter()
        choices = {} if kind == "auto" else {"num_samples": 1000 if kind == "sampled 1000" else int(kind)}
        post = model.condition(split.context.x, split.context.y, seed=i, **choices)
        predict = post.predict_by_samples if kind == "sampled 1000" else post.predict
        pred = predict(split.target.x)
        seconds.append(time.perf_counter() - started)
        samples.append(post.num_samples)
        marginal.append(lppd(pred.pointwise_log_prob(split.target.y))["marginal"])
        joint.append(pred.joint_log_prob(split.target.y) / len(split.target))
    found = {"model": name, "kind": kind, "marginal": float(np.mean(marginal)), "joint": float(np.mean(joint))}
    return found | {"seconds": statistics.median(seconds), "samples": float(np.mean(samples))}


def draw(rows: list[dict], path: str) -> None:
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for name in SOURCES:
        some = {r["kind"]: r for r in rows if r["model"] == name}
        for panel, score in zip(panels, ("marginal", "joint"), strict=True):
            best = some[str(NUMBERS[-1])][score]
            error = [max(1e-5, abs(some[str(k)][score] - best)) for k in NUMBERS[:-1]]
            (line,) = panel.loglog(NUMBERS[:-1], error, ".-", label=name)
            auto = some["auto"]
            off = max(1e-5, abs(auto[score] - best))
            panel.plot(auto["samples"], off, "*", color=line.get_color(), markersize=12)
    for panel, score in zip(panels, ("marginal", "joint"), strict=True):
        panel.set(title=f"{score} LPPD", xlabel="samples of the hidden layers")
        panel.set_ylabel(f"distance from {NUMBERS[-1]} samples, nats per point")
    panels[0].legend(fontsize=8, title="star: chosen by itself", title_fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=64)
    parser.add_argument("--out", required=True)
    parser.add_argument("--figure", required=True)
    options = parser.parse_args()
    rows = []
    print("| model | samples | marginal LPPD | joint LPPD | seconds per task |\n|---|---|---|---|---|")
    for name, source in SOURCES.items():
        drawn = source().draw(options.tasks, child(3))
        tests = [random_split(task, context_size((0.1, 0.5)), child(2, i)) for i, task in enumerate(drawn)]
        for kind in ("sampled 1000", "auto", *map(str, NUMBERS)):
            rows.append(row(name, kind, tests))
            last = rows[-1]
            label = f"auto: {last['samples']:.0f} on average" if kind == "auto" else kind
            scores = f"{last['marginal']:.4f} | {last['joint']:.4f} | {last['seconds']:.3f}"
            print(f"| `{name}` | {label} | {scores} |", flush=True)
    Path(options.out).write_text(json.dumps(rows, indent=1))
    draw(rows, options.figure)


if __name__ == "__main__":
    main()
