"""Seconds of a training step and of a prediction in the settings that the documents speak of.

    python benchmarks/steps.py

Medians of repeats in one process. The settings are those of the paper's experiments.
"""

import statistics
import time
from collections.abc import Callable

import torch

import bnnp
from bnnp.tasks.task import SplitBatch, TaskBatch
from bnnp.training.step import differentiate


def batch(in_size: int, tasks: int, points: int, context: int) -> SplitBatch:
    generator = torch.Generator().manual_seed(0)
    x = 4 * torch.rand(tasks, points, in_size, generator=generator) - 2
    y = torch.sin(3 * x.sum(-1, keepdim=True))
    mask = torch.ones(tasks, points, dtype=torch.bool)
    parts = (slice(0, context), slice(context, points))
    return SplitBatch(*(TaskBatch(x[:, part], y[:, part], mask[:, part]) for part in parts))


def training_step(
    in_size: int, hidden: tuple[int, ...], prior: str, samples: int, data: SplitBatch
) -> Callable[[], None]:
    model = bnnp.BNNP(in_size, 1, hidden, prior=prior, likelihood=bnnp.Gaussian(0.05))
    if prior == "factorised":
        model.set_prior_learnability(0)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.Adam(parameters, lr=1e-4, fused=True)
    objective = bnnp.objectives.PPAVI(samples)

    def step() -> None:
        differentiate(model, objective, data, parameters, 0)
        optimiser.step()

    return step


def prediction() -> None:
    model = bnnp.BNNP(1, 1, (64, 64), likelihood=bnnp.Gaussian(0.05))
    x = torch.linspace(-2, 2, 40)
    model.condition(x, torch.sin(x), num_samples=1000).predict(torch.linspace(-2, 2, 100))


def median_seconds(work: Callable[[], None], repeats: int) -> float:
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def main() -> None:
    settings = {
        "(a) step, [1, 64, 64, 1], unitwise, 32 samples, 5 x 70 points, 30 % context": (
            training_step(1, (64, 64), "unitwise", 32, batch(1, 5, 70, 21)),
            9,
        ),
        "(b) step, [1, 20, 20, 1], factorised, 8 samples, 5 x 30 points, 80 % context": (
            training_step(1, (20, 20), "factorised", 8, batch(1, 5, 30, 24)),
            30,
        ),
        "(c) prediction, [1, 64, 64, 1], 1000 samples, 40 context points, 100 targets": (prediction, 3),
        "(d) step, [3, 64, 64, 64, 1], unitwise, 24 samples, 1 x 875 points, 25 % context": (
            training_step(3, (64, 64, 64), "unitwise", 24, batch(3, 1, 875, 219)),
            3,
        ),
    }
    for name, (work, repeats) in settings.items():
        print(f"{median_seconds(work, repeats):8.3f} s  {name}", flush=True)


if __name__ == "__main__":
    main()
