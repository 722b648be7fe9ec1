"""Neural processes beside the BNNP and the best possible, after the same CPU time of training each.

    OMP_NUM_THREADS=1 python benchmarks/peers.py run --seconds 600 --out peers
    python benchmarks/peers.py draw peers docs/figures/peers.png

Data: Gaussian processes of length scale 0.5 and 0.25 and sawtooth functions, on [-2, 2]; 64 fresh test tasks each. A
result is kept in the folder as soon as it is there (`gp_0.5-TNP.json`, `gp_0.5-TNP.bnnp`), and not computed again: the
same command goes on where it was stopped. The BNNP is what `bnnp.learn` makes of the data, with nothing chosen; give it
a core of its own, since it stops by the clock. The AR-TNP is the trained TNP. The gap is the oracle's marginal LPPD
less the model's. Joint LPPDs of the oracle, CNP, TNP and AR-TNP are exact, those of the others are averages over
samples and so biased downwards; the AR-TNP's other scores are of fewer samples, since it is slow to draw.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import bnnp
from bnnp import neural_processes as peers
from bnnp._core.random import child
from bnnp.models import MetaLearner
from bnnp.objectives import NPML
from bnnp.recipe import ACTIVATIONS
from bnnp.tasks.split import context_size, random_split
from bnnp.tasks.task import Split

DATA = {
    "gp_0.5": bnnp.tasks.gp(low=-2, high=2, length_scale=0.5),
    "gp_0.25": bnnp.tasks.gp(low=-2, high=2, length_scale=0.25),
    "sawtooth": bnnp.tasks.sawtooth(),
}
PEERS = {"CNP": peers.CNP, "NP": peers.NP, "ANP": peers.ANP, "BNP": peers.BNP, "TNP": peers.TNP}
ORACLE, AUTOREGRESSIVE = "oracle", "AR-TNP"
ROWS = [ORACLE, "BNNP", *PEERS, AUTOREGRESSIVE]
SCORES = ("marginal_lppd", "joint_lppd", "mae")
SHARE = (0.05, 0.5)


def learned(data: str, seconds: float) -> tuple[MetaLearner, float]:
    """A BNNP by the one recipe, and its CPU seconds."""
    models = [bnnp.BNNP(1, 1, (64, 64), units, last_layer="likelihood", seed=0) for units in ACTIVATIONS]
    started = time.process_time()
    model = bnnp.learn(models, DATA[data], minutes=seconds / 60, context_share=SHARE, progress=False).model
    return model, time.process_time() - started


def recipe(name: str) -> dict[str, Any]:
    batch_size = 16 if name in ("CNP", "TNP") else 5  # tasks cost more where each has 16 samples
    rate = 5e-4 if name in ("ANP", "TNP") else 1e-3  # at 1e-3 one of three trainings of the ANP diverged
    settings = bnnp.FitSettings(learning_rate=(rate, 1e-5))
    return {"objective": NPML(16), "batch_size": batch_size, "settings": settings}


def trained(name: str, data: str, seconds: float) -> tuple[MetaLearner, int, float]:
    """A peer, its steps and its CPU seconds of training, which are within a tenth of `seconds`.

    The number of steps is set before training, since the learning rate follows it: first by the time of a short
    training, and where the machine was slower or faster then, once more by the time of the whole one.
    """

    def fit(steps: int) -> tuple[MetaLearner, float]:
        started = time.process_time()
        model = bnnp.fit(
            PEERS[name](1, 1, seed=0), DATA[data], steps=steps, context_share=SHARE, progress=False, **recipe(name)
        ).model
        return model, time.process_time() - started

    fit(8)
    steps = 40  # whole pools of batches, so that drawing tasks counts too
    took = fit(steps)[1]
    for share in (0.05, 1.0, 1.0, 1.0):
        steps = max(10, round(steps * share * seconds / took))
        model, took = fit(steps)
        if share == 1.0 and abs(took / seconds - 1) <= 0.1:
            return model, steps, took
    raise RuntimeError(f"{name} took {took:.0f} CPU seconds for {steps} steps: the machine is too uneven to compare on")


def tests(data: str) -> list[Split]:
    size = context_size(SHARE)
    return [random_split(task, size, child(2, i)) for i, task in enumerate(DATA[data].draw(64, child(3)))]


def exact_densities(data: str) -> dict[str, float]:
    """The oracle's, which need no samples."""
    values: dict[str, list[float]] = {"marginal_lppd": [], "joint_lppd": []}
    for split in tests(data):
        exact = DATA[data].oracle(split.context.x, split.context.y, split.target.x)
        values["marginal_lppd"].append(float(exact.marginal_log_prob(split.target.y).mean()))
        values["joint_lppd"].append(exact.joint_log_prob(split.target.y) / len(split.target))
    means = {score: float(np.mean(v)) for score, v in values.items()}
    return means | {f"{score}_error": float(np.std(v, ddof=1) / np.sqrt(len(v))) for score, v in values.items()}


