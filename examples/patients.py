"""Patients and doses

Takeaway: eighteen patients are enough to predict the next one from three blood samples, and to ask how another dose
would have gone. The 90 % intervals held nine of ten measurements of twenty new patients, though fewer of the one that
is shown. Compare before you choose: a mixed model was clearly behind here, a hierarchical Gaussian process a little.

    python examples/patients.py OUT_FOLDER
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

import bnnp

HOURS = np.array([0.25, 0.5, 1, 2, 3.5, 5, 7, 9, 12, 16, 24])
COLUMNS = ["subject", "time", "dose"]


def patient(name: str, dose: float, generator: np.random.Generator) -> pd.DataFrame:
    """A simulated patient takes a dose: the concentration in the blood rises, then falls, at a pace of its own."""
    uptake, elimination = np.exp(generator.normal([0.45, -2.3], [0.4, 0.25]))
    curve = np.exp(-elimination * HOURS) - np.exp(-uptake * HOURS)
    conc = dose / 10 * uptake / (uptake - elimination) * curve + generator.normal(0, 0.3, len(HOURS))
    return pd.DataFrame({"subject": name, "time": HOURS, "dose": dose, "conc": conc.round(2)})


def main(folder: Annotated[Path, typer.Argument()] = Path("patients"), quick: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)

    # A long table: one row per measurement. All patients got a dose of 60, 100 or 140 mg.
    count = 6 if quick else 18
    trial = pd.concat([patient(f"P{i:02d}", (60, 100, 140)[i % 3], generator) for i in range(count)])
    trial.to_csv(folder / "trial.csv", index=False)
    print(trial.head(3).to_string(index=False))

    # Learn what patients have in common. A new patient took 100 mg and gave three samples.
    reg = bnnp.BNNPRegressor(task="subject", random_state=0).fit(trial[COLUMNS], trial["conc"])
    new = patient("new", 100.0, generator)
    known, hidden = new.iloc[[1, 4, 7]], new.iloc[[0, 2, 3, 5, 6, 8, 9, 10]]
    reg.observe(known[COLUMNS], known["conc"])
    frame = reg.predict_frame(hidden[COLUMNS], quantiles=[0.05, 0.95])
    frame["measured"] = hidden["conc"].to_numpy()
    print("\nThe new patient, three samples known:")
    print(frame[["time", "mean", "q05", "q95", "measured"]].round(1).to_string(index=False))
    within = frame["measured"].between(frame["q05"], frame["q95"])
    print(f"{within.sum()} of {len(within)} hidden measurements lie within their 90 % intervals.")

    # One patient says little about intervals. Twenty more, three samples of each known:
    more = pd.concat([patient(f"N{i:02d}", 100.0, generator) for i in range(20)])
    is_known = more.groupby("subject").cumcount().isin([1, 4, 7])
    reg.observe(more.loc[is_known, COLUMNS], more.loc[is_known, "conc"])
    frame = reg.predict_frame(more.loc[~is_known, COLUMNS], quantiles=[0.05, 0.95])
    measured = more.loc[~is_known, "conc"].to_numpy()
    within = (frame["q05"] <= measured) & (measured <= frame["q95"])
    print(f"Of 20 such patients, {within.mean():.0%} of {len(within)} hidden measurements do.")

    # Another dose: the same column, another number. Nobody knows anything of this patient yet.
    grid = pd.DataFrame(
        [("anyone", time, dose) for dose in (60.0, 140.0) for time in (1.0, 5.0, 16.0)], columns=COLUMNS
    )
    print("\nA patient of whom nothing is known, on two doses:")
    print(
        reg.predict_frame(grid, quantiles=[0.05, 0.95])[["dose", "time", "mean", "q05", "q95"]]
        .round(1)
        .to_string(index=False)
    )

    # Is it better than what one would do otherwise? Patients are left out in turns; a third of their samples is known.
    compared = bnnp.compare(
        trial, task="subject", x=["time", "dose"], y="conc", folds=2 if quick else 3, progress=False
    )
    print("\nLeft-out patients: log-density per point (higher is better), error, share within 90 % intervals")
    print(compared.table()[["lppd", "lppd_error", "rmse", "coverage"]].round(2).to_string())
    print("What bnnp gains in log-density, with standard errors; beyond two of them it counts as real")
    gains = compared.differences().query("`in` == 'lppd'").drop(columns="in")
    print(gains.round(2).to_string(index=False))

    bnnp.plots.save_figure(compared.figure(), folder / "patients.png")


if __name__ == "__main__":
    typer.run(main)
