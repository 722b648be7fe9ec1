"""What needs no learning: methods that any table stands beside, scored by the code that scores all others.

Each predicts one number for every new point. Its spread is the root mean square of its errors on training tasks,
divided as tests are, so that it has a density too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.interpolate import LinearNDInterpolator

from bnnp.evaluation.simple import Simple
from bnnp.tasks.task import Split, Task, stacked

MOST_INPUTS = 2
"""Linear interpolation goes through triangles; with more inputs there are too many of them."""
Guess = Callable[[Task, torch.Tensor, torch.Tensor], torch.Tensor]
"""From a context, new inputs and the mean of all training outputs to predicted outputs."""


def population_mean(known: Task, x: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
    """The mean of all training outputs, everywhere."""
    return centre.expand(len(x), -1)


def nearest_neighbour(known: Task, x: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
    """The output of the nearest known point."""
    return known.y[torch.cdist(x, known.x).argmin(1)] if len(known) else population_mean(known, x, centre)


def linear_interpolation(known: Task, x: torch.Tensor, centre: torch.Tensor) -> torch.Tensor:
    """Between known points linearly, outside of them as the nearest one."""
    nearest = nearest_neighbour(known, x, centre)
    if x.shape[1] == 1 and len(known):
        order = known.x[:, 0].argsort()
        at, values = known.x[order, 0].numpy(), known.y[order].numpy()
        found = np.stack([np.interp(x[:, 0].numpy(), at, column) for column in values.T], axis=1)
        return torch.from_numpy(found).to(nearest)
    if not len(known) or int(torch.linalg.matrix_rank(known.x - known.x.mean(0))) < x.shape[1]:
        return nearest  # points on a line have no triangles
    found = torch.from_numpy(LinearNDInterpolator(known.x.numpy(), known.y.numpy())(x.numpy())).to(nearest)
    return torch.where(found.isnan(), nearest, found)


@dataclass(frozen=True, eq=False)
class Guessing:
    """A guess with the spread that its errors on training tasks have."""

    guess: Guess
    centre: torch.Tensor
    variance: torch.Tensor

    def moments(self, x: torch.Tensor, y: torch.Tensor, x_new: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean = self.guess(Task(x, y), x_new, self.centre)
        return mean, self.variance.expand_as(mean)


def trivial_models(training: Sequence[Split]) -> Mapping[str, Simple]:
    """The trivial methods by name, given training tasks that are divided as tests are."""
    guesses: dict[str, Guess] = {"population mean": population_mean, "nearest neighbour": nearest_neighbour}
    if training[0].target.x.shape[1] <= MOST_INPUTS:
        guesses["linear interpolation"] = linear_interpolation
    centre = stacked([part for split in training for part in (split.context, split.target) if len(part)])[1].mean(0)
    return {name: Simple(Guessing(guess, centre, _spread(guess, training, centre))) for name, guess in guesses.items()}


def _spread(guess: Guess, training: Sequence[Split], centre: torch.Tensor) -> torch.Tensor:
    errors = [split.target.y - guess(split.context, split.target.x, centre) for split in training]
    return torch.cat(errors).square().mean(0).clamp(min=1e-12)
