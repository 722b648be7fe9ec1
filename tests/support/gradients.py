"""Shared by tests: helpers of test_log_density_gradients."""

import numpy as np

import bnnp

LIKELIHOODS = {
    "gaussian": bnnp.Gaussian((0.4, 0.7)),
    "bernoulli": bnnp.Bernoulli(),
    "categorical": bnnp.Categorical(2),
}


def sets(likelihood: str, points: tuple[int, ...] = (7, 4)) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    made = []
    for n in points:
        x = rng.normal(size=(n, 3))
        if likelihood == "gaussian":
            y = rng.normal(size=(n, 2))
        else:
            y = rng.integers(0, 2, size=(n, 1 if likelihood == "categorical" else 2)).astype(float)
        made.append((x, y))
    return made
