"""Whether the noise varies with the inputs, as the empirical start decides it."""

import numpy as np
import pytest
import torch

from bnnp.numerics.bends import bends_at, bends_over
from bnnp.priors.starts.fitting import fit_mixed
from bnnp.priors.starts.mixed import MixedModel
from bnnp.priors.starts.noise import fit_noise, varied_noise
from bnnp.priors.starts.sums import Sums, TaskPoints


def lines(count: int, grows: float, outputs: int = 1, seed: int = 0) -> tuple[list[TaskPoints], list[torch.Tensor]]:
    """Tasks of random lines whose log-noise grows along x in the first output, and the bends of their inputs."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (count, 12, 1))
    phi = np.concatenate([x, np.ones_like(x)], -1)
    f = phi @ rng.normal(0, [1.0, 0.5], (count, outputs, 2)).transpose(0, 2, 1)
    noise = 0.1 * np.exp(grows * x * (np.arange(outputs) == 0))
    y = f + noise * rng.normal(size=f.shape)
    inputs = torch.from_numpy(x)
    table = bends_over(inputs.flatten(0, 1), [0])
    tasks = [TaskPoints(one, other) for one, other in zip(torch.from_numpy(phi), torch.from_numpy(y), strict=True)]
    return tasks, list(bends_at(table, inputs))


def one_noise(tasks: list[TaskPoints]) -> MixedModel:
    first = MixedModel.first(torch.tensor([0.3, 1.0], dtype=torch.float64), tasks[0].y.shape[1])
    return fit_mixed(Sums.of(tasks), first)[0]


def test_the_coefficients_maximise_the_evidence():
    """The evidence with its belief falls by as much on either side, for each coefficient, where the fit has ended."""
    tasks, bends = lines(5, grows=1.0, outputs=2)
    fitted = fit_noise(tasks, bends, one_noise(tasks), None)
    sizes = torch.tensor([[2.0], [0.5], [0.5], [0.5]]).double()

    def value(coefficients: torch.Tensor) -> float:
        noisy = [TaskPoints(task.phi, task.y, bend @ coefficients) for task, bend in zip(tasks, bends, strict=True)]
        return float(fitted.model.evidence(Sums.of(noisy)).sum() - 0.5 * (coefficients / sizes).square().sum())

    for index in np.ndindex(4, 2):
        step = torch.zeros(4, 2, dtype=torch.float64)
        step[index] = 1e-3
        low, middle, high = (value(fitted.coefficients + k * step) for k in (-1, 0, 1))
        assert abs(high - low) / 2e-3 < 0.5  # a slope; in units of its standard deviation below 0.5 sizes
        assert high + low < 2 * middle


def test_a_noise_that_grows_is_found():
    """Sixty tasks of 12 points: the noise at either end is known to about 5 %, and bends add to that."""
    tasks, bends = lines(60, grows=1.5)
    found = varied_noise(tasks, bends, one_noise(tasks), None)
    assert found is not None
    x = torch.cat([task.phi[:, 0] for task in tasks])
    noise = torch.cat(found.log_noise(bends)).exp()[:, 0] * found.model.noise
    relative = noise / (0.1 * (1.5 * x).exp())
    assert float(relative.log().abs().max()) < 0.3
    assert float(relative.log().square().mean().sqrt()) < 0.1


def test_each_output_has_its_own():
    tasks, bends = lines(60, grows=1.5, outputs=2)
    found = fit_noise(tasks, bends, one_noise(tasks), None)
    spread = torch.cat(found.log_noise(bends)).std(0)
    assert float(spread[0]) == pytest.approx(1.5 / 3**0.5, rel=0.15)
    assert float(spread[1]) < 0.15


@pytest.mark.parametrize("count", [1, 5, 30])
def test_a_constant_noise_is_not_taken_for_one_that_varies(count):
    """Constant noise, twice: neither time is a noise that varies taken. One task cannot be left out."""
    taken = []
    for seed in range(2):
        tasks, bends = lines(count, grows=0.0, seed=seed)
        taken.append(varied_noise(tasks, bends, one_noise(tasks), None) is not None)
    assert not any(taken)
