"""Optimisers, and the average of parameters."""

from functools import partial
from typing import Any

import pytest
import torch

from bnnp.objectives import PPAVI, Terms
from bnnp.tasks import SplitBatch
from bnnp.training.optimiser import AveragedAdam, averaged, set_gradients
from support.training import fit, model, same, started, state


def test_the_optimiser_is_an_argument():
    """One step of plain gradient ascent, against the gradient of the objective computed here."""
    start, reference = started(model(), "spread"), started(model(), "spread")
    seen: list[SplitBatch] = []

    class Spy(PPAVI):
        def __call__(self, model: Any, batch: SplitBatch, generator: torch.Generator) -> Terms:
            seen.append(batch)
            return super().__call__(model, batch, torch.Generator().manual_seed(0))

    rate = 1e-3
    fit(
        start,
        steps=1,
        objective=Spy(2),
        optimiser=torch.optim.SGD,
        learning_rate=(rate, rate),
        prior_lr_multiplier=1,
        clip_norm=None,
    )
    PPAVI(2)(reference, seen[0], torch.Generator().manual_seed(0)).total().mean().backward()
    for parameter, moved_to in zip(reference.parameters(), start.parameters(), strict=True):
        step = torch.zeros_like(parameter) if parameter.grad is None else rate * parameter.grad
        torch.testing.assert_close(moved_to.detach(), parameter.detach() + step, rtol=1e-5, atol=1e-6)


def test_the_average_is_the_moving_average_of_the_steps():
    parameter = torch.nn.Parameter(torch.tensor([1.0]))
    optimiser = AveragedAdam([parameter], lr=0.1, decay=0.8)
    expected = None
    for step in range(1, 61):
        parameter.grad = torch.tensor([float(step % 3) - 0.5])
        optimiser.step()
        value = parameter.item()
        decay = min(0.8, step / (step + 10))
        expected = value if expected is None else decay * expected + (1 - decay) * value
    last = parameter.item()
    with averaged(optimiser):
        assert parameter.item() == pytest.approx(expected, rel=1e-5)
    assert parameter.item() == last
    optimiser.adopt()
    assert parameter.item() == pytest.approx(expected, rel=1e-5)


def test_evaluations_see_the_averaged_model_and_training_goes_on_from_the_last_step():
    seen = []
    result = fit(steps=6, evaluation=lambda m: seen.append(state(m)) or {"score": 0.0}, evaluate_every=3)
    assert same(seen[-1], state(result.model))
    assert same(state(fit(steps=6).model), state(result.model))


def test_gradients_move_their_own_elements_whatever_their_layout():
    """Fused Adam pairs numbers by their place in memory; a transposed gradient must be laid out anew."""
    for kind in (AveragedAdam, partial(torch.optim.Adam, fused=True)):
        gradient = torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.0, -1.0]])
        moved = []
        for given in (gradient, gradient.mT.contiguous().mT):
            parameter = torch.nn.Parameter(torch.zeros(2, 3))
            set_gradients([parameter], [given])
            kind([parameter], lr=0.1).step()
            moved.append(parameter.detach().sign())
        assert torch.equal(moved[0], -gradient)
        assert torch.equal(moved[1], moved[0])