def result_of(name: str, data: str, options: argparse.Namespace) -> dict[str, Any]:
    folder, record, samples = Path(options.out), {}, options.samples
    if name == ORACLE:
        model: Any = bnnp.Oracle(DATA[data])
    elif name == AUTOREGRESSIVE:
        model, samples = bnnp.load(folder / f"{data}-TNP.bnnp").as_autoregressive(), options.ar_samples
    else:
        if name == "BNNP":
            model, record["cpu_seconds"] = learned(data, options.seconds)
        else:
            model, record["steps"], record["cpu_seconds"] = trained(name, data, options.seconds)
        model.save(folder / f"{data}-{name}.bnnp")
    scores = bnnp.evaluate(model, tests(data), num_samples=samples, seed=0)
    record |= {score: scores[score] for score in SCORES} | {"samples": samples}
    record |= {f"{score}_error": scores.standard_error(score) for score in SCORES}
    return record | (exact_densities(data) if name == ORACLE else {})


def run(options: argparse.Namespace) -> None:
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    wanted = options.models.split(",")
    for data in options.data.split(","):
        for name in (row for row in ROWS if row in wanted):
            file = folder / f"{data}-{name}.json"
            if not file.exists():
                file.write_text(json.dumps(result_of(name, data, options), indent=1))
                print(data, name, file.read_text().replace("\n", ""), flush=True)
    print(table(folder))


def table(folder: Path) -> str:
    """All results in the folder, as Markdown; standard errors over tasks in brackets."""
    lines = [
        "| data | model | marginal LPPD | gap to the oracle | joint LPPD | MAE | steps | CPU seconds |",
        "|" + "---|" * 8,
    ]
    for data in DATA:
        found = {name: folder / f"{data}-{name}.json" for name in ROWS}
        records = {name: json.loads(file.read_text()) for name, file in found.items() if file.exists()}
        for name, record in records.items():
            cells = [f"{record[score]:.3f} ({record[f'{score}_error']:.3f})" for score in SCORES]
            best = records.get(ORACLE, {}).get("marginal_lppd")
            gap = "" if best is None else f"{best - record['marginal_lppd']:.3f}"
            seconds = f"{record['cpu_seconds']:.0f}" if "cpu_seconds" in record else ""
            effort = [str(record.get("steps", "")), seconds]
            lines.append("| " + " | ".join([data, name, cells[0], gap, *cells[1:], *effort]) + " |")
    return "\n".join(lines)


def draw(options: argparse.Namespace) -> None:
    """Function samples given a few points. CNP and TNP have none: their rows show noise that is independent."""
    folder, grid = Path(options.folder), np.linspace(-2, 2, 120)[:, None]
    figure, panels = plt.subplots(
        len(ROWS), len(DATA), figsize=(9, 1.6 * len(ROWS)), sharex=True, sharey="col", layout="constrained"
    )
    for column, (data, source) in enumerate(DATA.items()):
        task = source.draw(1, child(4))[0]
        x, y = task.x[:8].numpy(), task.y[:8].numpy()
        for panel, name in zip(panels[:, column], ROWS, strict=True):
            file = folder / f"{data}-{'TNP' if name == AUTOREGRESSIVE else name}.bnnp"
            if name != ORACLE and not file.exists():
                panel.set_axis_off()
                continue
            model: Any = bnnp.Oracle(source) if name == ORACLE else bnnp.load(file)
            if name == AUTOREGRESSIVE:
                model = model.as_autoregressive()
            pred = model.condition(x, y, num_samples=4, seed=0).predict(grid)
            lines = pred.observations(0) if name in ("CNP", "TNP") else pred.samples
            panel.plot(grid, lines[:, :, 0].T, lw=0.8, alpha=0.8)
            panel.plot(x, y, "o", color="black", ms=3)
            panel.set_ylabel(name if column == 0 else "")
        panels[0][column].set_title(data.replace("_", ", length scale "))
    figure.savefig(options.figure, dpi=100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runner = verbs.add_parser("run")
    runner.add_argument("--seconds", type=float, default=600.0, help="of CPU time to train each model for")
    runner.add_argument("--models", default=",".join(ROWS))
    runner.add_argument("--data", default=",".join(DATA))
    runner.add_argument("--samples", type=int, default=200)
    runner.add_argument("--ar-samples", type=int, default=20)
    runner.add_argument("--out", required=True)
    runner.set_defaults(call=run)
    drawer = verbs.add_parser("draw")
    drawer.add_argument("folder")
    drawer.add_argument("figure")
    drawer.set_defaults(call=draw)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
