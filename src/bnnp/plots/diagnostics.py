"""Figures of calibration and of a training run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bnnp._core.random import Seed
from bnnp.evaluation.calibration import Calibration
from bnnp.plots.figure import grid_of, make_figure, used_panels
from bnnp.plots.functions import BAND, SAMPLES, TRUTH
from bnnp.prediction.base import Predictive
from bnnp.prediction.mixture import MixturePredictive
from bnnp.training.history import FALLBACKS, History

if TYPE_CHECKING:
    from matplotlib.figure import Figure, FigureBase


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
    figure = make_figure((3.8, 3.6))
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
    figure = make_figure((4.4 * (1 + bool(scores)), 3.2))
    panels = np.atleast_1d(figure.subplots(1, 1 + bool(scores)))
    window = max(1, len(frame) // 100)
    for name in terms:
        smooth = frame[name].rolling(window, min_periods=1).mean()
        panels[0].plot(frame["seconds"] / 60, smooth, linewidth=1.2, label=name)
    panels[0].set(xlabel="minutes", ylabel="nats per task", title="objective and its terms")
    if terms:
        panels[0].set_ylim(_view(frame[terms].to_numpy()))
        panels[0].legend(fontsize=8)
    for name in scores:
        minutes = [row["seconds"] / 60 for row in record.evaluations]
        panels[1].plot(minutes, [row[name] for row in record.evaluations], "o-", markersize=3, label=name)
    if scores:
        panels[1].set(xlabel="minutes", title="evaluation")
        panels[1].legend(fontsize=8)
    return figure


def _view(values: np.ndarray) -> tuple[float | None, float | None]:
    """The range of records (records, terms) without the first ones, which are orders of magnitude below all others."""
    later = values[max(1, len(values) // 8) :]
    if len(later) == 0:
        return None, None
    low, high = np.quantile(later, [0.02, 0.99]) if len(values) > 30 else (later.min(), later.max())
    margin = 0.1 * (high - low) or 1.0
    return low - margin, high + margin


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
    columns, rows = grid_of(len(calibration.names))
    figure = make_figure((2.6 * columns, 2.1 * rows))
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
    columns, rows = grid_of(len(counts))
    panels = used_panels(figure.subplots(rows, columns, squeeze=False, sharey=True).ravel(), len(counts))
    for axes, name, row, p_value in zip(panels, calibration.names, counts, calibration.p_values(bins), strict=True):
        axes.axhspan(low, high, color=BAND, alpha=0.5, linewidth=0)
        axes.axhline(total / bins, color=TRUTH, linewidth=0.8)
        axes.bar(np.arange(bins) + 0.5, row, width=0.9, color=SAMPLES)
        axes.set(title=f"{name}, p = {p_value:.2g}", xticks=[0, bins], xticklabels=["0", str(calibration.num_samples)])
        axes.title.set_fontsize(9)
    figure.supxlabel("rank of the truth among the samples", fontsize=9)
    figure.supylabel("simulations", fontsize=9)
