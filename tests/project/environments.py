"""`make lowest` and `make newest`: do the versions work that `pyproject.toml` allows? Needs a package index.

    PYTHONPATH=tests python -m project.environments lowest
    PYTHONPATH=tests python -m project.environments newest [WORD ...]      # for pip, such as torch==2.13.0

In an empty environment in a folder that is removed afterwards, every dependency is installed at its minimum, or at its
newest version, then the wheel of this tree; a short run goes through everything that the library uses them for.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

from project import package

ROOT = Path(__file__).parents[2]
USE = """
import numpy as np, pandas as pd
import bnnp
frame = pd.DataFrame({"who": np.repeat(["a", "b", "c"], 8), "x": np.tile(np.linspace(0, 1, 8), 3)})
frame["y"] = np.sin(frame["x"] * np.repeat([1, 2, 3], 8)) + 0.1 * np.cos(40 * frame["x"])
tasks = bnnp.tasks.from_table(frame, task="who", x="x", y="y")
result = bnnp.fit(bnnp.BNNP(1, 1, (8,), seed=0), tasks, steps=5, progress=True)
model, first = result.model, tasks[0]
post = model.condition(first.x, first.y, seed=0)
assert np.isfinite(post.predict([[0.5]]).quantile([0.05, 0.95])).all()
assert np.isfinite(bnnp.evaluate(model, tasks, num_samples=5)["crps"])
assert np.isfinite(bnnp.evaluate(bnnp.neural_processes.NP(1, 1, (4,)), tasks, num_samples=5)["crps"])
effort = bnnp.inference.Effort(steps=8, warmup=3, chains=2)
chains = bnnp.inference.infer_many(
    model.prior, model.network, [(first.x, first.y)], method="hmc", likelihood=model.likelihood, num_samples=16,
    effort=effort,
)
assert chains[0].diagnostics.rhat is not None
bnnp.plots.save_figure(bnnp.plots.history(result.history), "history.png")
model.save("model.bnnp")
frame[frame["who"] == "a"].to_csv("known.csv", index=False)
"""
COMMAND = ["predict", "model.bnnp", "--context", "known.csv", "--targets", "known.csv", "--out", "predictions.csv"]


def lowest_versions() -> list[str]:
    """The dependencies at their minimum, as `numpy==1.26`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [re.sub(r">=", "==", line) for line in project["dependencies"]]


def main(which: str, *held: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "environment", with_pip=True)
        python = str(home / "environment" / "bin" / "python")
        pins = lowest_versions() if which == "lowest" else list(held)
        wheel, _ = package.build(home / "dist")
        subprocess.run([python, "-m", "pip", "install", "--quiet", *pins, str(wheel)], check=True)
        subprocess.run([python, "-W", "ignore", "-c", USE], check=True, cwd=home)
        subprocess.run([python, "-m", "bnnp", *COMMAND], check=True, cwd=home)
        subprocess.run([python, "-m", "bnnp", "train", "--help"], check=True, cwd=home, stdout=subprocess.DEVNULL)
        assert (home / "predictions.csv").stat().st_size > 0
        listed = [python, "-m", "pip", "list", "--format=freeze"]
        found = subprocess.run(listed, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    print("tried, with Python", sys.version.split()[0] + ":", " ".join(found))


if __name__ == "__main__":
    if sys.argv[1:2] not in (["lowest"], ["newest"]):
        raise SystemExit("got no kind of environment, expected lowest or newest")
    main(*sys.argv[1:])
