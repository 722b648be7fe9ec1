"""A small trial: 12 subjects, at most 11 measurements each, and a subject that was left out.

    python examples/trial.py OUT_FOLDER

Writes `trial.csv`, `known.csv` and `wanted.csv` (simulated one-compartment kinetics), then runs `bnnp train` and
`bnnp predict` on them, as a user would from the shell. About half a minute.
"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd

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
    bnnp = Path(sys.executable).with_name("bnnp")
    columns = ["--task", "subject", "--x", "time", "--y", "conc"]
    train = [bnnp, "train", folder / "trial.csv", *columns, "--out", folder / "model"]
    predict = [bnnp, "predict", folder / "model" / "model.bnnp", "--context", folder / "known.csv"]
    predict += ["--targets", folder / "wanted.csv", "--out", folder / "predictions.csv"]
    for command in (train, predict):
        subprocess.run(command, check=True)
    return pd.read_csv(folder / "predictions.csv")


if __name__ == "__main__":
    print(main(Path(sys.argv[1] if len(sys.argv) > 1 else "trial")).to_string())
