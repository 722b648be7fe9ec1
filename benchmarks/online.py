"""Online learning (paper, App. D): the last layer takes in new points, against conditioning on everything again.

    python benchmarks/online.py run --steps 1500 --out online.json
    python benchmarks/online.py draw online.json docs/figures

For 1 to 4 hidden layers of 32 units, a model is trained on Gaussian process tasks. On 32 new tasks a context of 8
points grows by 8 points four times. Scores are those of 200 weight samples at 64 new inputs, on average over tasks.
"""

import argparse
import json
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import bnnp
from bnnp._random import child

BATCH, UPDATES, TASKS = 8, 4, 32
WAYS = {"all": "all points anew", "online": "online updates", "new": "new points only"}


def tasks(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Tasks of more points than contexts and targets need, in random order."""
    drawn = bnnp.tasks.gp(low=-2, high=2, points=(128, 128)).draw(count, child(9))
    return [(task.x.numpy(), task.y.numpy()) for task in drawn]


def posteriors(model, x, y):
    """After each batch of points: from all points so far, online, and from the new points alone."""
    online = model.condition(x[:BATCH], y[:BATCH], num_samples=200)
    for step in range(UPDATES + 1):
        seen, new = slice(0, BATCH * (step + 1)), slice(BATCH * step, BATCH * (step + 1))
        if step > 0:
            online = online.update(x[new], y[new])
        yield (
            step,
            {
                "all": model.condition(x[seen], y[seen], num_samples=200),
                "online": online,
                "new": model.condition(x[new], y[new], num_samples=200),
            },
        )


def run(options: argparse.Namespace) -> None:
    rows = []
    for depth in (1, 2, 3, 4):
        path = Path(f"{Path(options.out).with_suffix('')}_{depth}.bnnp")
        if path.is_file():  # of a run that was stopped
            model = bnnp.load(path)
        else:
            model = bnnp.BNNP(1, 1, (32,) * depth, "silu", likelihood=bnnp.Gaussian(0.05))
            source = bnnp.tasks.gp(low=-2, high=2)
            objective = bnnp.objectives.PPAVI(8)
            bnnp.fit(model, source, objective=objective, steps=options.steps, context_share=(0.05, 0.5), progress=False)
            model.save(path)
        for x, y in tasks(TASKS):
            for step, found in posteriors(model, x, y):
                reference = found["all"].predict(x[64:])
                for way, post in found.items():
                    predicted = post.predict(x[64:])
                    rows.append(
                        {
                            "depth": depth,
                            "points": BATCH * (step + 1),
                            "way": way,
                            "distance": float(np.sqrt(np.mean((predicted.mean - reference.mean) ** 2))),
                            "lppd": float(predicted.log_prob(y[64:]).mean()),
                            "mae": float(np.abs(predicted.mean - y[64:]).mean()),
                        }
                    )
        print(f"depth {depth} done", flush=True)
    Path(options.out).write_text(json.dumps(rows))


def draw(options: argparse.Namespace) -> None:
    rows = json.loads(Path(options.rows).read_text())
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    points = sorted({row["points"] for row in rows})

    def mean(depth: int, way: str, count: int, score: str) -> float:
        chosen = [r[score] for r in rows if (r["depth"], r["way"], r["points"]) == (depth, way, count)]
        return float(np.mean(chosen))

    for depth in (1, 2, 3, 4):
        distances = [mean(depth, "online", n, "distance") for n in points]
        panels[0].plot(points, distances, "o-", label=f"{depth} hidden layers")
    for panel, depth in zip(panels[1:], (1, 4), strict=True):
        for way, label in WAYS.items():
            panel.plot(points, [mean(depth, way, n, "lppd") for n in points], "o-", label=label)
        panel.set(xlabel="points seen", ylabel="LPPD of new points", title=f"{depth} hidden layers")
        panel.legend(fontsize=8)
    panels[0].set(xlabel="points seen", ylabel="distance of means, online to all")
    panels[0].legend(fontsize=8)
    figure.savefig(Path(options.folder) / "online.png", dpi=110)
    for depth in (1, 2, 3, 4):
        last = {way: {s: mean(depth, way, points[-1], s) for s in ("distance", "lppd", "mae")} for way in WAYS}
        print(depth, json.dumps({w: {k: round(v, 3) for k, v in s.items()} for w, s in last.items()}))
    demo(f"{Path(options.rows).with_suffix('')}_2.bnnp", Path(options.folder) / "online_demo.png")


def demo(path: str, figure_path: Path) -> None:
    """The paper's figure: rows take in more points; columns are the three ways."""
    model = bnnp.load(path)
    ((x, y),) = tasks(1)
    figure, panels = plt.subplots(UPDATES, 3, figsize=(9, 8), sharex=True, sharey=True, layout="constrained")
    grid = np.linspace(-2, 2, 200)[:, None]
    for step, found in posteriors(model, x, y):
        if step == UPDATES:
            break
        for column, (way, post) in enumerate(found.items()):
            panel = panels[step][column]
            panel.plot(grid, post.predict(grid).samples[:30, :, 0].T, color="tab:blue", alpha=0.25, lw=0.8)
            old, new = slice(0, BATCH * step), slice(BATCH * step, BATCH * (step + 1))
            lost = way != "all"
            panel.plot(x[old], y[old], "o", color="black" if lost else "tab:orange", ms=3)
            panel.plot(x[new], y[new], "o", color="tab:orange", ms=3)
            if step == 0:
                panel.set_title(WAYS[way])
    panels[0][0].set_ylim(-3, 3)
    figure.savefig(figure_path, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runner = verbs.add_parser("run")
    runner.add_argument("--steps", type=int, default=1500)
    runner.add_argument("--out", required=True)
    runner.set_defaults(call=run)
    drawer = verbs.add_parser("draw")
    drawer.add_argument("rows")
    drawer.add_argument("folder")
    drawer.set_defaults(call=draw)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
