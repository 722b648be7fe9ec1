"""Figures of functions drawn from priors and posteriors, beside data."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bnnp._core.random import Seed
from bnnp.plots.figure import make_figure
from bnnp.prediction.base import Predictive
from bnnp.tasks.task import Split, Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


CONTEXT, TRUTH, SAMPLES, BAND = "#d95f02", "#4d4d4d", "#1f77b4", "#9ecae1"

Drawn = Sequence[Callable[[np.ndarray], np.ndarray]]


class Posterior(Protocol):
    """Something that predicts, and gives functions drawn from it."""

    def predict(self, x) -> Predictive: ...

    def functions(self) -> Drawn: ...


class Conditionable(Protocol):
    """A model that gives a posterior for the points of a data set."""

    def condition(self, x, y, *, num_samples: int, seed: Seed) -> Posterior: ...


def draw_functions(axes: "Axes", drawn: Drawn, x: np.ndarray, *, colour: str = SAMPLES, alpha: float = 0.7) -> None:
    """Draw functions of one input as lines.

    Args:
        axes: Where to draw.
        drawn: The functions, as from `model.prior.functions(5)` or `post.functions()`. The first output is shown.
        x: Inputs at which the functions are evaluated, in one dimension and increasing.
        colour: Colour of the lines.
        alpha: Opacity of the lines.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = Figure().subplots()
        >>> bnnp.plots.draw_functions(axes, post.functions()[:5], np.linspace(-2, 2, 20))
        >>> len(axes.lines)
        5
    """
    for function in drawn:
        axes.plot(x, function(x[:, None])[:, 0], color=colour, alpha=alpha, linewidth=1)


def draw_posterior(
    axes: "Axes", posterior: Posterior, x: np.ndarray, context: Task, target: Task | None = None, *, lines: int = 8
) -> None:
    """Draw function samples over the band that holds 90 % of new observations, with the context points.

    Args:
        axes: Where to draw.
        posterior: As from `model.condition`, of a data set with one input and one output.
        x: Inputs at which the posterior is shown, in one dimension and increasing.
        context: The points that the posterior was given.
        target: Held-out points to show as well, if there are any.
        lines: Number of function samples.

    Example:
        >>> from matplotlib.figure import Figure
        >>> axes = Figure().subplots()
        >>> context = bnnp.tasks.from_arrays([(x, y)]).tasks[0]
        >>> bnnp.plots.draw_posterior(axes, post, np.linspace(-2, 2, 20), context, lines=3)
        >>> axes.get_legend_handles_labels()[1]
        ['90 % of new observations', 'context']
    """
    low, high = posterior.predict(x[:, None]).quantile([0.05, 0.95])
    axes.fill_between(x, low[:, 0], high[:, 0], color=BAND, alpha=0.5, linewidth=0, label="90 % of new observations")
    draw_functions(axes, posterior.functions()[:lines], x)
    if target is not None:
        axes.plot(target.x[:, 0], target.y[:, 0], ".", color=TRUTH, markersize=3, label="held out")
    axes.plot(context.x[:, 0], context.y[:, 0], "o", color=CONTEXT, markersize=4, label="context")


def functions(
    drawn: Drawn, x: np.ndarray, *, title: str = "functions drawn from the prior", labels: tuple[str, str] = ("x", "y")
) -> "Figure":
    """A figure of functions of one input, in one panel.

    Args:
        drawn: The functions, as from `model.prior.functions(5)` or `post.functions()`. The first output is shown.
        x: Inputs at which the functions are evaluated, in one dimension and increasing.
        title: Title of the panel.
        labels: Labels of the two axes.

    Returns:
        The figure.

    Example:
        >>> figure = bnnp.plots.functions(model.prior.functions(5), np.linspace(-2, 2, 20))
        >>> figure.axes[0].get_title()
        'functions drawn from the prior'
    """
    figure = make_figure((5, 3.4))
    axes = figure.subplots()
    draw_functions(axes, drawn, x)
    axes.set(title=title, xlabel=labels[0], ylabel=labels[1])
    return figure


def overview(
    learned_prior: Drawn,
    model: Conditionable,
    splits: Sequence[Split],
    x: np.ndarray,
    *,
    true: Sequence[Task],
    seed: Seed = 0,
) -> "Figure":
    """A figure of the true process, the learned prior, and the posterior of a few tasks, side by side.

    Args:
        learned_prior: Functions drawn from the prior, as from `model.prior.functions(5)`.
        model: The model whose posteriors are shown.
        splits: Tasks with one input and one output, each in context and target; one panel per task.
        x: Inputs at which prior and posteriors are shown, in one dimension and increasing.
        true: Tasks drawn from the true process.
        seed: Seed of the posterior samples.

    Returns:
        The figure.

    Example:
        >>> task = tasks.tasks[0]
        >>> splits = [bnnp.tasks.Split(task.take(slice(0, 3)), task.take(slice(3, 8)))]
        >>> grid = np.linspace(-2, 2, 20)
        >>> figure = bnnp.plots.overview(model.prior.functions(3), model, splits, grid, true=tasks.tasks)
        >>> [axes.get_title() for axes in figure.axes]
        ['the true process', 'the learned prior', 'posterior, 3 points']
    """
    columns = 2 + len(splits)
    figure = make_figure((2.9 * columns, 2.9))
    panels = figure.subplots(1, columns, sharex=True, sharey=True)
    for task in true:
        order = task.x[:, 0].argsort()
        panels[0].plot(task.x[order, 0], task.y[order, 0], color=TRUTH, alpha=0.7, linewidth=1)
    panels[0].set_title("the true process")
    draw_functions(panels[1], learned_prior, x)
    panels[1].set_title("the learned prior")
    for axes, split in zip(panels[2:], splits, strict=True):
        posterior = model.condition(split.context.x, split.context.y, num_samples=300, seed=seed)
        draw_posterior(axes, posterior, x, split.context, split.target)
        axes.set_title(f"posterior, {len(split.context)} points")
    panels[2].legend(fontsize=7, loc="lower left")
    return figure
