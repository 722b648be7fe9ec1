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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase

CONTEXT, TRUTH, SAMPLES, BAND = "#d95f02", "#4d4d4d", "#1f77b4", "#9ecae1"

Drawn = Sequence[Callable[[np.ndarray], np.ndarray]]


class Posterior(Protocol):
    def predict(self, x) -> Predictive: ...

    def functions(self) -> Drawn: ...


class Conditionable(Protocol):
    def condition(self, x, y, *, num_samples: int, seed: Seed) -> Posterior: ...


def save_figure(figure: "Figure", path: str | Path) -> Path:
    """Write a figure as PNG, SVG or PDF, by its ending; whole or not at all."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=Path(path).suffix.lstrip(".") or "png", dpi=130)
    return write_atomically(path, buffer.getvalue())


def draw_functions(axes: "Axes", drawn: Drawn, x: np.ndarray, *, colour: str = SAMPLES, alpha: float = 0.7) -> None:
    """Lines of functions of one input."""
    for function in drawn:
        axes.plot(x, function(x[:, None])[:, 0], color=colour, alpha=alpha, linewidth=1)


def draw_posterior(
    axes: "Axes", posterior: Posterior, x: np.ndarray, context: Task, target: Task | None = None, *, lines: int = 8
) -> None:
    """Function samples over a 90 % band for new observations, with the context and, where known, the truth."""
    low, high = posterior.predict(x[:, None]).quantile([0.05, 0.95])
    axes.fill_between(x, low[:, 0], high[:, 0], color=BAND, alpha=0.5, linewidth=0, label="90 % of new observations")
    draw_functions(axes, posterior.functions()[:lines], x)
    if target is not None:
        axes.plot(target.x[:, 0], target.y[:, 0], ".", color=TRUTH, markersize=3, label="held out")
    axes.plot(context.x[:, 0], context.y[:, 0], "o", color=CONTEXT, markersize=4, label="context")


def functions(
    drawn: Drawn, x: np.ndarray, *, title: str = "functions drawn from the prior", labels: tuple[str, str] = ("x", "y")
) -> "Figure":
    """Functions of one input, in one panel."""
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
    """The true process, the learned prior, and the posterior of a few tasks, side by side."""
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
    """Share of observations inside central intervals against the share promised. On the diagonal is calibrated."""
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
    """The objective's terms, and the evaluations where there are any, against time."""
    frame = record.to_frame()
    terms = [name for name in frame.columns if name not in ("step", "seconds", "learning_rate", *FALLBACKS)]
    scores = [name for name in (record.evaluations[0] if record.evaluations else {}) if name not in ("step", "seconds")]
    figure = _figure((4.4 * (1 + bool(scores)), 3.2))
    panels = np.atleast_1d(figure.subplots(1, 1 + bool(scores)))
    window = max(1, len(frame) // 100)
    for name in terms:
        smooth = frame[name].rolling(window, min_periods=1).mean()
        panels[0].plot(frame["seconds"] / 60, smooth, linewidth=1.2, label=name)
    panels[0].set(xlabel="minutes", ylabel="nats a task", title="objective and its terms")
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
    """Simulation-based calibration: ranks that should be even, with the band that holds 99 % of even ones.

    A hump means a posterior that is too wide, two horns one that is too narrow, a slope one that is shifted.
    """
    columns, rows = _grid(len(calibration.names))
    figure = _figure((2.6 * columns, 2.1 * rows))
    draw_rank_histograms(figure, calibration, bins)
    return figure


def draw_rank_histograms(figure: "FigureBase", calibration: Calibration, bins: int = 10) -> None:
    """`rank_histograms` in a figure, or a part of one."""
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
