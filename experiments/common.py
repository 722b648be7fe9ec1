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
from bnnp.objectives import PPAVI
from bnnp.tasks.source import TaskSource
from bnnp.tasks.split import context_size, random_split
from bnnp.tasks.task import Split
from bnnp.training import FitSettings, fit, start_prior
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
    "switch": FitSettings(prior_start="switch"),
    "floor": FitSettings(prior_start="floor"),
    "place": FitSettings(prior_start="place"),
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
    hold_prior: bool = False,
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
        hold_prior: Whether the prior stays where the recipe starts it, or where it is already.
        seed: Of the start and of training.
        choices: Other arguments of `bnnp.fit`, and fields of `bnnp.FitSettings`.
    """
    state = folder / "models" / f"{name}-training"
    changed = {key: choices.pop(key) for key in vars(RECIPES[recipe]) if key in choices}
    settings = replace(RECIPES[recipe], **changed)
    if hold_prior:
        start_prior(model, tasks, settings.prior_start, seed)
        model.set_prior_learnability(0)
    fit(model, tasks, settings=settings, checkpoint=state, progress=shows_training.get(), seed=seed, **choices)
    if hold_prior:
        model.set_prior_learnability(1)
    model.save(model_file(folder, name))
    shutil.rmtree(state, ignore_errors=True)
    return model


def train_prior_first(
    model: Any,
    tasks: TaskSource,
    folder: Path,
    name: str,
    *,
    samples: int,
    steps: tuple[int, int],
    learning_rate: tuple[float, float],
    recipe: str = "default",
    seed: int = 0,
    **choices: Any,
) -> Any:
    """Learn the prior, mostly by the bounds of the contexts; then the inference under it, by all of the objective.

    The predictive term is a noisy sum over samples of products over targets. While the prior learns, its noise drowns
    what the KL says about the prior's scales; so it has a tenth of its weight, and the whole where the prior is fixed.
    """
    first, second = PPAVI(samples, predictive_weight=0.1), PPAVI(samples)
    train(
        model,
        tasks,
        folder,
        name,
        recipe=recipe,
        objective=first,
        steps=steps[0],
        learning_rate=learning_rate,
        seed=seed,
        **choices,
    )
    rates = (learning_rate[0] / 2, learning_rate[1] / 2)
    choices |= {"learning_rate": rates, "hold_prior": True, "seed": seed + 1}
    return train(model, tasks, folder, name, objective=second, steps=steps[1], **choices)


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
