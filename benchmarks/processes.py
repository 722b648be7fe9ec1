"""What benchmarks learn from by the one recipe, and how they score it: `recipe.py`, `zoo.py` and `true_prior.py`."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from scipy.spatial.distance import cdist

import bnnp
from bnnp._core.random import child
from bnnp.evaluation.oracle import ExactSource
from bnnp.models import MetaLearner
from bnnp.priors.base import Prior
from bnnp.recipe import ACTIVATIONS
from bnnp.tasks.source import Collection, Functions, TaskSource
from bnnp.tasks.split import context_size, random_split
from bnnp.tasks.synthetic import Synthetic

RAIN = Path("era5_land_serbia") / "era5land_serbia_202001_t2m_tp.nc"


def rain(split: str) -> Collection:
    """Maps of precipitation of one month, of which a sixth of the points is known."""
    file = Path(os.environ["BNNP_DATA"]) / RAIN
    return bnnp.tasks.era5(split, files=file, hold_out=None)


SOURCES: dict[str, Callable[[], TaskSource]] = {
    "gp_0.5": lambda: bnnp.tasks.gp(low=-2, high=2, length_scale=0.5),
    "gp": bnnp.tasks.gp,
    "gp_0.25": lambda: bnnp.tasks.gp(low=-2, high=2, length_scale=0.25),
    "sawtooth": bnnp.tasks.sawtooth,
    "heaviside": bnnp.tasks.heaviside,
    "bnn": bnnp.tasks.bnn,
    "ecg": bnnp.tasks.ecg,
    "curves": bnnp.tasks.curves,
    "rain": lambda: rain("train"),
}
LEVELS = {"heaviside": (-1.0, 1.0), "rain": (0.0,)}
Span = tuple[float, float]
TESTS, SHARE, GRID, THIN, FUNCTIONS, CLOSE = 64, (0.1, 0.5), 256, 3, 1024, 0.1


def run(
    name: str, minutes: float, seed: int, out: Path, hidden: tuple[int, ...] = (64, 64), share: Span = SHARE
) -> None:
    """Learn from a source, score the model and write a record.

    Args:
        name: Name of the source.
        minutes: Time after which no new round of training begins.
        seed: Seed of the training.
        out: The folder of records and models.
        hidden: Units of the hidden layers.
        share: Shares of the points of a task that are known in training.
    """
    source, size = SOURCES[name](), context_size(SHARE)
    tests = [random_split(task, size, child(2, i)) for i, task in enumerate(source.draw(TESTS, child(3)))]
    if name == "rain":
        tests = rain("test")
    models = [
        bnnp.BNNP(source.in_size, source.out_size, hidden, activation, last_layer="likelihood", seed=seed)
        for activation in ACTIVATIONS
    ]
    began = time.process_time()
    learned = bnnp.learn(models, source, minutes=minutes, context_share=share, seed=seed)
    seconds, scores = time.process_time() - began, bnnp.evaluate(learned.model, tests, seed=0)
    best = bnnp.evaluate(bnnp.Oracle(source), tests)["marginal_lppd"] if isinstance(source, ExactSource) else None
    kept = {key: scores[key] for key in ("marginal_lppd", "pooled_lppd", "mae", "coverage_90")}
    record = {"source": name, "minutes": minutes, "seed": seed, "cpu_seconds": seconds, "oracle": best, **kept}
    record |= {"prior": prior_quality(name, source, learned.model)}
    record |= {"decisions": learned.decisions, "torch": torch.__version__}
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{name}-{minutes:g}-{seed}.json").write_text(json.dumps(record, indent=1))
    learned.model.save(out / f"{name}-{minutes:g}-{seed}.bnnp")
    print(json.dumps(record, indent=1))


def prior_quality(name: str, source: TaskSource, model: MetaLearner) -> dict[str, float]:
    """How draws of the prior resemble the process, at the inputs of a task."""
    prior, x = model.weight_prior, source.draw(1, child(5))[0].x
    assert prior is not None
    found: dict[str, float] = {}
    if name in LEVELS:
        drawn = functions_of(prior, x)
        distance = np.abs(drawn[..., None] - np.array(LEVELS[name])).min(-1)
        found |= {
            "near_level": float((distance < CLOSE).mean()),
            "below": float((drawn < LEVELS[name][0] - CLOSE).mean()),
        }
    if isinstance(source, Functions):
        x, true = whole_functions(source)
        drawn = functions_of(prior, x)
        found["energy_distance"] = energy_distance(true[:FUNCTIONS], drawn)
        found["energy_distance_of_process"] = energy_distance(true[:FUNCTIONS], true[FUNCTIONS:])
        if name in LEVELS:
            found["jumps"] = jumps(drawn) / jumps(true)
    return found


def functions_of(prior: Prior, x: torch.Tensor) -> np.ndarray:
    """Draws of the prior at inputs."""
    return np.stack([function(x)[:, 0] for function in prior.functions(FUNCTIONS, seed=1)])


def whole_functions(source: Functions) -> tuple[torch.Tensor, np.ndarray]:
    """A grid of inputs, and draws of the process there without noise; with it, where all tasks have the same inputs."""
    if isinstance(source, Synthetic):
        x = torch.linspace(source.low, source.high, GRID, dtype=torch.float64)[:, None]
        return x, np.stack([source.values(x, child(6, i))[:, 0].numpy() for i in range(2 * FUNCTIONS)])
    tasks = source.draw(2 * FUNCTIONS, child(6))
    return tasks[0].x[::THIN], np.stack([task.y[::THIN, 0].numpy() for task in tasks])


def jumps(functions: np.ndarray) -> float:
    """Mean number of changes of sign along functions on a grid."""
    return float((np.diff(np.sign(functions)) != 0).sum(-1).mean())


def energy_distance(a: np.ndarray, b: np.ndarray) -> float:
    """`2 E|a - b| - E|a - a'| - E|b - b'|`, the root of it, for the root mean square difference along the grid."""

    def mean(p: np.ndarray, q: np.ndarray, pairs: int) -> float:
        return float(cdist(p, q).sum()) / pairs / p.shape[1] ** 0.5

    n, m = len(a), len(b)
    squared = 2 * mean(a, b, n * m) - mean(a, a, n * (n - 1)) - mean(b, b, m * (m - 1))
    return max(squared, 0.0) ** 0.5
