"""Shared by tests: helpers of test_last_layer."""

import torch

from bnnp import BNNP, Gaussian, Pointwise
from bnnp.tasks.task import Task

TASKS, SAMPLES, D, OUT = 2, 3, 5, 2
FLOAT64 = torch.float64


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=FLOAT64)


def model_of(
    prior: str, last_layer: str = "predicted", hidden: tuple[int, ...] = (4, 3), sees_hidden: bool = False
) -> BNNP:
    model = BNNP(
        2,
        OUT,
        hidden,
        "tanh",
        prior,
        Gaussian([0.6, 0.9]),
        inference=Pointwise(hidden=(5,), sees_hidden=sees_hidden),
        last_layer=last_layer,
        dtype=FLOAT64,
        seed=0,
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.prior.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator, dtype=FLOAT64)
    return model


def task(points: int, seed: int) -> Task:
    values = normal(points, 2 + OUT, seed=seed)
    return Task(values[:, :2], values[:, 2:])


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
