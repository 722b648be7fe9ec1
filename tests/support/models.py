"""Shared by tests: helpers of test_models."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from bnnp import BNNP, Bernoulli, Categorical, Gaussian, Pointwise
from bnnp.models import InferredWeights
from bnnp.numerics.gaussian import UpdateDraws
from bnnp.priors import PRIORS
from bnnp.tasks.task import Task, TaskBatch

IN, OUT, SAMPLES = 3, 2, 3
FLOAT64 = torch.float64


@dataclass(frozen=True)
class Member:
    """One model of the family: two hidden layers, several inputs and outputs, a prior that is not the standard one."""

    prior: str
    likelihood: str
    last_layer: str
    sees_hidden: bool

    def __str__(self):
        return f"{self.prior}-{self.likelihood}-{self.last_layer}{'-sees_hidden' if self.sees_hidden else ''}"

    def build(self, dtype: torch.dtype = FLOAT64) -> BNNP:
        model = BNNP(
            in_size=IN,
            out_size=OUT,
            hidden=(4, 2),
            activation="tanh",
            prior=self.prior,
            likelihood={"gaussian": Gaussian([0.2, 0.4]), "bernoulli": Bernoulli(), "labels": Categorical(OUT)}[
                self.likelihood
            ],
            inference=Pointwise(hidden=(5,), sees_hidden=self.sees_hidden),
            last_layer=self.last_layer,
            dtype=dtype,
            seed=0,
        )
        return with_random_prior(model)

    def task(self, points: int, seed: int = 0) -> Task:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(points, IN, generator=generator, dtype=FLOAT64)
        y = torch.randn(points, 1 if self.likelihood == "labels" else OUT, generator=generator, dtype=FLOAT64)
        return Task(x, y if self.likelihood == "gaussian" else (y > 0).double())


def with_random_prior(model: BNNP) -> BNNP:
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.prior.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator, dtype=FLOAT64).to(parameter.dtype)
    return model


MEMBERS = [
    Member(prior, "gaussian", last_layer, sees_hidden)
    for prior in PRIORS
    for last_layer in ("predicted", "likelihood", "pseudo")
    for sees_hidden in (False, True)
] + [Member(prior, likelihood, "pseudo", False) for prior in PRIORS for likelihood in ("bernoulli", "labels")]


def batch_of(*tasks: Task) -> TaskBatch:
    return TaskBatch.of(tasks, FLOAT64)


@dataclass(frozen=True)
class Draws:
    """The noise of one layer: weights (tasks, samples, units, d) and points (tasks, samples, out, points)."""

    weights: torch.Tensor
    points: torch.Tensor


def draws(model: BNNP, tasks: int, points: int, samples: int = SAMPLES) -> list[Draws]:
    generator = torch.Generator().manual_seed(2)
    noise = []
    for layer in range(model.network.num_layers):
        units, size = model.prior.unit_shape(layer)
        out = model.network.sizes[layer + 1]
        weights = torch.randn(tasks, samples, units, size, generator=generator, dtype=model.dtype)
        of_points = torch.randn(tasks, samples, out, points, generator=generator, dtype=model.dtype)
        noise.append(Draws(weights, of_points))
    return noise


def infer(model: BNNP, context: TaskBatch, noise: list[Draws]) -> InferredWeights:
    one_unit = model.prior.couples_outputs
    records = [UpdateDraws(n.weights, n.points.flatten(-2).unsqueeze(-2) if one_unit else n.points) for n in noise]
    with torch.no_grad():
        return model.infer(context, noise[0].weights.shape[1], records)


def on_tasks(noise: list[Draws], rows: slice) -> list[Draws]:
    return [Draws(layer.weights[rows], layer.points[rows]) for layer in noise]


def on_points(noise: list[Draws], change: Callable[[torch.Tensor], torch.Tensor]) -> list[Draws]:
    return [Draws(layer.weights, change(layer.points)) for layer in noise]


def assert_same(one: InferredWeights, other: InferredWeights, rtol: float = 1e-9):
    for a, b in zip([*one.weights, *one.kl], [*other.weights, *other.kl], strict=True):
        torch.testing.assert_close(*torch.broadcast_tensors(a, b), rtol=rtol, atol=rtol)
