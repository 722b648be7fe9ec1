"""Figures: functions drawn from prior and posterior, calibration, training history.

Every function returns a `matplotlib.figure.Figure`; nothing touches pyplot's state. Save with `save_figure`.
"""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bnnp._core.files import write_atomically
from bnnp._core.random import Seed
from bnnp.evaluation.calibration import Calibration
from bnnp.prediction.base import Predictive
from bnnp.prediction.mixture import MixturePredictive
from bnnp.tasks.task import Split, Task
from bnnp.training.history import FALLBACKS, History

__all__ = [
    "calibration",
    "draw_functions",
    "draw_posterior",
    "draw_rank_histograms",
    "functions",
    "history",
    "overview",
    "rank_histograms",
    "save_figure",
]

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

CONTEXT, TRUTH, SAMPLES, BAND = "#d95f02", "#4d4d4d", "#1f77b4", "#9ecae1"

Drawn = Sequence[Callable[[np.ndarray], np.ndarray]]


class Posterior(Protocol):
    """Something that predicts, and gives functions drawn from it."""

    def predict(self, x) -> Predictive: ...

    def functions(self) -> Drawn: ...


class Conditionable(Protocol):
    """A model that gives a posterior for the points of a data set."""

    def condition(self, x, y, *, num_samples: int, seed: Seed) -> Posterior: ...


