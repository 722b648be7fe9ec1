"""What several experiments do alike: fixed random tests, training of a kept model, scores of many posteriors."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from bnnp._core.random import child
from bnnp.evaluation.score import score, with_noise
from bnnp.evaluation.scores import Posterior, Scores
from bnnp.tasks.source import TaskSource
from bnnp.tasks.split import context_size, random_split
from bnnp.tasks.task import Split
from bnnp.training import FitSettings, fit
from harness import shows_training


def fixed_tests(source: TaskSource, count: int, context_share: tuple[float, float], seed: int) -> list[Split]:
    """Tasks and contexts that are the same whenever they are asked for."""
    size = context_size(context_share)
    drawn = source.draw(count, child(seed, 0))
    return [random_split(task, size, child(seed, 1, i)) for i, task in enumerate(drawn)]


def model_file(folder: Path, name: str) -> Path:
    return folder / "models" / f"{name}.bnnp"


RECIPES = {
    "default": FitSettings(),
    "standard start": FitSettings(prior_start="standard"),
    "paper": FitSettings(prior_start="standard", clip_norm=None, optimiser=torch.optim.Adam),
}
"""How training differs between the library's defaults and the paper (`docs/training.md`)."""


def train(
    model: Any,
    tasks: TaskSource,
    folder: Path,
    name: str,
    *,
    recipe: str = "default",
    seed: int = 0,
    **choices: Any,
) -> Any:
    """`bnnp.fit`, the model being kept in the folder; one that was stopped goes on from there.

    Args:
        model: The model to train.
        tasks: What it learns from.
        folder: Of the experiment's results.
        name: Of the model's file.
        recipe: Settings that others change (`RECIPES`).
        seed: Of the start and of training.
        choices: Other arguments of `bnnp.fit`, and fields of `bnnp.FitSettings`.
    """
    state = folder / "models" / f"{name}-training"
    changed = {key: choices.pop(key) for key in vars(RECIPES[recipe]) if key in choices}
    settings = replace(RECIPES[recipe], **changed)
    fit(model, tasks, settings=settings, checkpoint=state, progress=shows_training.get(), seed=seed, **choices)
    model.save(model_file(folder, name))
    shutil.rmtree(state, ignore_errors=True)
    return model


def learned_noise(model: Any) -> float:
    """Of a model with a Gaussian likelihood that has one noise for all."""
    return model.likelihood.noise.item()


def score_sets(
    posteriors: Sequence[Posterior], splits: Sequence[Split], y_scale: float = 1.0, noise: float | None = None
) -> dict[str, Any]:
    """Scores of posteriors at the targets of their data sets, as `Scores.to_dict` has them.

    y_scale: errors are multiplied by it, so that they are in original units while log-densities are per standard one.
    noise: of observations, where it is not the posteriors' own.
    """
    rows = []
    for index, (post, split) in enumerate(zip(posteriors, splits, strict=True)):
        predictive = post.predict(split.target.x)
        predictive = predictive if noise is None else with_noise(predictive, noise)
        rows.append(score(predictive, split.target.y, child(0, index)))
    frame = pd.DataFrame(rows, index=[split.target.name or str(i) for i, split in enumerate(splits)])
    for name in ("mae", "rmse", "crps"):
        frame[name] *= y_scale
    return Scores(frame).to_dict()
