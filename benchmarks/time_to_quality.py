"""Scores against seconds of training, for the library's recipe and for the paper's, on the same code.

    python benchmarks/time_to_quality.py run sawtooth default --steps 10000 --out default.json
    python benchmarks/time_to_quality.py run sawtooth paper --steps 100000 --minutes 60 --out paper.json
    python benchmarks/time_to_quality.py run wide-gp default --steps 2400 --every 100 --seed 0 --out gp-0.json
    python benchmarks/time_to_quality.py draw figure.png default.json paper.json

Data: sawtooth (tested on the paper's 16 sets), gp, heaviside (16 fresh tasks each), wide-gp (inputs in [-5, 5], 64
fresh tasks), few (16 sawtooth data sets in all to learn from, tested on the paper's sets), ecg (16 fresh heartbeats).
Networks have two hidden layers of 48 units. Scores are at the learned noise, with the last layer integrated given as
many samples of the hidden layers as each task needs; where the process has an exact posterior, `gap` is what its
marginal LPPD is above the model's. CPU seconds are those of training alone: run with OMP_NUM_THREADS=1.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import torch
from matplotlib.ticker import NullFormatter, StrMethodFormatter

import bnnp
from bnnp import Oracle
from bnnp._core.random import child
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models import AmortisedModel
from bnnp.objectives import PPAVI
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.split import context_size, random_split
from bnnp.tasks.task import Split

ACTIVATIONS = {"sawtooth": "relu", "few": "relu", "gp": "silu", "wide-gp": "silu", "heaviside": "tanh", "ecg": "tanh"}
RECIPES = {
    "default": bnnp.FitSettings(),
    "fast-prior": bnnp.FitSettings(prior_lr_multiplier=3.0, learning_rate=(2e-3, 3e-5)),
    "sampled": bnnp.FitSettings(),
    "standard-start": bnnp.FitSettings(prior_start="standard"),
    "empirical": bnnp.FitSettings(prior_start="empirical", learning_rate=(1e-3, 1e-5)),
    "paper": bnnp.FitSettings(
        prior_start="standard", clip_norm=None, optimiser=torch.optim.Adam, learning_rate=(3e-3, 5e-5)
    ),
}
OBJECTIVES = {
    "paper": PPAVI(32, integrate=False, group_size=None),
    "sampled": PPAVI(10, integrate=False, group_size=None),  # nothing integrated, as the defaults were before
}


def source_and_tests(data: str) -> tuple[TaskSource, Collection | list[Split]]:
    if data in ("sawtooth", "few"):
        endless = bnnp.tasks.sawtooth()
        source = Collection(tuple(endless.draw(16, child(1))), ("x",), ("y",)) if data == "few" else endless
        return source, bnnp.tasks.sawtooth_tests()
    source = {
        "gp": lambda: bnnp.tasks.gp(low=-4, high=4),
        "wide-gp": bnnp.tasks.gp,
        "heaviside": lambda: bnnp.tasks.heaviside(noise=0.05),
        "ecg": bnnp.tasks.ecg,
    }[data]()
    size, count = (context_size((0.1, 0.5)), 64) if data == "wide-gp" else (context_size((0.05, 0.5)), 16)
    return source, [random_split(task, size, child(2, i)) for i, task in enumerate(source.draw(count, child(3)))]


def best_possible(source: Any, tests: Collection | list[Split]) -> float | None:
    """Marginal LPPD of the exact posterior, if the source knows it."""
    return bnnp.evaluate(Oracle(source), tests)["marginal_lppd"] if hasattr(source, "oracle") else None


def model_of(options: argparse.Namespace) -> AmortisedModel:
    if options.start:
        return bnnp.load(options.start)
    likelihood = bnnp.Gaussian(0.05, max_noise=options.max_noise)
    return bnnp.BNNP(1, 1, (48, 48), ACTIVATIONS[options.data], likelihood=likelihood, seed=options.seed)


def objective_of(options: argparse.Namespace) -> PPAVI:
    objective = OBJECTIVES.get(options.recipe, PPAVI())
    if options.samples:
        objective = replace(objective, num_samples=options.samples)
    return replace(objective, integrate=False) if options.by_samples else objective


def settings_of(options: argparse.Namespace, evaluation: Callable[[Any], dict[str, float]]) -> bnnp.FitSettings:
    settings = replace(RECIPES[options.recipe], evaluation=bnnp.Evaluation(evaluation, options.every))
    if not options.learning_rate:
        return settings
    first, last = (float(rate) for rate in options.learning_rate.split(","))
    return replace(settings, learning_rate=(first, last))


class Clock:
    """Scores a model during training, counts the CPU seconds between its calls, and ends training after `minutes`."""

    def __init__(self, tests: Collection | list[Split], best: float | None, minutes: float):
        self.tests, self.best, self.minutes = tests, best, minutes
        self.started, self.spent = time.process_time(), 0.0

    def __call__(self, model: AmortisedModel) -> dict[str, float]:
        self.spent += time.process_time() - self.started
        if self.spent > 60 * self.minutes:
            raise KeyboardInterrupt  # training ends as if by hand, and keeps what it has
        values = {**self.scores(model), "cpu_seconds": self.spent}
        print(json.dumps({name: round(value, 4) for name, value in values.items()}), flush=True)
        self.started = time.process_time()
        return values

    def scores(self, model: AmortisedModel) -> dict[str, float]:
        scores = bnnp.evaluate(model, self.tests, seed=0)
        assert isinstance(model.likelihood, Gaussian)
        noise = model.likelihood.noise.detach() * model.columns.y_scale
        values = {name: scores[f"{name}_lppd"] for name in ("pooled", "marginal", "joint")}
        gap = {} if self.best is None else {"gap": self.best - values["marginal"]}
        return {**values, **gap, "mae": scores["mae"], "noise": float(noise.mean())}


def run(options: argparse.Namespace) -> None:
    source, tests = source_and_tests(options.data)
    model, objective = model_of(options), objective_of(options)
    result = bnnp.fit(
        model,
        source,
        objective=objective,
        steps=options.steps,
        context_share=(0.1, 0.5) if options.data == "wide-gp" else (0.05, 0.5),
        settings=settings_of(options, Clock(tests, best_possible(source, tests), options.minutes)),
        seed=options.seed,
        progress=options.progress,
        checkpoint=options.checkpoint,
    )
    if options.save:
        model.save(options.save)
    record = {name: getattr(options, name) for name in ("data", "recipe", "steps", "seed")}
    record |= {"objective": repr(objective), "evaluations": result.history.evaluations}
    Path(options.out).write_text(json.dumps(record, indent=1))


def draw(options: argparse.Namespace) -> None:
    records = [json.loads(Path(path).read_text()) for path in options.records]
    data = list(dict.fromkeys(record["data"] for record in records))
    figure, panels = plt.subplots(2, len(data), figsize=(4 * len(data), 6), layout="constrained", squeeze=False)
    for column, name in enumerate(data):
        for record in records:
            if record["data"] == name:
                seconds = [row["cpu_seconds"] for row in record["evaluations"]]
                label = f"{record['recipe']}, {record['steps']:,} steps"
                for panel, score in zip(panels[:, column], ("pooled", "mae"), strict=True):
                    panel.semilogx(seconds, [row[score] for row in record["evaluations"]], ".-", label=label)
        panels[0][column].set_title(name)
        for panel in panels[:, column]:
            panel.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            panel.xaxis.set_minor_formatter(NullFormatter())
        panels[1][column].set_xlabel("CPU seconds, one core")
        panels[1][column].legend(fontsize=8)
    panels[0][0].set_ylabel("pooled LPPD, learned noise")
    panels[1][0].set_ylabel("mean absolute error")
    figure.savefig(options.figure, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    runner = verbs.add_parser("run")
    runner.add_argument("data", choices=ACTIVATIONS)
    runner.add_argument("recipe", choices=RECIPES)
    runner.add_argument("--steps", type=int, default=10_000)
    runner.add_argument("--samples", type=int, default=0)
    runner.add_argument("--by-samples", action="store_true", help="do not integrate the last layer, all else equal")
    runner.add_argument("--minutes", type=float, default=float("inf"), help="of CPU time, after which training ends")
    runner.add_argument("--every", type=int, default=500)
    runner.add_argument("--max-noise", type=float, help="bound on the learned noise")
    runner.add_argument("--learning-rate", help="first and last, as in 2e-3,2e-5, in place of the recipe's")
    runner.add_argument("--start", help="file of a model to train further, in place of a new one")
    runner.add_argument("--save", help="file for the trained model")
    runner.add_argument("--seed", type=int, default=0)
    runner.add_argument("--progress", action="store_true")
    runner.add_argument("--checkpoint", help="folder; a run that was stopped goes on from it")
    runner.add_argument("--out", required=True)
    runner.set_defaults(call=run)
    drawer = verbs.add_parser("draw")
    drawer.add_argument("figure")
    drawer.add_argument("records", nargs="+")
    drawer.set_defaults(call=draw)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
