"""Figures: functions drawn from prior and posterior, calibration, training history.

Every function returns a `matplotlib.figure.Figure`; nothing touches pyplot's state. Save with `save_figure`.
"""

from bnnp.plots.diagnostics import calibration, draw_rank_histograms, history, rank_histograms
from bnnp.plots.figure import ENDINGS, save_figure
from bnnp.plots.functions import draw_functions, draw_posterior, functions, overview
from bnnp.plots.subjects import posterior, subjects

__all__ = [
    "ENDINGS",
    "calibration",
    "draw_functions",
    "draw_posterior",
    "draw_rank_histograms",
    "functions",
    "history",
    "overview",
    "posterior",
    "rank_histograms",
    "save_figure",
    "subjects",
]
