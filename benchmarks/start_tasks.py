"""What the start in closed form gains by more tasks than the 128 that it learns from, on the same features.

    OMP_NUM_THREADS=1 python benchmarks/start_tasks.py gp --tasks 128 512 1024
    OMP_NUM_THREADS=1 python benchmarks/start_tasks.py table --tasks 128 1024 --steps 0 100 300

`gp`: a Gaussian process with length scale 0.5. `table`: subjects with 5 to 12 points, two inputs that are the same at
all points of a subject, and random effects. Features of a 48-48 network are chosen by the first tasks, as always; the
mixed model on them is fitted to so many tasks; then features and last layer are trained, 16 tasks per step. Mean
marginal log-density of the unknown points of 400 fresh tasks, 0.1 to 0.5 of whose points are known.
"""

import argparse
from collections.abc import Iterator

import numpy as np
import torch

import bnnp
from bnnp._core.ranges import Ranges
from bnnp.networks.base import features_of_layer
from bnnp.priors.starts.freedom import _score, most_freedom
from bnnp.priors.starts.search import Search
from bnnp.priors.starts.seen import Seen
from bnnp.priors.starts.sums import TaskPoints
from bnnp.training.features import train_features

FRESH = 400


class Subjects(bnnp.tasks.TaskSource):
    """Concentrations after a dose, whose rise and fall, size and level differ between subjects."""

    @property
    def in_size(self) -> int:
        return 3

    @property
    def out_size(self) -> int:
        return 1

    def draw(self, count: int, generator: torch.Generator) -> list[bnnp.tasks.Task]:
        return [self.subject(generator, str(number)) for number in range(count)]

    def subject(self, generator: torch.Generator, name: str) -> bnnp.tasks.Task:
        n = int(torch.randint(5, 13, (1,), generator=generator))
        t = 6 * torch.rand(n, 1, generator=generator)
        dose, weight = torch.rand(1, generator=generator), torch.randn(1, generator=generator)
        size, fall, level = torch.randn(3, generator=generator) * torch.tensor([0.4, 0.25, 0.3])
        rise = torch.exp(0.3 * torch.randn(1, generator=generator))
        curve = (1 + dose + size) * (1 - torch.exp(-rise * t)) * torch.exp(-(0.25 + 0.1 * fall) * t) * 3
        y = curve + 0.3 * weight + level + 0.1 * torch.randn(n, 1, generator=generator)
        return bnnp.tasks.Task(torch.cat([t / 3 - 1, dose.expand(n, 1) * 2 - 1, weight.expand(n, 1)], dim=1), y, name)

    def ranges(self) -> Ranges:
        return Ranges(((-1.0, 1.0), (-1.0, 1.0), (-3.0, 3.0)), ((-5.0, 10.0),))


def _gaussian(model: bnnp.BNNP) -> bnnp.Gaussian:
    assert isinstance(model.likelihood, bnnp.Gaussian)
    return model.likelihood


def score(model: bnnp.BNNP, fresh: list[bnnp.tasks.Task]) -> np.ndarray:
    """Mean log-density of the unknown points of every task, with hidden weights at the means of their prior."""
    prior, noise = model.prior, _gaussian(model).noise.detach().double()
    hidden = [prior.from_units(i, prior.layer(i, []).mean)[0, 0] for i in range(2)]
    last = prior.layer(2, [])
    found = []
    for number, task in enumerate(fresh):
        phi = features_of_layer(model.network.program(task.x.double()), hidden)
        found.append(_score(TaskPoints(phi, task.y.double()), last.mean[0, 0], last.factor, noise, number))
    return np.array(found)


@torch.no_grad()
def started(source: bnnp.tasks.TaskSource, counts: list[int], seed: int) -> Iterator[tuple[int, bnnp.BNNP]]:
    """A model for each number of tasks, all with the same features."""
    drawn = source.drawn(max(counts), torch.Generator().manual_seed(1000 + seed))
    pairs = [task.x.double() for task in drawn], [task.y.double() for task in drawn]
    seen = Seen.of(bnnp.starts.Examples(*pairs, torch.cat(pairs[1]).std(0)))
    models = [
        bnnp.BNNP(source.in_size, 1, (48, 48), likelihood=bnnp.Gaussian(0.1), dtype=torch.float64, seed=0)
        for _ in counts
    ]
    fitted = Search(models[0].network, seen, seed, False).best()
    for count, model in zip(counts, models, strict=True):
        mixed, sums = most_freedom(fitted.tasks[:count], fitted.model, seen.held)
        mean, covariance = fitted.in_weights(*mixed.of_new_task(sums))
        noise_at = mixed.noise.expand(len(torch.cat(seen.x)), 1)
        seen.assign(model.prior, model.network, fitted.hidden, mean, covariance, noise_at)
        _gaussian(model).set_noise(mixed.noise * seen.y_scale)
        yield count, model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=["gp", "table"])
    parser.add_argument("--tasks", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--steps", type=int, nargs="+", default=[0], help="trainings one after the other")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    source = Subjects() if given.source == "table" else bnnp.tasks.gp(length_scale=0.5)
    fresh, first = source.drawn(FRESH, torch.Generator().manual_seed(99)), {}
    for count, model in started(source, given.tasks, given.seed):
        for number, steps in enumerate(given.steps):
            if steps:
                train_features(model, source, steps, progress=False, seed=0)
            with torch.no_grad():
                found = score(model, fresh)
            gain = found - first.setdefault(number, found)
            doubt = gain.std(ddof=1) / len(gain) ** 0.5
            print(f"{count} tasks, {steps} steps: {found.mean():.3f}, {gain.mean():+.4f} ± {doubt:.4f}", flush=True)


if __name__ == "__main__":
    main()
