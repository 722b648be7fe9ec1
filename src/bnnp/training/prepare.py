"""What happens before the first step: the columns of the model, and the start of its prior."""

import torch

from bnnp._core.random import Seed, as_integer, child
from bnnp._core.shapes import Tensor
from bnnp._core.show import listed
from bnnp.likelihoods.categorical import Categorical
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.base import MetaLearner
from bnnp.models.evidence import WeightModel
from bnnp.priors import Prior
from bnnp.priors.starts import Examples, SmoothNoise, Start, as_start
from bnnp.tasks.parquet import ParquetTasks
from bnnp.tasks.source import Collection, TaskSource
from bnnp.tasks.task import stacked

START = 3
"""The branch of the run's random numbers that a start draws from."""
LOG_ODDS = 4.0
"""Slope of log-odds by probability where the probability is one half, by which starts see labels as numbers."""
POINTS_FOR_START = 1000
"""Largest number of points per task that a start looks at."""


def start_prior(model: MetaLearner, tasks: TaskSource, prior_start: Start | str = "spread", seed: Seed = 0) -> None:
    """Take names and scales of the columns from the tasks, and start the prior. The model is changed in place.

    `bnnp.fit` calls this before its first step. Call it yourself to train with the prior fixed at its start: start the
    prior, fix it, then train. The function does not change a prior that is fixed or is no longer the standard one, nor
    columns that have been set.

    Args:
        model: A model, or a neural process. A neural process has no prior over weights: only its columns are set.
        tasks: A task source.
        prior_start: As in `bnnp.FitSettings`.
        seed: With the same seed, `bnnp.fit` starts the prior at the same numbers.

    Raises:
        ValueError: If the tasks or the start do not fit the model.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8, 8), likelihood=bnnp.Gaussian(0.1))
        >>> bnnp.start_prior(model, tasks, bnnp.starts.Empirical(), seed=0)
        >>> model = model.set_prior_learnability(0)  # `bnnp.fit` now leaves the prior as it is
        >>> model.prior.is_standard()
        False
    """
    start, prior = as_start(prior_start), model.weight_prior
    check_tasks(model, tasks)
    generator = child(as_integer(seed), START)
    if isinstance(tasks, Collection | ParquetTasks):
        _take_columns(model, tasks)
    model.columns.ranges = tasks.ranges().with_others(model.columns.ranges)
    if prior is not None and prior.is_standard() and not prior.network.mixes_points:
        noise = start.set(prior, _examples(model, prior, tasks, start.tasks, generator), generator)
        if noise is not None and isinstance(model.likelihood, Gaussian) and model.likelihood.learnable:
            _take_noise(model.likelihood, noise)
        if start.silences_inference and isinstance(model, WeightModel) and not prior.is_standard():
            model.silence_inference()


def _take_noise(likelihood: Gaussian, noise: Tensor | SmoothNoise) -> None:
    """Give a likelihood the noise that a start has found."""
    likelihood.set_noise(noise.noise if isinstance(noise, SmoothNoise) else noise)
    if isinstance(noise, SmoothNoise):
        likelihood.vary(noise.bends, noise.coefficients)


def check_tasks(model: MetaLearner, tasks: TaskSource) -> None:
    """Refuse tasks that the model cannot learn from.

    Args:
        model: A model, or a neural process.
        tasks: What the user gave as tasks.

    Raises:
        ValueError: If `tasks` is not a task source, or its columns or outputs do not fit the model.
    """
    if not isinstance(tasks, TaskSource):
        raise ValueError(
            f"tasks: got {type(tasks).__name__}, expected a task source; "
            "make one with bnnp.tasks.from_arrays([(x, y), ...])"
        )
    if (tasks.in_size, tasks.out_size) != (model.in_size, model.y_size):
        raise ValueError(
            f"tasks: got {tasks.in_size} input and {tasks.out_size} output columns, "
            f"expected {model.in_size} and {model.y_size} as in the model"
        )
    if isinstance(tasks, Collection):
        _check_classes(model, tasks)
        for task in tasks.tasks:
            model.likelihood.check(task.y)


def _check_classes(model: MetaLearner, tasks: Collection) -> None:
    """Refuse class labels that a model would take for numbers, or that are not as many as its classes."""
    classes = () if tasks.encodings is None else tasks.encodings.classes
    own = model.likelihood.num_classes if isinstance(model.likelihood, Categorical) else 2
    if classes and (model.likelihood.real_valued or len(classes) != own):
        raise ValueError(
            f"likelihood: got {type(model.likelihood).__name__} for the labels {listed(classes)}, expected "
            f"bnnp.Categorical({len(classes)})"
        )


def _take_columns(model: MetaLearner, tasks: Collection | ParquetTasks) -> None:
    columns, include_y = model.columns, model.likelihood.real_valued
    columns.x_names, columns.y_names, columns.task_name = list(tasks.x_names), list(tasks.y_names), tasks.task_name
    if columns.is_identity() and include_y:
        columns.positive = tasks.positive
    columns.encodings = tasks.encodings
    if tasks.standardise and columns.is_identity():
        if tasks.columns is not None:
            columns.take(tasks.columns, include_y=include_y)
        else:
            columns.fit(*stacked(tasks.tasks), include_y=include_y)
    for task in tasks.tasks:
        columns.check_size(task.x.to(model.device), "x", f"x of task {task.name!r}")
        if include_y:
            columns.check_size(task.y.to(model.device), "y", f"y of task {task.name!r}")


def _examples(model: MetaLearner, prior: Prior, tasks: TaskSource, count: int, generator: torch.Generator) -> Examples:
    """Different tasks for a start of the prior, with some of the points of large tasks."""
    drawn = tasks.drawn(min(count, len(tasks)) if isinstance(tasks, Collection) else count, generator)
    some = [task.take(torch.randperm(len(task), generator=generator)[:POINTS_FOR_START]) for task in drawn]
    x = [model.columns.standardise_x(task.x.to(model.device)).to(model.dtype) for task in some]
    if not model.likelihood.real_valued:
        labels = [model.likelihood.encode(task.y.to(model.device)).to(model.dtype) for task in some]
        log_odds = [LOG_ODDS * (label - 0.5) for label in labels]
        return Examples(x, log_odds, x[0].new_ones(prior.network.sizes[-1]))
    y = [model.columns.standardise_y(task.y.to(model.device)).to(model.dtype) for task in some]
    likelihood = model.likelihood
    learned = isinstance(likelihood, Gaussian) and likelihood.learnable
    fixed = likelihood.noise.detach() if isinstance(likelihood, Gaussian) and not learned else None
    return Examples(x, y, torch.cat(y).std(0), fixed, learned)
