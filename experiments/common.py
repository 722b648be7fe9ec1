"""What several experiments do alike: fixed random tests, training of a kept model, scores of many posteriors.

All models are learned in one of two ways: by the one recipe (`learn`), or as the paper does (`train`): from the
standard prior, by PP-AVI, everything free, for a stated number of steps.
"""

import math
import shutil
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

import bnnp
from baselines import trivial_models
from bnnp._core.random import child
from bnnp.evaluation.score import score, with_noise
from bnnp.evaluation.scores import Predictor, Scores
from bnnp.inference.base import Diagnostics
from bnnp.prediction import ExtrapolationWarning
from bnnp.recipe import ACTIVATIONS
from bnnp.tasks.source import TaskSource
from bnnp.tasks.split import context_size, random_split
from bnnp.tasks.task import Split
from bnnp.training import FitSettings, fit
from harness import shows_training, trainings


def fixed_tests(source: TaskSource, count: int, context_share: tuple[float, float], seed: int) -> list[Split]:
    """Tasks and contexts that are the same whenever they are asked for."""
    size = context_size(context_share)
    drawn = source.draw(count, child(seed, 0))
    return [random_split(task, size, child(seed, 1, i)) for i, task in enumerate(drawn)]


def model_file(folder: Path, name: str) -> Path:
    return folder / "models" / f"{name}.bnnp"


PAPER = FitSettings(prior_start="standard", clip_norm=None, optimiser=torch.optim.Adam)
"""How the paper trains, where the library's defaults differ (`docs/training.md`)."""
OURS = FitSettings(prior_start="standard")
"""The library's optimiser from the paper's start."""
TRAININGS = {"paper": PAPER, "ours": OURS}
LAST, QUARTER = 0.1, 0.25
"""The shares of an inference and of a training over whose ends the slope of the bound is measured."""


def train(
    model: Any,
    tasks: TaskSource,
    folder: Path,
    name: str,
    *,
    way: str = "paper",
    seed: int = 0,
    **choices: Any,
) -> Any:
    """`bnnp.fit`, the model being kept in the folder; one that was stopped goes on from there.

    Args:
        model: The model to train.
        tasks: What it learns from.
        folder: Of the experiment's results.
        name: Of the model's file.
        way: Settings that others change (`TRAININGS`).
        seed: Of the start and of training.
        choices: Other arguments of `bnnp.fit`, and fields of `bnnp.FitSettings`.
    """
    state = folder / "models" / f"{name}-training"
    changed = {key: choices.pop(key) for key in vars(TRAININGS[way]) if key in choices}
    settings = replace(TRAININGS[way], **changed)
    done = fit(model, tasks, settings=settings, checkpoint=state, progress=shows_training.get(), seed=seed, **choices)
    note_end(done.history)
    model.save(model_file(folder, name))
    shutil.rmtree(state, ignore_errors=True)
    return model


def note_end(history: bnnp.History) -> None:
    """Note in the record of the run how much the objective still rose over the last quarter of a training's steps."""
    ends, steps = trainings.get(), history.steps
    if ends is not None and len(steps) > 1:
        every = (steps[-1]["step"] - steps[0]["step"]) / (len(steps) - 1)
        slope, error = last_slope([record["objective"] for record in steps], every, QUARTER)
        ends.append(
            {"steps": steps[-1]["step"], "slope": slope, "slope_error": error if math.isfinite(error) else None}
        )


def learn(
    tasks: TaskSource,
    folder: Path,
    name: str,
    *,
    hidden: Sequence[int],
    minutes: float,
    context_share: Any = (0.1, 0.5),
    seed: int = 0,
) -> bnnp.Learned[bnnp.BNNP]:
    """`bnnp.learn` with the models that `bnnp train` tries, nothing chosen for the process; the model is kept."""
    models = [
        bnnp.BNNP(tasks.in_size, tasks.out_size, tuple(hidden), activation, last_layer="likelihood", seed=seed)
        for activation in ACTIVATIONS
    ]
    state = folder / "models" / f"{name}-rounds"
    learned = bnnp.learn(
        models,
        tasks,
        minutes=minutes,
        context_share=context_share,
        folder=state,
        progress=shows_training.get(),
        seed=seed,
    )
    learned.model.save(model_file(folder, name))
    shutil.rmtree(state, ignore_errors=True)
    return learned


