"""The demonstration: a few minutes of meta-training on sawtooth tasks, scored against the exact posterior."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from bnnp import plots
from bnnp._core.files import write_atomically
from bnnp.evaluation import Oracle, Scores, evaluate
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.bnnp import BNNP
from bnnp.tasks.datasets.paper_tests import sawtooth_tests
from bnnp.tasks.synthetic import sawtooth
from bnnp.training import FitResult, FitSettings, fit

if TYPE_CHECKING:
    import pandas as pd

HIDDEN = (48, 48)
STEPS = 1500
SETTINGS = FitSettings(learning_rate=(2e-3, 1e-4), prior_lr_multiplier=3.0)
TABLE_COLUMNS = ("pooled_lppd", "marginal_lppd", "joint_lppd", "mae", "rmse", "crps", "coverage_90")


@dataclass(frozen=True)
class Demo:
    """The results of the demonstration.

    Attributes:
        scores: Scores by row of the table.
        files: The files that were written.
    """

    scores: Mapping[str, Scores]
    files: list[Path]

    def table(self) -> "pd.DataFrame":
        """The scores, one row per model."""
        import pandas as pd

        rows = {row: {name: scores[name] for name in TABLE_COLUMNS} for row, scores in self.scores.items()}
        return pd.DataFrame.from_dict(rows, orient="index")


def run(out: str | Path, *, steps: int = STEPS, progress: bool = True, seed: int = 0) -> Demo:
    """Train a learned and a standard prior on sawtooth tasks, score both beside the oracle, and write figures.

    Args:
        out: Folder for the files.
        steps: Number of training steps for each prior.
        progress: Whether to say what is being done, with progress bars.
        seed: Seed of all randomness.

    Returns:
        The scores and the files.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    source, tests = sawtooth(), sawtooth_tests()
    say = print if progress else (lambda _: None)
    say("1 of 3: learning a prior, an amortised posterior and the noise from sawtooth tasks")
    learned = train(learnable=True, steps=steps, progress=progress, seed=seed)
    say("2 of 3: the same with the prior fixed at the standard one, for comparison")
    standard = train(learnable=False, steps=steps, progress=progress, seed=seed)
    say("3 of 3: scoring both beside the exact posterior on the paper's 16 test sets")
    scores = {
        "oracle": evaluate(Oracle(source), tests),
        "learned prior": evaluate(learned.model, tests),
        "learned prior, scored at noise 0.05": evaluate(learned.model, tests, noise=source.noise),
        "standard prior": evaluate(standard.model, tests),
    }
    model = learned.model
    grid = np.linspace(source.low, source.high, 400)
    predictions = [
        (model.condition(s.context.x, s.context.y, seed=seed).predict(s.target.x), s.target.y.numpy())
        for s in tests.splits
    ]
    true = source.draw(5, torch.Generator().manual_seed(seed))
    figures = {
        "functions.png": plots.overview(model.prior.functions(5, seed), model, tests.splits[:3], grid, true=true),
        "calibration.png": plots.calibration(predictions),
        "history.png": plots.history(learned.history),
    }
    demo = Demo(scores, [plots.save_figure(figure, folder / name) for name, figure in figures.items()])
    demo.files.append(write_atomically(folder / "scores.csv", demo.table().to_csv()))
    demo.files.append(model.save(folder / "sawtooth.bnnp"))
    return demo


def train(*, learnable: bool, steps: int, progress: bool, seed: int) -> FitResult:
    """Train a model on sawtooth tasks.

    Args:
        learnable: Whether the prior is learned; otherwise the standard prior is kept, and only the rest is learned.
        steps: Number of training steps.
        progress: Whether to show a progress bar.
        seed: Seed of all randomness.

    Returns:
        The trained model and its history.
    """
    model = BNNP(1, 1, HIDDEN, prior="unitwise" if learnable else "factorised", likelihood=Gaussian(0.05), seed=seed)
    model.set_prior_learnability(1.0 if learnable else 0.0)
    return fit(model, sawtooth(), steps=steps, settings=SETTINGS, progress=progress, seed=seed)
