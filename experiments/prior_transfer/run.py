"""Does a good prior help whatever the inference, and does inference still matter under it? (Paper, section 4.3.)"""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import bnnp
from bnnp._core.random import child
from bnnp.evaluation.oracle import Oracle
from bnnp.evaluation.scores import Predictor
from bnnp.inference import Effort, InferenceWarning, infer_many
from common import diagnosed, learn, learned_noise, score_sets, score_trivial, train
from harness import Run

from .claims import claims
from .climate import climate
from .data import NOISE, Tests, divided_training, tests_of, training_of
from .methods import methods_of, record
from .models import ACTIVATIONS, LEARNED, PRIORS, SOURCES, learned_model, name_of, standard_model
from .report import report

__all__ = ["claims", "report", "runs"]


def runs(settings: Mapping[str, Any]) -> dict[str, Run]:
    """Training in two ways; then every method under all priors, the trained models as they are, and what is trivial."""
    planned = {}
    for process, choices in settings["processes"].items():
        about = {"process": process, "tests": {"rain": settings["rain"], **settings["tests"]}}
        planned[f"{process}-trivial"] = Run(trivial, about)
        for seed in choices["seeds"]:
            own = {"process": process, "rain": settings["rain"], "seed": seed, "hidden": choices["hidden"]}
            own |= {"context_share": choices["context_share"]}
            training = {
                "recipe": Run(by_recipe, own | {"minutes": choices["recipe_minutes"]}),
                "paper": Run(as_the_paper, own | choices["paper"]),
            }
            for prior in PRIORS:
                needs: tuple[str, ...] = ()
                if prior in LEARNED:
                    needs = (f"train-{name_of(process, prior, seed)}",)
                    planned[needs[0]] = training[prior]
                    same = about | {"prior": prior, "seed": seed, "scored": settings["scored"]}
                    planned[f"{process}-pretrained-{prior}-{seed}"] = Run(pretrained, same, needs)
                for method, how in methods_of(choices, prior).items():
                    same = about | {"prior": prior, "seed": seed, "hidden": choices["hidden"], "method": method}
                    planned[f"{process}-{method}-{prior}-{seed}"] = Run(infer_sets, same | how, needs)
                if process == "climate":
                    same = {"rain": settings["rain"], "prior": prior, "seed": seed, "hidden": choices["hidden"]}
                    planned[f"climate-fields-{prior}-{seed}"] = Run(fields, same, needs)
    return planned


# --- the runs --------------------------------------------------------------------------------------------------------


def by_recipe(
    process: str,
    rain: str,
    seed: int,
    hidden: tuple[int, ...],
    context_share: tuple[float, float],
    minutes: float,
    folder: Path,
) -> dict[str, Any]:
    """`bnnp.learn`, with nothing chosen for the process."""
    name, tasks = name_of(process, "recipe", seed), training_of(process, rain)
    learned = learn(tasks, folder, name, hidden=hidden, minutes=minutes, context_share=context_share, seed=seed)
    return {"decisions": learned.decisions}


def as_the_paper(
    process: str,
    rain: str,
    seed: int,
    hidden: tuple[int, ...],
    context_share: tuple[float, float],
    steps: int,
    samples: int,
    learning_rate: tuple[float, float],
    folder: Path,
) -> dict[str, float]:
    """From the standard prior, by PP-AVI, everything free."""
    tasks = training_of(process, rain)
    model = bnnp.BNNP(tasks.in_size, 1, hidden, ACTIVATIONS[process], "unitwise", bnnp.Gaussian(NOISE), seed=seed)
    train(
        model,
        tasks,
        folder,
        name_of(process, "paper", seed),
        objective=bnnp.objectives.PPAVI(samples, group_size=None),
        steps=steps,
        learning_rate=learning_rate,
        context_share=context_share,
        seed=seed,
    )
    return {"noise": learned_noise(model)}


def pretrained(process: str, prior: str, seed: int, tests: dict[str, Any], scored: int, folder: Path) -> dict[str, Any]:
    """The trained model itself: no fitting to the test sets. At the noise of all others, and at its own."""
    model, data = learned_model(process, prior, seed, folder), tests_of(process, **tests)
    posteriors = [
        model.condition(split.context.x, split.context.y, num_samples=scored, seed=child(0, index))
        for index, split in enumerate(data.splits)
    ]
    varies = getattr(model.likelihood, "varies", False)
    same = None if varies else _scores(posteriors, data, NOISE)
    return {"own noise": _scores(posteriors, data), "noise 0.05": same}


def infer_sets(
    process: str,
    prior: str,
    seed: int,
    hidden: tuple[int, ...],
    tests: dict[str, Any],
    method: str,
    record: dict[str, Any],
    effort: dict[str, Any],
    samples: int,
    whitened: bool,
    folder: Path,
) -> dict[str, Any]:
    """All test sets of a process side by side, by one method under one prior."""
    data, given = tests_of(process, **tests), dict(record)
    if prior == "standard":
        model = standard_model(process, hidden)
    else:
        model = learned_model(process, prior, seed, folder)
        if method == "bnnp":
            given["start"] = model
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InferenceWarning)  # what speaks against a result is kept with it
        posteriors = infer_many(
            model.prior,
            model.network,
            [split.context for split in data.splits],
            method=_record(method, given),
            likelihood=bnnp.Gaussian(NOISE, learnable=False),
            num_samples=samples,
            effort=Effort(**effort),
            whitened=whitened,
            seed=seed,
        )
    return _scores(posteriors, data) | {"convergence": diagnosed([post.diagnostics for post in posteriors])}


_record = record  # a run's argument has the same name


def trivial(process: str, tests: dict[str, Any]) -> dict[str, Any]:
    """What needs no learning; and the exact posterior, where the process has one."""
    data, training = tests_of(process, **tests), divided_training(process, tests["rain"])
    found = {
        "all": score_trivial(training, data.splits, data.y_scale),
        "region": score_trivial(training, data.in_region, data.y_scale) if data.in_region else None,
    }
    if process in ("gp", "sawtooth"):
        exact = bnnp.evaluate(Oracle(SOURCES[process]()), data.splits, num_samples=100)
        found["all"]["exact posterior"] = exact.to_dict()
    return found


def fields(
    rain: str, prior: str, seed: int, hidden: tuple[int, ...], folder: Path, count: int = 200
) -> dict[str, dict[str, float]]:
    """How much of real and of drawn precipitation is negative, and how much is nearly none."""
    data = climate(rain)
    x = data.tests.tasks[0].x
    standard = prior == "standard"
    model = standard_model("climate", hidden) if standard else learned_model("climate", prior, seed, folder)
    drawn = {
        "ERA5-Land": np.concatenate([task.y.numpy() for task in data.training.tasks]),
        prior: np.concatenate([f(x) for f in model.prior.functions(count, seed=0)]),
    }
    millimetres = {name: data.millimetres(values) for name, values in drawn.items()}
    return {
        name: {"below -0.1 mm": float((fall < -0.1).mean()), "within 0.1 mm of none": float((abs(fall) < 0.1).mean())}
        for name, fall in millimetres.items()
    }


def _scores(posteriors: Sequence[Predictor], data: Tests, noise: float | None = None) -> dict[str, Any]:
    return {
        "all": score_sets(posteriors, data.splits, data.y_scale, noise),
        "region": score_sets(posteriors, data.in_region, data.y_scale, noise) if data.in_region else None,
    }