def learned_noise(model: Any) -> float:
    """Of a model with a Gaussian likelihood that has one noise for all."""
    return model.likelihood.noise.item()


def score_trivial(training: Sequence[Split], tests: Sequence[Split], y_scale: float = 1.0) -> dict[str, dict[str, Any]]:
    """Scores of all that needs no learning, by name."""
    found = {}
    for name, model in trivial_models(training).items():
        posteriors = [model.condition(split.context.x, split.context.y) for split in tests]
        found[name] = score_sets(posteriors, tests, y_scale)
    return found


def diagnosed(diagnostics: Sequence[Diagnostics]) -> dict[str, float | int | None]:
    """How the inference of several data sets went: the worst of each number over them.

    `slope` is how much the bound, or the log density that is climbed, still rose over the last tenth of the steps, in
    nats per thousand steps, with its standard error: the mean over data sets, since the steepest of many rises by
    chance. `doubtful` counts the data sets with a warning.
    """
    rhats = [one.rhat for one in diagnostics if one.rhat is not None]
    sizes = [one.ess for one in diagnostics if one.ess is not None]
    accepted = [float(one.acceptance.mean()) for one in diagnostics if one.acceptance is not None]
    slopes = [last_slope(one.elbo.tolist()) for one in diagnostics if one.elbo is not None and len(one.elbo) > 1]
    slope = float(np.mean([found for found, _ in slopes])) if slopes else None
    error = math.sqrt(sum(e**2 for _, e in slopes)) / len(slopes) if slopes else None
    return {
        "rhat": max(rhats, default=None),
        "ess": min(sizes, default=None),
        "acceptance": min(accepted, default=None),
        "slope": slope,
        "slope_error": error,
        "doubtful": sum(bool(one.warnings) for one in diagnostics),
        "sets": len(diagnostics),
    }


def last_slope(bounds: Sequence[float], every: float = 1.0, share: float = LAST) -> tuple[float, float]:
    """The slope of the end of a path of bounds, in nats per thousand steps, by least squares, and its error.

    The error is that of independent estimates of the bound; it is infinite with two of them. `every`: the steps from
    one bound to the next. `share`: of the path, that is its end.
    """
    values = np.array(bounds[-max(2, math.ceil(share * len(bounds))) :])
    steps = every * (np.arange(len(values)) - (len(values) - 1) / 2) / 1000
    slope = float(steps @ values / (steps @ steps))
    rest = values - values.mean() - slope * steps
    free = len(values) - 2
    return slope, math.sqrt(float(rest @ rest) / free / float(steps @ steps)) if free else math.inf


def score_sets(
    posteriors: Sequence[Predictor], splits: Sequence[Split], y_scale: float = 1.0, noise: float | None = None
) -> dict[str, Any]:
    """Scores of posteriors at the targets of their data sets, as `Scores.to_dict` has them.

    y_scale: errors are multiplied by it, so that they are in original units while log-densities are per standard one.
    noise: of observations, where it is not the posteriors' own.
    """
    rows = []
    for index, (post, split) in enumerate(zip(posteriors, splits, strict=True)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExtrapolationWarning)  # tests may lie outside the training inputs
            predictive = post.predict(split.target.x)
        predictive = predictive if noise is None else with_noise(predictive, noise)
        rows.append(score(predictive, split.target.y, child(0, index)))
    frame = pd.DataFrame(rows, index=[split.target.name or str(i) for i, split in enumerate(splits)])
    for name in ("mae", "rmse", "crps"):
        frame[name] *= y_scale
    return Scores(frame).to_dict()
