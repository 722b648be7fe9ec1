"""Lessons: inference networks that learn from draws of the prior."""

import numpy as np
import pytest
import torch

import bnnp
from bnnp._core.random import child
from bnnp.tasks.task import TaskBatch
from bnnp.training.lessons import can_teach, lesson, teach_inference


def small(prior: str = "unitwise", **choices) -> bnnp.BNNP:
    return bnnp.BNNP(2, 2, (4, 3), "tanh", prior, last_layer="likelihood", dtype=torch.float64, seed=0, **choices)


def batch(model: bnnp.BNNP) -> TaskBatch:
    generator = np.random.default_rng(0)
    pairs = [torch.from_numpy(generator.normal(size=(2, n, 2))) for n in (3, 7)]
    tasks = [bnnp.tasks.Task(x=x, y=y) for x, y in pairs]
    return model.prepare(TaskBatch.of(tasks))


@pytest.mark.parametrize("prior", ["unitwise", "factorised"])
def test_a_lesson_is_the_density_of_what_units_did(prior: str):
    model, seed = small(prior), 3
    points = batch(model)
    found = float(lesson(model, points, child(seed)).detach())
    generator, h, whitened, done = child(seed), points.x.numpy(), [], []
    for layer in range(3):  # the same draws, written out for each task, point and unit
        units = model.prior.layer(layer, whitened)
        drawn = torch.randn((1, 2, *model.prior.unit_shape(layer)), dtype=torch.float64, generator=generator)
        whitened.append(drawn)
        factor = torch.diag_embed(units.factor) if units.is_diagonal else units.factor
        weights = (units.mean[0] + torch.einsum("ude,tue->tud", factor, drawn[0])).detach().numpy()
        phi = np.concatenate([h if layer == 0 else np.tanh(h), np.ones((2, 7, 1))], -1)
        h = np.einsum("tnd,tud->tnu", phi, weights)
        done.append((phi, h, units.mean[0].detach().expand(2, -1, -1).numpy(), factor.detach().numpy()))
    y = torch.from_numpy(h) + model.noise_at(points.x) * torch.randn(h.shape, dtype=torch.float64, generator=generator)
    drawn_points, wanted = TaskBatch(points.x, y.detach(), points.mask), 0.0
    for layer, (phi, did, mean, factor) in enumerate(done[:2]):
        pseudo = model.pseudo_observations(layer, drawn_points, drawn_points.x.unsqueeze(1))
        value, inverse = (part[:, 0].mT.detach().numpy() for part in (pseudo.y, pseudo.inverse_noise))
        densities = []
        for task, size in enumerate((3, 7)):
            for n in range(size):
                for unit in range(did.shape[-1]):
                    centre = phi[task, n] @ mean[task, unit]
                    variance = np.square(phi[task, n] @ factor[unit]).sum()
                    precision = 1 / variance + inverse[task, n, unit] ** 2
                    shifted = (centre / variance + inverse[task, n, unit] ** 2 * value[task, n, unit]) / precision
                    densities.append(0.5 * (np.log(precision) - precision * (did[task, n, unit] - shifted) ** 2))
        wanted += np.mean(densities)
    assert found == pytest.approx(wanted, rel=1e-10)


def test_teaching_raises_the_density_and_leaves_the_prior_alone():
    model, source = small(), bnnp.tasks.from_arrays([(np.ones((9, 2)) * k, np.ones((9, 2)) * k) for k in range(4)])
    points, before = batch(model), [parameter.clone() for parameter in model.prior.parameters()]

    def value() -> float:
        return float(sum(lesson(model, points, child(seed)).detach() for seed in range(20)))

    first = value()
    teach_inference(model, source, 100, progress=False, seed=0)
    assert value() > first + 1
    assert all(bool((old == new).all()) for old, new in zip(before, model.prior.parameters(), strict=True))


def test_who_can_be_taught():
    assert can_teach(small())
    assert not can_teach(small("layerwise"))
    assert not can_teach(bnnp.BNNP(1, 1, (4,), likelihood=bnnp.Bernoulli()))
    assert not can_teach(bnnp.neural_processes.CNP(1, 1))
