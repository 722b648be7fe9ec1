"""Figures of functions drawn from priors and posteriors, beside data."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike

from bnnp._core.random import Seed
from bnnp.plots.figure import figure_of_outputs, make_figure
from bnnp.prediction.base import Predictive
from bnnp.tasks.task import Split, Task, stacked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


CONTEXT, TRUTH, SAMPLES, BAND = "#d95f02", "#4d4d4d", "#1f77b4", "#9ecae1"

Drawn = Sequence[Callable[[np.ndarray], np.ndarray]]


class DrawnFunctions(Protocol):
    """Something that predicts, and gives functions drawn from it."""

    def predict(self, x) -> Predictive: ...

    def functions(self) -> Drawn: ...


class ModelOfFunctions(Protocol):
    """A model that gives a posterior for the points of a data set."""

    def condition(self, x, y, *, num_samples: int, seed: Seed) -> DrawnFunctions: ...


def draw_functions(
    axes: "Axes", drawn: Drawn, x: np.ndarray, *, output: int = 0, colour: str = SAMPLES, alpha: float = 0.7
) -> None:
    """Draw functions of one input as lines.

    Args:
        axes: Where to draw.
        drawn: The functions, as from `model.prior.functions(5)` or `post.functions()`.
        x: Inputs at which the functions are evaluated, in one dimension and increasing.
        output: Which output is shown, from 0; for class labels, which class.
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
        axes.plot(x, function(x[:, None])[:, output], color=colour, alpha=alpha, linewidth=1)


def draw_posterior(
    axes: "Axes", posterior: DrawnFunctions, x: np.ndarray, context: Task, target: Task | None = None, *, lines: int = 8
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
    draw_band(axes, posterior.predict(x[:, None]), x, 0)
    draw_functions(axes, posterior.functions()[:lines], x)
    if target is not None:
        draw_points(axes, target.x[:, 0], target.y[:, 0], "held out", small=True)
    draw_points(axes, context.x[:, 0], context.y[:, 0], "context")


def draw_band(axes: "Axes", predictive: Predictive, x: np.ndarray, output: int) -> None:
    """The band that holds 90 % of new observations of an output; for labels, 90 % of the probabilities of a class."""
    if predictive.likelihood.real_valued:
        (low, high), label = predictive.interval(0.9), "90 % of new observations"
    else:
        (low, high), label = np.quantile(predictive.samples, [0.05, 0.95], axis=0), "90 % of probabilities"
    axes.fill_between(x, low[:, output], high[:, output], color=BAND, alpha=0.5, linewidth=0, label=label)


def draw_points(axes: "Axes", x: ArrayLike, y: ArrayLike, label: str, *, small: bool = False) -> None:
    """Points: large ones in front, or small ones behind all else."""
    mark, colour, size, order = (".", TRUTH, 3, 1) if small else ("o", CONTEXT, 4, 3)
    axes.plot(np.asarray(x), np.asarray(y), mark, color=colour, markersize=size, label=label, zorder=order)


def functions(
    drawn: Drawn,
    x: np.ndarray,
    *,
    title: str = "functions drawn from the prior",
    labels: Sequence[str] = ("x", "y"),
    data: Sequence[Task] = (),
) -> "Figure":
    """A figure of functions of one input, with a panel per output, or per class where outputs are class labels.

    Args:
        drawn: The functions, as from `model.prior.functions(5)` or `post.functions()`.
        x: Inputs at which the functions are evaluated, in one dimension and increasing.
        title: Title of the figure.
        labels: Label of the input, then of every output; one name for all classes.
        data: Data sets whose points are shown behind the functions, as far as they lie within the range of `x`.

    Returns:
        The figure.

    Example:
        >>> figure = bnnp.plots.functions(model.prior.functions(5), np.linspace(-2, 2, 20), data=tasks.tasks)
        >>> figure.axes[0].get_ylabel(), len(figure.axes[0].lines)
        ('y', 6)
    """
    outputs = drawn[0](x[:1, None]).shape[1]
    figure, panels = figure_of_outputs(outputs)
    names = output_labels(labels[1:], outputs)
    for output, axes in enumerate(panels):
        _draw_data(axes, data, (x.min(), x.max()), output, outputs)
        draw_functions(axes, drawn, x, output=output)
        axes.set(xlabel=labels[0], ylabel=names[output])
    figure.suptitle(title, fontsize=11)
    if data:
        panels[0].legend(fontsize=8)
    return figure


def _draw_data(axes: "Axes", data: Sequence[Task], within: tuple[float, float], output: int, outputs: int) -> None:
    """The points of all data sets, in grey, within a range of inputs."""
    if data:
        whole = Task(*stacked(data))
        inside = whole.take((whole.x[:, 0] >= within[0]) & (whole.x[:, 0] <= within[1]))
        draw_points(axes, inside.x[:, 0], shown_outputs(inside, output, outputs), "data", small=True)


def output_labels(names: Sequence[str], outputs: int) -> list[str]:
    """One label per output; from a single name, one per class."""
    return list(names) if len(names) == outputs else [f"probability of {names[0]} = {c}" for c in range(outputs)]


def shown_outputs(task: Task, output: int, outputs: int) -> np.ndarray:
    """The outputs of a data set for one panel of several; for class labels, whether they are this class."""
    y = task.y.numpy()
    return y[:, output] if y.shape[1] == outputs else (y[:, 0] == output).astype(float)


def overview(
    learned_prior: Drawn,
    model: ModelOfFunctions,
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
