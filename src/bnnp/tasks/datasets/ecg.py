"""Simulated heartbeats (paper, App. F): one beat at a random place in six seconds of rest."""

from dataclasses import dataclass

import numpy as np
import torch

from bnnp._core.optional import optional_module
from bnnp.tasks.source import Functions
from bnnp.tasks.task import Task

WINDOW = 6.0
"""Seconds of a task."""
_SIMULATED, _HEART_RATE = 8.0, 20  # seconds and beats per minute of the simulated signal
_BEAT = (3.5, 6.5)  # seconds of it that hold one whole beat
_REST = (7.0, 8.0)  # seconds of it that hold none; repeated, they fill the window
_SEEDS = 2**31


@dataclass(frozen=True)
class Heartbeats(Functions):
    """Single heartbeats as functions of time in seconds, -3 to 3, with a peak of 0.5.

    Args:
        rate: Points per second.
        noise: Amplitude of the noise, in millivolts before scaling.
        points: The smallest and the largest size of a task, whose points are chosen at random. If None, a task has all
            points, in order of time.
    """

    rate: int
    noise: float
    points: tuple[int, int] | None

    def __post_init__(self):
        if not isinstance(self.rate, int | np.integer) or self.rate < 20:
            raise ValueError(f"rate: got {self.rate!r}, expected a whole number of points per second, at least 20")
        if not (np.isfinite(self.noise) and self.noise >= 0):
            raise ValueError(f"noise: got {self.noise!r}, expected a number that is not negative")
        most = int(WINDOW * self.rate)
        if self.points is not None and not 2 <= self.points[0] <= self.points[-1] <= most:
            raise ValueError(f"points: got {self.points}, expected a range within 2 and {most}, as in (40, 100)")

    def draw_one(self, generator: torch.Generator) -> Task:
        signal = self._simulated(int(torch.randint(_SEEDS, (), generator=generator)))
        beat, rest = self._part(signal, *_BEAT), self._part(signal, *_REST)
        around = np.tile(rest, round((WINDOW - _BEAT[1] + _BEAT[0]) / (_REST[1] - _REST[0])))
        start = int(torch.rand((), generator=generator, dtype=torch.float64) * len(around))
        whole = np.concatenate([around[:start], beat, around[start:]])
        time = np.linspace(-WINDOW / 2, WINDOW / 2, len(whole), endpoint=False)
        task = Task.of(time, whole)
        if self.points is None:
            return task
        wanted = int(torch.randint(self.points[0], self.points[1] + 1, (), generator=generator))
        return task.take(torch.randperm(len(task), generator=generator)[:wanted])

    def _simulated(self, seed: int) -> np.ndarray:
        """Two beats with rest between them, of mean 0 and largest value 0.5."""
        neurokit2 = optional_module("neurokit2", "simulating heartbeats", "data")
        signal = neurokit2.ecg_simulate(
            duration=_SIMULATED,
            sampling_rate=int(self.rate),
            heart_rate=_HEART_RATE,
            noise=self.noise,
            method="simple",
            random_state=seed,
        )
        centred = signal - signal.mean()
        return centred / (2 * centred.max())

    def _part(self, signal: np.ndarray, first: float, last: float) -> np.ndarray:
        return signal[int(first * self.rate) : int(last * self.rate)]


def ecg(*, rate: int = 100, noise: float = 0.001, points: tuple[int, int] | None = None) -> Heartbeats:
    """Simulated electrocardiograms: time in seconds as input, voltage as output (paper, App. F).

    A task has 600 points by default. The paper trains with contexts of 2 to 64 of all 600 points.

    Args:
        rate: Points per second, at least 20.
        noise: Amplitude of the noise in the simulation, in millivolts.
        points: The smallest and the largest size of a task, as in `(40, 100)`, whose points are chosen at random. If
            None, a task has all points, in order of time.

    Returns:
        The source of tasks.

    Raises:
        ImportError: If neurokit2 is not installed (`pip install 'bnnp[data]'`).
        ValueError: If an argument is not as above.

    Example:
        >>> size = bnnp.tasks.ContextCount(2, 64)
        >>> result = bnnp.fit(model, bnnp.tasks.ecg(), context_share=size)  # doctest: +SKIP
    """
    optional_module("neurokit2", "simulating heartbeats", "data")  # fails now, not in the middle of training
    return Heartbeats(rate, noise, None if points is None else (points[0], points[-1]))
