"""Where a function of a few numbers is least, by L-BFGS: how starts are fitted."""

import math
from collections.abc import Callable

import numpy as np
import torch

TOLERANCE = 1e-7
"""A fit ends when an iteration gains less than this share of the log-evidence."""
ITERATIONS = 40
"""Largest number of iterations of a fit."""


def minimise(
    loss: Callable[[np.ndarray], tuple[float, np.ndarray]], start: np.ndarray, least: np.ndarray | None = None
) -> tuple[np.ndarray, float]:
    """Where a function is least, and its value there, by L-BFGS.

    Args:
        loss: The function, which gives its value and its slope.
        start: Where the search begins.
        least: Lower bounds of the numbers that are searched for; none by default.
    """
    from scipy import optimize  # slow to import, and only starts need it

    def careful(vector: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            return loss(vector)
        except torch.linalg.LinAlgError:  # pyright: ignore
            return math.inf, np.zeros_like(vector)

    options = {"maxiter": ITERATIONS, "ftol": TOLERANCE}
    bounds = None if least is None else optimize.Bounds(lb=least)
    found = optimize.minimize(careful, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return found.x, float(found.fun)
