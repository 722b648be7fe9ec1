"""Smooth curves of many kinds: their moments, by integrals over the kinds."""

import numpy as np
import torch

import bnnp
from bnnp.tasks.curves import LENGTHS, PERIODS

POINTS = np.array([-3.0, -2.6, 0.5, 2.5])
DRAWS = 20_000


def test_covariance_is_that_of_all_kinds_together():
    source, stream = bnnp.tasks.curves(), torch.Generator().manual_seed(0)
    drawn = np.stack([source.values(torch.from_numpy(POINTS)[:, None], stream)[:, 0].numpy() for _ in range(DRAWS)])
    shares = (np.arange(20_000) + 0.5) / 20_000
    length, period = (low * (high / low) ** shares for low, high in (LENGTHS, PERIODS))
    for i, a in enumerate(POINTS):
        for j, b in enumerate(POINTS):
            expected = np.exp(-0.5 * ((a - b) / length) ** 2).mean() + np.cos(2 * np.pi * (a - b) / period).mean() / 3
            expected += 0.25 * a * b / 2
            products = drawn[:, i] * drawn[:, j]
            assert abs(products.mean() - expected) < 4.5 * products.std() / DRAWS**0.5, (a, b)


def test_tasks_have_noise_and_lie_in_the_range():
    (task,) = bnnp.tasks.curves(noise=0.5, low=1.0, high=1.001, points=(2000, 2000)).draw(1, torch.Generator())
    assert float(task.x.min()) >= 1
    assert float(task.x.max()) <= 1.001
    assert abs(float(task.y.std()) / 0.5 - 1) < 0.1
