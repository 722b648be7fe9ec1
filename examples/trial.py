"""A small trial: 12 subjects, at most 11 measurements each, and a subject that was left out.

    python examples/trial.py OUT_FOLDER

Writes `trial.csv`, `known.csv` and `wanted.csv` (simulated one-compartment kinetics), then runs `bnnp train` and
`bnnp predict` on them, as a user would from the shell, and draws `trial.png`. About half a minute.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import bnnp

HOURS = np.array([0.25, 0.5, 1, 2, 3.5, 5, 7, 9, 12, 16, 24])


def subject(name: str, generator: np.random.Generator) -> pd.DataFrame:
    """Concentrations after an oral dose, with about one row in ten missing."""
    uptake, elimination = np.exp(generator.normal([0.45, -2.3], [0.4, 0.25]))
    amount = generator.uniform(8, 14)
    time = HOURS + generator.normal(0, 0.03, len(HOURS))
    clean = amount * uptake / (uptake - elimination) * (np.exp(-elimination * time) - np.exp(-uptake * time))
    conc = clean + generator.normal(0, 0.3, len(HOURS))
    table = pd.DataFrame({"subject": name, "time": time.round(2), "conc": conc.round(2)})
    return table.loc[generator.random(len(table)) > 0.1]


def write_tables(folder: Path) -> None:
    """The tables of 12 subjects, and of the known and the wanted points of another one."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    pd.concat([subject(f"S{i:02d}", generator) for i in range(12)]).to_csv(folder / "trial.csv", index=False)
    left_out = subject("new", generator)
    left_out.iloc[::3].to_csv(folder / "known.csv", index=False)
    left_out.drop(left_out.index[::3]).to_csv(folder / "wanted.csv", index=False)


def main(folder: Path) -> pd.DataFrame:
    write_tables(folder)
    command_line = Path(sys.executable).with_name("bnnp")
    columns = ["--task", "subject", "--x", "time", "--y", "conc"]
    train = [command_line, "train", folder / "trial.csv", *columns, "--out", folder / "model"]
    predict = [command_line, "predict", folder / "model" / "model.bnnp", "--context", folder / "known.csv"]
    predict += ["--targets", folder / "wanted.csv", "--out", folder / "predictions.csv"]
    for command in (train, predict):
        subprocess.run(command, check=True)
    bnnp.plots.save_figure(figure(folder), folder / "trial.png")
    return pd.read_csv(folder / "predictions.csv")


def figure(folder: Path) -> Figure:
    """The patients that taught, curves that the learned prior considers likely, and the new patient."""
    model = bnnp.load(str(folder / "model"))
    trial, known, wanted = (pd.read_csv(folder / f"{name}.csv") for name in ("trial", "known", "wanted"))
    drawing = Figure(figsize=(9, 2.6), layout="constrained")
    seen, likely, new = drawing.subplots(1, 3, sharex=True, sharey=True)
    for _, patient in trial.groupby("subject"):
        seen.plot(patient["time"], patient["conc"], ".-", color="0.5", linewidth=0.8, markersize=4)
    grid = np.linspace(0.3, 23.8, 200)
    bnnp.plots.draw_functions(likely, model.prior.functions(12, seed=0), grid)  # pyright: ignore
    pred = model.condition(known[["time"]].to_numpy(), known["conc"].to_numpy(), seed=0).predict(grid)
    low, high = pred.interval(0.9)
    new.fill_between(grid, low[:, 0], high[:, 0], alpha=0.3, linewidth=0)
    new.plot(grid, pred.mean[:, 0])
    new.plot(wanted["time"], wanted["conc"], ".", color="0.3", label="hidden")
    new.plot(known["time"], known["conc"], "o", color="C1", label="known")
    new.legend(fontsize=8)
    for panel, title in ((seen, "12 patients"), (likely, "likely curves, learned from them"), (new, "a new patient")):
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("time, hours")
    seen.set_ylabel("concentration")
    return drawing


if __name__ == "__main__":
    print(main(Path(sys.argv[1] if len(sys.argv) > 1 else "trial")).to_string())
