"""Figures of the posteriors of one subject, or of many side by side."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bnnp._core.columns import Columns
from bnnp.plots.figure import figure_of_outputs, grid_of, make_figure, used_panels
from bnnp.plots.functions import SAMPLES, draw_band, draw_points, output_labels, shown_outputs
from bnnp.prediction.base import Predictive
from bnnp.prediction.frames import observed_names
from bnnp.prediction.weights import WeightSamples
from bnnp.tasks.task import Task, stacked

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POINTS = 200
"""Inputs at which a curve is evaluated."""


def posterior(
    post: WeightSamples,
    x: ArrayLike | None = None,
    *,
    known: Task | None = None,
    held_out: Task | None = None,
    along: str | int = 0,
    lines: int = 8,
) -> "Figure":
    """A figure of one posterior: its mean, a band and function samples, with a panel per output or class.

    Args:
        post: As from `model.condition` or `bnnp.infer`.
        x: Inputs (points, in) at which it is shown. By default one input goes over the range of training, and all
            others stay at their mean among the known points.
        known: The known points; by default those that the posterior was given, where it still has them.
        held_out: Other points of the same data set to show as well.
        along: The input of the horizontal axis, by its name or number.
        lines: Number of function samples.

    Returns:
        The figure, in the user's units.

    Raises:
        ValueError: If there is no such input, or `x` does not fit the model.

    Example:
        >>> figure = bnnp.plots.posterior(post, np.linspace(-2, 2, 20))
        >>> figure.axes[0].get_legend_handles_labels()[1]
        ['90 % of new observations', 'mean', 'known']
    """
    columns, known = post.columns, getattr(post, "known", None) if known is None else known
    axis = _axis(columns, along)
    inputs = _path(columns, axis, known, _range(columns, axis, known, held_out)) if x is None else columns.inputs(x)
    predictive = post.predict(inputs)
    names, outputs = output_labels(observed_names(predictive), predictive.shape[1]), predictive.shape[1]
    figure, panels = figure_of_outputs(outputs)
    for output, axes in enumerate(panels):
        axes.plot(inputs[:, axis], predictive.samples[:lines, :, output].T, color=SAMPLES, alpha=0.35, linewidth=0.8)
        _draw(axes, predictive, axis, output, known, held_out)
        axes.set(xlabel=columns.x_names[axis], ylabel=names[output])
    panels[0].legend(fontsize=8)
    return figure


def subjects(
    posts: Sequence[Any],
    known: Sequence[Task],
    *,
    held_out: Sequence[Task] = (),
    along: str | int = 0,
    output: int = 0,
    most: int = 20,
) -> "Figure":
    """A figure of many subjects side by side, each with its known points, mean and band, on the same axes.

    Args:
        posts: One posterior per subject, as from `model.condition`.
        known: The known points of every subject; their names are the titles. An input that does not vary within a
            subject stays as it is.
        held_out: Other points of every subject to show as well.
        along: The input of the horizontal axis, by its name or number.
        output: Which output is shown, from 0; for class labels, which class.
        most: The largest number of subjects that are shown.

    Returns:
        The figure, in the user's units.

    Raises:
        ValueError: If there is no such input or output, or not as many known points as subjects.

    Example:
        >>> first = tasks.tasks[:3]
        >>> posts = [model.condition(task.x, task.y, num_samples=5) for task in first]
        >>> figure = bnnp.plots.subjects(posts, first)
        >>> len(figure.axes)
        3
    """
    _check_subjects(posts, known, held_out)
    chosen, columns = list(posts)[:most], posts[0].columns
    axis = _axis(columns, along)
    wide, rows = grid_of(len(chosen))
    figure = make_figure((2.7 * wide, 2.2 * rows + 0.5))
    panels = used_panels(figure.subplots(rows, wide, squeeze=False, sharex=True, sharey=True).ravel(), len(chosen))
    span = _range(columns, axis, *known, *held_out)
    for index, (axes, post) in enumerate(zip(panels, chosen, strict=True)):
        predictive = post.predict(_path(columns, axis, known[index], span))
        _check_output(output, predictive)
        _draw(axes, predictive, axis, output, known[index], held_out[index] if held_out else None)
        axes.set_title(known[index].name or f"subject {index + 1}", fontsize=9)
        figure.supxlabel(columns.x_names[axis], fontsize=10)
        figure.supylabel(output_labels(observed_names(predictive), predictive.shape[1])[output], fontsize=10)
    legend = {label: mark for axes in panels for mark, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(list(legend.values()), list(legend), loc="outside upper right", ncols=len(legend), fontsize=8)
    return figure


def _draw(
    axes: "Axes", predictive: Predictive, axis: int, output: int, known: Task | None, held_out: Task | None
) -> None:
    assert predictive.inputs is not None
    x, outputs = predictive.inputs[:, axis], predictive.shape[1]
    draw_band(axes, predictive, x, output)
    axes.plot(x, predictive.mean[:, output], color=SAMPLES, linewidth=1.4, label="mean")
    if held_out is not None and len(held_out):
        draw_points(axes, held_out.x[:, axis], shown_outputs(held_out, output, outputs), "held out", small=True)
    if known is not None and len(known):
        draw_points(axes, known.x[:, axis], shown_outputs(known, output, outputs), "known")


def _path(columns: Columns, axis: int, known: Task | None, span: tuple[float, float]) -> np.ndarray:
    """Inputs along one column; all others stay at their mean among the known points, or in training."""
    centre = columns.x_shift.cpu().double() if known is None or not len(known) else known.x.mean(0)
    inputs = np.tile(centre.numpy(), (POINTS, 1))
    inputs[:, axis] = np.linspace(*span, POINTS)
    return inputs


def _range(columns: Columns, axis: int, *tasks: Task | None) -> tuple[float, float]:
    """Where an input goes: over all points of these tasks, and over the range of training where it is known."""
    points = [task for task in tasks if task is not None and len(task)]
    ends = [] if columns.ranges is None else list(columns.ranges.x[axis])
    if points:
        x = stacked(points)[0][:, axis]
        ends += [float(x.min()), float(x.max())]
    centre, width = float(columns.x_shift[axis]), float(columns.x_scale[axis])
    ends = ends if len(set(ends)) > 1 else [centre - 2 * width, centre + 2 * width]
    return min(ends), max(ends)


def _axis(columns: Columns, along: str | int) -> int:
    names = columns.x_names
    if along in names:
        return names.index(str(along))
    if isinstance(along, int) and 0 <= along < len(names):
        return along
    raise ValueError(f"along: got {along!r}, expected one of {', '.join(names)}, or its number from 0")


def _check_output(output: int, predictive: Predictive) -> None:
    if not 0 <= output < predictive.shape[1]:
        raise ValueError(f"output: got {output}, expected a number from 0 to {predictive.shape[1] - 1}")


def _check_subjects(posts: Sequence[Any], known: Sequence[Task], held_out: Sequence[Task]) -> None:
    if not len(posts) or len(known) != len(posts) or len(held_out) not in (0, len(posts)):
        raise ValueError(
            f"posts, known and held_out: got {len(posts)}, {len(known)} and {len(held_out)} subjects, expected at "
            "least one posterior and the known points of each"
        )
