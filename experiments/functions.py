"""Whole functions of one input on a grid: those of a process, those of a prior, and how far apart they are."""

import math

import numpy as np
import torch

import bnnp
from bnnp.tasks.source import TaskSource
from bnnp.tasks.synthetic import Synthetic

GRID, TEST_SEED = 128, 69
ACTIVATIONS = {"sawtooth": "relu", "heaviside": "tanh", "bnn": "relu", "ecg": "tanh", "gp": "silu"}
"""The paper's."""


def source_of(process: str, points: tuple[int, int] | None = None) -> TaskSource:
    sizes = {} if points is None else {"points": points}
    return bnnp.tasks.SOURCES[process](**sizes)


def compared(process: str, model: bnnp.BNNP, count: int) -> dict[str, dict[str, float]]:
    """How far draws are from draws of the process: other draws of itself, the learned prior, and the standard prior."""
    x, real = real_functions(process, 2 * count)
    standard = bnnp.BNNP(1, 1, model.network.sizes[1:-1], ACTIVATIONS[process], seed=0)
    drawn = {
        "the process itself": real[count:],
        "learned prior": values_of(model, x, count),
        "standard prior": values_of(standard, x, count),
    }
    return {name: differences(real[:count], values) for name, values in drawn.items()}


def differences(real: torch.Tensor, drawn: torch.Tensor) -> dict[str, float]:
    """Three numbers that are 0 for draws of the same process, (count, grid) each.

    energy distance: of whole functions.  jump: of the largest steps between neighbours of the grid, means of them, by
    their ratio's logarithm.  spectrum: root mean square difference of the logarithms of the mean power of each
    frequency.
    """
    jumps = [values.diff(dim=1).abs().amax(1).mean() for values in (real, drawn)]
    powers = [torch.fft.rfft(values, dim=1).abs().square().mean(0).clamp(min=1e-12).log() for values in (real, drawn)]
    return {
        "energy distance": energy_distance(real, drawn),
        "jump": float((jumps[1] / jumps[0].clamp(min=1e-12)).log()),
        "spectrum": float((powers[1] - powers[0]).square().mean().sqrt()),
    }


def values_of(model: bnnp.BNNP, x: np.ndarray, count: int) -> torch.Tensor:
    return torch.from_numpy(np.stack([f(x[:, None])[:, 0] for f in model.prior.functions(count, seed=1)])).double()


def real_functions(process: str, count: int) -> tuple[np.ndarray, torch.Tensor]:
    """Functions of the process on a grid, without noise where that is known: (grid,), (count, grid)."""
    generator = torch.Generator().manual_seed(TEST_SEED)
    source = source_of(process)
    if isinstance(source, Synthetic):
        x = torch.linspace(source.low, source.high, GRID, dtype=torch.float64)
        return x.numpy(), torch.stack([source.values(x[:, None], generator)[:, 0] for _ in range(count)])
    tasks = source.draw(count, generator)
    every = len(tasks[0]) // GRID
    return tasks[0].x[::every, 0].numpy(), torch.stack([task.y[::every, 0] for task in tasks])


def energy_distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """`2 E|a - b| - E|a - a'| - E|b - b'|`, the root of it, for the root mean square difference along the grid."""

    def mean(p: torch.Tensor, q: torch.Tensor, pairs: int) -> torch.Tensor:
        return torch.cdist(p, q).sum() / pairs / math.sqrt(p.shape[1])

    n, m = len(a), len(b)
    squared = 2 * mean(a, b, n * m) - mean(a, a, n * (n - 1)) - mean(b, b, m * (m - 1))
    return float(squared.clamp(min=0).sqrt())
