"""One data set by itself, under a prior that ships with the package."""

from __future__ import annotations

import copy
import warnings
from itertools import product

import torch

from bnnp._core.columns import Columns
from bnnp._core.ranges import Ranges
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.bnnp import BNNP
from bnnp.models.saving import load
from bnnp.prediction import ExtrapolationWarning
from bnnp.tasks.source import Collection
from bnnp.tasks.task import Task

WIDTHS = (0.2, 0.5, 1.0)
"""How much of the range of the prior's own inputs the data's inputs may take: the less, the smoother the function."""
NOISES = (0.05, 0.1, 0.2, 0.3, 0.5)
"""Standard deviations of the noise that are tried, as shares of the outputs' own."""
SAMPLES = 32


def fitted(name: str, tasks: Collection, seed: int) -> BNNP:
    """A model of a prior that ships with the package, in the units of one data set.

    The unit of the inputs and the noise are those by which half of the points predict the other half best.

    Args:
        name: The prior, as in "zoo:gp"; it has one input and one output.
        tasks: One data set.
        seed: Seed of the halves and of the inference.

    Raises:
        ValueError: If the prior has other columns.
    """
    model = load(name)
    if (
        (model.in_size, model.y_size) != (1, 1)
        or not isinstance(model, BNNP)
        or not isinstance(model.likelihood, Gaussian)
    ):
        raise ValueError(f"prior: got {name!r}, expected one of one input and one real output, as in 'zoo:gp'")
    tried = [_in_units(model, tasks, width, noise) for width, noise in product(WIDTHS, NOISES)]
    task = tasks[0]
    order = torch.randperm(len(task), generator=torch.Generator().manual_seed(seed))
    halves = task.take(order[::2]), task.take(order[1::2])
    return max(tried, key=lambda one: _score(one, halves, seed) + _score(one, halves[::-1], seed))


def _in_units(model: BNNP, tasks: Collection, width: float, noise: float) -> BNNP:
    own, task = copy.deepcopy(model), tasks[0]
    ranges = model.columns.ranges or Ranges(((-2.0, 2.0),), ((-2.0, 2.0),))
    (low, high), ends = ranges.x[0], (task.x.min(), task.x.max())
    columns = Columns.of(task.x, task.y, tasks.x_names, tasks.y_names, positive=tasks.positive)
    scale = (ends[1] - ends[0]) / (width * (high - low))
    columns.x_scale.copy_(scale if scale > 0 else columns.x_scale)
    columns.x_shift.copy_((ends[0] + ends[1]) / 2 - columns.x_scale * (low + high) / 2)
    own.columns.take_record(columns.record())
    own.columns.take(columns)
    own.columns.encodings, own.columns.task_name = tasks.encodings, tasks.task_name
    own.columns.ranges = tasks.ranges()
    assert isinstance(own.likelihood, Gaussian)
    own.likelihood.max_noise = None
    own.likelihood.set_noise(torch.tensor([noise], dtype=own.dtype))
    if own.last_layer == "predicted":  # by an inference network that knows the noise of its training only
        own.last_layer, own.layers = "likelihood", own.layers[:-1]
    return own


def _score(model: BNNP, halves: tuple[Task, ...], seed: int) -> float:
    known, rest = halves
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExtrapolationWarning)
        posterior = model.condition(known.x, known.y, num_samples=SAMPLES, seed=seed)
        return float(posterior.predict(rest.x).log_prob(rest.y).sum())
