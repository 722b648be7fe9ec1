"""Figures: functions drawn from prior and posterior, calibration, training history.

Every function returns a `matplotlib.figure.Figure`; nothing touches pyplot's state. Save with `save_figure`.
"""

from bnnp.plots.diagnostics import calibration, draw_rank_histograms, history, rank_histograms
from bnnp.plots.figure import save_figure
from bnnp.plots.functions import draw_functions, draw_posterior, functions, overview

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
