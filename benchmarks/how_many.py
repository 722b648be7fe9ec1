"""How many data sets, and how many points of a new one, a prediction needs: measured on simulated patients.

    OMP_NUM_THREADS=1 python benchmarks/how_many.py --out docs/figures/how_many.png      # about ten minutes on one core

Learns from 3, 6, 12, 25, 50 and 100 patients like those of `examples/trial.py`, by the recipe of `bnnp train`, and
predicts the hidden points of 40 new ones, of which 0, 1, 2, 4 or 6 points are known. All patients have the same
measurement error, 0.3, which no prediction of new measurements can be below. A CSV beside the figure has
its numbers.
"""

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

import bnnp

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from trial import subject  # pyright: ignore[reportMissingImports]

SIZES, KNOWN, NOISE = (3, 6, 12, 25, 50, 100), (0, 1, 2, 4, 6), 0.3
Data = list[tuple[np.ndarray, np.ndarray]]


def patients(count: int, seed: int) -> Data:
    """Times and concentrations of some patients, in random order."""
    generator = np.random.default_rng(seed)
    tables = [subject(f"S{i}", generator).sample(frac=1, random_state=generator) for i in range(count)]
    return [(table[["time"]].to_numpy(), table[["conc"]].to_numpy()) for table in tables]


def learned(data: Data, minutes: float, seed: int) -> bnnp.BNNP:
    """A prior learned from some patients, by the recipe of `bnnp train`."""
    model = bnnp.BNNP(1, 1, (64, 64), "silu", last_layer="likelihood", dtype=torch.float64, seed=seed)
    return bnnp.learn(model, bnnp.tasks.from_arrays(data), minutes=minutes, progress=False, seed=seed).model


def scores(model: bnnp.BNNP, new: Data, known: int) -> dict[str, float]:
    """Error, and share of points within their 90 % intervals, of points that are never among the known ones."""
    errors, within = [], []
    for x, y in new:
        post = model.condition(x[:known], y[:known], num_samples=50, seed=0)
        pred, hidden = post.predict(x[max(KNOWN) :]), y[max(KNOWN) :]
        low, high = pred.interval(0.9)
        errors.append(np.square(pred.mean - hidden).mean())
        within.append(((low <= hidden) & (hidden <= high)).mean())
    return {"rmse": float(np.sqrt(np.mean(errors))), "within": float(np.mean(within))}


def measured(sizes: tuple[int, ...], repeats: int, minutes: float, num_new: int) -> pd.DataFrame:
    """A row for each size, repeat and number of known points."""
    rows, new = [], patients(num_new, seed=10_000)
    for size in sizes:
        for repeat in range(repeats):
            model = learned(patients(size, seed=repeat), minutes, repeat)
            rows += [{"data sets": size, "repeat": repeat, "known": k, **scores(model, new, k)} for k in KNOWN]
            print(pd.DataFrame(rows[-len(KNOWN) :]).round(3).to_string(header=len(rows) == len(KNOWN)), flush=True)
    return pd.DataFrame(rows)


def drawn(table: pd.DataFrame) -> Figure:
    """Error and coverage against the number of data sets, a line for each number of known points."""
    figure = Figure(figsize=(10.4, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for index, known in enumerate(KNOWN):
        rows = table[table["known"] == known].groupby("data sets")[["rmse", "within"]]
        mean, low, high = (pd.DataFrame(part) for part in (rows.mean(), rows.min(), rows.max()))
        for axes, name in ((left, "rmse"), (right, "within")):
            axes.plot(mean.index, mean[name], "o-", color=f"C{index}", ms=4, label=f"{known} known points")
            axes.fill_between(mean.index, low[name], high[name], color=f"C{index}", alpha=0.15, lw=0)
    left.axhline(NOISE, color="0.4", ls="--", lw=1)
    left.text(SIZES[0], NOISE * 1.03, "measurement error", fontsize=8, color="0.3")
    right.axhline(0.9, color="0.4", ls="--", lw=1)
    left.set(yscale="log", ylabel="error of hidden points (root mean square)")
    left.set_yticks([0.3, 0.5, 1, 2], ["0.3", "0.5", "1", "2"], minor=False)
    right.set(ylabel="share within 90 % intervals")
    for axes in (left, right):
        axes.set(xscale="log", xlabel="data sets to learn from")
        axes.set_xticks(sorted(set(table["data sets"])), [str(n) for n in sorted(set(table["data sets"]))])
        axes.minorticks_off()
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", fontsize=8)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--repeats", type=int, default=3, help="other patients to learn from; the band is their range")
    parser.add_argument("--minutes", type=float, default=1.0, help="time of a training")
    parser.add_argument("--new", type=int, default=40, help="patients to predict")
    parser.add_argument("--out", default="how_many.png")
    chosen = parser.parse_args()
    table = measured(tuple(chosen.sizes), chosen.repeats, chosen.minutes, chosen.new)
    for name, title in (("rmse", "error of hidden points"), ("within", "share within 90 % intervals")):
        wide = table.pivot_table(index="data sets", columns="known", values=name)
        print(f"\n{title}; columns: known points\n{wide.round(2).to_string()}")
    Path(chosen.out).parent.mkdir(parents=True, exist_ok=True)
    table.round(4).to_csv(Path(chosen.out).with_suffix(".csv"), index=False)
    print(f"wrote {bnnp.plots.save_figure(drawn(table), chosen.out)}, and its numbers beside it")


if __name__ == "__main__":
    main()
