"""Does a good prior help whatever the inference, and does inference still matter under it? (Paper, section 4.3.)"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bnnp
from bnnp._core.random import child
from bnnp.evaluation.oracle import Oracle
from bnnp.evaluation.scores import Posterior
from bnnp.inference import Effort, InferenceWarning, infer_many
from bnnp.tasks.task import Split
from common import fixed_tests, learned_noise, score_sets, train
from harness import Run

from .climate import climate
from .methods import record, settings
from .models import ACTIVATIONS, HIDDEN, PRIORS, SOURCES, learned_model, standard_model
from .report import report

__all__ = ["report", "runs"]

NOISE, TEST_SEED, TESTS, SAMPLES = 0.05, 69, 16, 1000
TRAINING: dict[str, dict[str, dict[str, Any]]] = {
    "smoke": {
        name: {"steps": 3, "samples": 2, "learning_rate": (3e-3, 1e-4), "context_share": (0.1, 0.6)}
        for name in ("gp", "climate")
    },
    "small": {  # the models of the synthetic processes are those that ship, `zoo:gp` and so on
        "climate": {
            "steps": 2000,
            "samples": 8,
            "learning_rate": (3e-3, 1e-4),
            "context_share": (0.0, 0.25),
        },
    },
    "paper": {
        **{
            name: {
                "steps": 100_000,
                "samples": 32,
                "learning_rate": (3e-3, 5e-5),
                "context_share": (0.1, 0.6),
                "recipe": "paper",
            }
            for name in SOURCES
        },
        "climate": {
            "steps": 250_000,
            "samples": 24,
            "learning_rate": (1e-3, 1e-5),
            "context_share": (0.01, 0.5),
            "recipe": "paper",
        },
    },
}


def runs(scale: str) -> dict[str, Run]:
    """Training where it is needed; then every method under both priors, and the trained model as it is."""
    planned = {
        f"train-{process}": Run(train_prior, {"process": process, "scale": scale, **choices})
        for process, choices in TRAINING[scale].items()
    }
    for process in HIDDEN[scale]:
        needs = (f"train-{process}",) if process in TRAINING[scale] else ()
        planned[f"{process}-pretrained"] = Run(pretrained, {"process": process, "scale": scale}, needs)
        if process in ("gp", "sawtooth"):
            planned[f"{process}-exact"] = Run(exact, {"process": process, "scale": scale})
        if process == "climate":
            planned["climate-fields"] = Run(fields, {"scale": scale}, needs)
        for prior in PRIORS:
            for method, choices in settings(scale, process, prior).items():
                planned[f"{process}-{method}-{prior}"] = Run(
                    infer_sets,
                    {"process": process, "scale": scale, "prior": prior, "method": method, **choices},
                    needs if prior == "learned" else (),
                )
    return planned


# --- the runs --------------------------------------------------------------------------------------------------------


def train_prior(
    process: str,
    scale: str,
    steps: int,
    samples: int,
    learning_rate: tuple[float, float],
    context_share: tuple[float, float],
    folder: Path,
    recipe: str = "default",
) -> dict[str, float]:
    """Meta-learn a prior, and keep the model."""
    tasks = climate(scale).training if process == "climate" else SOURCES[process]()
    likelihood = bnnp.Gaussian(NOISE)
    model = bnnp.BNNP(
        tasks.in_size, 1, HIDDEN[scale][process], ACTIVATIONS[process], "unitwise", likelihood, seed=TEST_SEED
    )
    train(
        model,
        tasks,
        folder,
        process,
        objective=bnnp.objectives.PPAVI(samples),
        steps=steps,
        learning_rate=learning_rate,
        context_share=context_share,
        recipe=recipe,
        seed=TEST_SEED,
    )
    return {"noise": learned_noise(model)}


def pretrained(process: str, scale: str, folder: Path) -> dict[str, Any]:
    """The trained model itself: no fitting to the test sets."""
    model, data = learned_model(process, folder), tests(process, scale)
    posteriors = [
        model.condition(split.context.x, split.context.y, num_samples=_samples(scale), seed=child(0, index))
        for index, split in enumerate(data.splits)
    ]
    return {
        "noise": learned_noise(model),
        "own noise": _scores(posteriors, data),
        "noise 0.05": _scores(posteriors, data, NOISE),
    }


def exact(process: str, scale: str) -> dict[str, Any]:
    """The best possible: the exact posterior of the process."""
    return bnnp.evaluate(
        Oracle(SOURCES[process]()), tests(process, scale).splits, num_samples=_samples(scale)
    ).to_dict()


def infer_sets(
    process: str,
    scale: str,
    prior: str,
    method: str,
    record: dict[str, Any],
    effort: dict[str, Any],
    samples: int,
    whitened: bool,
    folder: Path,
) -> dict[str, Any]:
    """All test sets of a process side by side, by one method under one prior."""
    data = tests(process, scale)
    splits = data.splits
    if prior == "learned":
        model = learned_model(process, folder)
        if method == "bnnp":
            record = record | {"start": model}
    else:
        model = standard_model(process, scale)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)  # what speaks against a result is kept with it
        posteriors = infer_many(
            model.prior,
            model.network,
            [split.context for split in splits],
            method=_record(method, record),
            likelihood=bnnp.Gaussian(NOISE, learnable=False),
            num_samples=samples,
            effort=Effort(**effort),
            whitened=whitened,
            seed=TEST_SEED,
        )
    return _scores(posteriors, data) | {"warnings": sum(bool(post.diagnostics.warnings) for post in posteriors)}


_record = record  # a run's argument has the same name


def fields(scale: str, folder: Path, count: int = 200) -> dict[str, dict[str, float]]:
    """How much of real and of drawn precipitation is negative, and how much is nearly none."""
    data = climate(scale)
    x = data.tests.tasks[0].x
    drawn = {"ERA5-Land": np.concatenate([task.y.numpy() for task in data.training.tasks])}
    for prior, model in (
        ("standard prior", standard_model("climate", scale)),
        ("learned prior", learned_model("climate", folder)),
    ):
        drawn[prior] = np.concatenate([f(x) for f in model.prior.functions(count, seed=0)])
    millimetres = {name: data.millimetres(values) for name, values in drawn.items()}
    return {
        name: {"below -0.1 mm": float((rain < -0.1).mean()), "within 0.1 mm of none": float((abs(rain) < 0.1).mean())}
        for name, rain in millimetres.items()
    }


class Tests:
    """Test sets with fixed contexts; `in_region` are the same with the targets of the left-out region alone."""

    def __init__(self, splits: list[Split], in_region: list[Split], y_scale: float = 1.0):
        self.splits, self.in_region, self.y_scale = splits, in_region, y_scale


def tests(process: str, scale: str) -> Tests:
    count, points = (2, 12) if scale == "smoke" else (TESTS, 50)
    if process == "climate":
        found = climate(scale)
        splits = list(found.tests.splits)
        pairs = zip(splits, found.inside, strict=True)
        return Tests(splits, [replace(s, target=s.target.take(torch.from_numpy(i))) for s, i in pairs], found.y_scale)
    if process == "sawtooth":
        return Tests(list(bnnp.tasks.sawtooth_tests().splits)[:count], [])
    source = SOURCES[process](noise=NOISE, low=-4.0, high=4.0, points=(points, points))
    share = (0.3, 0.5) if scale == "smoke" else (0.05, 0.5)
    return Tests(fixed_tests(source, count, share, TEST_SEED), [])


def _scores(posteriors: Sequence[Posterior], data: Tests, noise: float | None = None) -> dict[str, Any]:
    return {
        "all": score_sets(posteriors, data.splits, data.y_scale, noise),
        "region": score_sets(posteriors, data.in_region, data.y_scale, noise) if data.in_region else None,
    }


def _samples(scale: str) -> int:
    return 10 if scale == "smoke" else SAMPLES