def save_figure(figure: "Figure", path: str | Path) -> Path:
    """Write a figure to a file. The file appears whole, or not at all.

    Args:
        figure: The figure.
        path: Where to write; the ending of the name chooses PNG, SVG or PDF.

    Returns:
        The path of the file.

    Example:
        >>> figure = bnnp.plots.functions(model.prior.functions(3), np.linspace(-2, 2, 20))
        >>> bnnp.plots.save_figure(figure, "prior.png").name
        'prior.png'
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, format=Path(path).suffix.lstrip(".") or "png", dpi=130)
    return write_atomically(path, buffer.getvalue())


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
    figure = _figure((5, 3.4))
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
    figure = _figure((2.9 * columns, 2.9))
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


def calibration(predictions: Sequence[tuple[Predictive, np.ndarray]], *, seed: Seed = 0) -> "Figure":
    """A figure of the share of observations inside central intervals against the share that the intervals promise.

    Calibrated predictions lie on the diagonal.

    Args:
        predictions: For each data set the prediction and the observed outputs (n, out).
        seed: Seed of the drawn observations, for predictions that have no distribution function in closed form.

    Returns:
        The figure.

    Example:
        >>> figure = bnnp.plots.calibration([(post.predict(x), y)])
        >>> figure.axes[0].get_title()
        'calibration'
    """
    levels = np.linspace(0.05, 0.95, 19)
    inside = np.zeros(len(levels))
    count = 0
    for predictive, y in predictions:
        if isinstance(predictive, MixturePredictive):
            rank = predictive.cdf(y)
        else:
            rank = (predictive.observations(seed) <= np.asarray(y)).mean(0)
        inside += (np.abs(rank - 0.5)[..., None] <= levels / 2).sum((0, 1))
        count += rank.size
    observed = inside / count
    error = np.sqrt(levels * (1 - levels) / count)
    figure = _figure((3.8, 3.6))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=TRUTH, linewidth=1)
    axes.fill_between(
        levels, levels - 2 * error, levels + 2 * error, color="0.9", linewidth=0, label="2 standard errors"
    )
    axes.plot(levels, observed, "o-", color=SAMPLES, markersize=3, label="model")
    axes.set(xlabel="promised coverage", ylabel="observed coverage", xlim=(0, 1), ylim=(0, 1), title="calibration")
    axes.legend(fontsize=8)
    return figure


def history(record: History) -> "Figure":
    """A figure of the objective and its terms against time, with the evaluations in a second panel if there are any.

    Args:
        record: The history of a training run, as `result.history`.

    Returns:
        The figure.

    Example:
        >>> record = bnnp.History(steps=[{"step": 10, "seconds": 1.0, "learning_rate": 1e-3, "objective": -5.0}])
        >>> figure = bnnp.plots.history(record)
        >>> figure.axes[0].get_title()
        'objective and its terms'
    """
    frame = record.to_frame()
    terms = [name for name in frame.columns if name not in ("step", "seconds", "learning_rate", *FALLBACKS)]
    scores = [name for name in (record.evaluations[0] if record.evaluations else {}) if name not in ("step", "seconds")]
    figure = _figure((4.4 * (1 + bool(scores)), 3.2))
    panels = np.atleast_1d(figure.subplots(1, 1 + bool(scores)))
    window = max(1, len(frame) // 100)
    for name in terms:
        smooth = frame[name].rolling(window, min_periods=1).mean()
        panels[0].plot(frame["seconds"] / 60, smooth, linewidth=1.2, label=name)
    panels[0].set(xlabel="minutes", ylabel="nats per task", title="objective and its terms")
    if len(frame) > 30:  # the first steps are orders of magnitude below all others: leave them out of view
        view = frame[terms].iloc[len(frame) // 8 :].to_numpy()
        margin = 0.1 * (np.quantile(view, 0.99) - np.quantile(view, 0.02))
        panels[0].set_ylim(np.quantile(view, 0.02) - margin, np.quantile(view, 0.99) + margin)
    if terms:
        panels[0].legend(fontsize=8)
    for name in scores:
        minutes = [row["seconds"] / 60 for row in record.evaluations]
        panels[1].plot(minutes, [row[name] for row in record.evaluations], "o-", markersize=3, label=name)
    if scores:
        panels[1].set(xlabel="minutes", title="evaluation")
        panels[1].legend(fontsize=8)
    return figure


def rank_histograms(calibration: Calibration, bins: int = 10) -> "Figure":
    """A figure of the ranks of simulation-based calibration, one histogram per quantity.

    The ranks of a correct posterior are uniform; the band holds 99 % of the counts of uniform ranks. A hump in the
    middle means that the posterior is too wide, two horns that it is too narrow, a slope that it is shifted.

    Args:
        calibration: As from `bnnp.evaluation.simulation_based_calibration`.
        bins: Number of bins, which must divide the number of ranks.

    Returns:
        The figure.

    Example:
        >>> ranks = np.arange(100)[:, None]
        >>> found = bnnp.evaluation.Calibration(ranks, num_samples=99, names=("f(0)",))
        >>> figure = bnnp.plots.rank_histograms(found)
        >>> figure.axes[0].get_title()
        'f(0), p = 1'
    """
    columns, rows = _grid(len(calibration.names))
    figure = _figure((2.6 * columns, 2.1 * rows))
    draw_rank_histograms(figure, calibration, bins)
    return figure


def draw_rank_histograms(figure: "FigureBase", calibration: Calibration, bins: int = 10) -> None:
    """Draw `rank_histograms` into a figure, or into a part of a figure.

    Args:
        figure: Where to draw; it should be empty.
        calibration: As from `bnnp.evaluation.simulation_based_calibration`.
        bins: Number of bins, which must divide the number of ranks.

    Example:
        >>> from matplotlib.figure import Figure
        >>> figure = Figure()
        >>> found = bnnp.evaluation.Calibration(np.arange(100)[:, None], num_samples=99, names=("f(0)",))
        >>> bnnp.plots.draw_rank_histograms(figure, found)
        >>> len(figure.axes)
        1
    """
    from scipy import stats

    counts = calibration.histogram(bins)
    total = counts[0].sum()
    low, high = stats.binom(total, 1 / bins).ppf([0.005, 0.995])
    columns, rows = _grid(len(counts))
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes, name, row, p_value in zip(panels, calibration.names, counts, calibration.p_values(bins), strict=False):
        axes.axhspan(low, high, color=BAND, alpha=0.5, linewidth=0)
        axes.axhline(total / bins, color=TRUTH, linewidth=0.8)
        axes.bar(np.arange(bins) + 0.5, row, width=0.9, color=SAMPLES)
        axes.set(title=f"{name}, p = {p_value:.2g}", xticks=[0, bins], xticklabels=["0", str(calibration.num_samples)])
        axes.title.set_fontsize(9)
    for axes in panels[len(counts) :]:
        axes.axis("off")
    figure.supxlabel("rank of the truth among the samples", fontsize=9)
    figure.supylabel("simulations", fontsize=9)


def _figure(size: tuple[float, float]) -> "Figure":
    """An empty figure of so many inches. Matplotlib is imported here, so that whoever plots nothing does not wait."""
    from matplotlib.figure import Figure

    return Figure(figsize=size, layout="constrained")


def _grid(panels: int) -> tuple[int, int]:
    columns = min(4, panels)
    return columns, -(-panels // columns)
