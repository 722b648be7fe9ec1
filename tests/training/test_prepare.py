"""Before the first step: where the prior starts, and which of its parameters stay fixed."""

from dataclasses import dataclass
from functools import partial

import pytest
import torch

import bnnp
from bnnp.models import AmortisedModel
from support.training import fit, model, same, small_sawtooth, started, state


def prior_moments(of: AmortisedModel) -> list[torch.Tensor]:
    with torch.no_grad():
        return [tensor.clone() for block in of.prior.gaussians for tensor in (block.mean(), block.factor())]  # pyright: ignore


def moved(before: list[torch.Tensor], after: list[torch.Tensor]) -> list[bool]:
    return [not torch.equal(a, b) for a, b in zip(before, after, strict=True)]


@pytest.mark.parametrize("optimiser", [torch.optim.Adam, partial(torch.optim.AdamW, weight_decay=0.5)])
def test_a_fixed_prior_does_not_move(optimiser):
    start = model().set_prior_learnability(0)
    before = prior_moments(start)
    fit(start, optimiser=optimiser)
    assert not any(moved(before, prior_moments(start)))


def test_only_the_learnable_share_of_a_prior_moves():
    start = model(prior="factorised").set_prior_learnability(6 / 10)  # the 6 weights of the first layer
    before = prior_moments(start)
    fit(start)
    assert moved(before, prior_moments(start)) == [True, True, False, False]


def test_spread_moves_a_standard_learnable_prior():
    start = model()
    before = prior_moments(start)
    assert moved(before, prior_moments(started(start, "spread")))[0]


def test_standard_leaves_it():
    start = model()
    before = prior_moments(start)
    assert not any(moved(before, prior_moments(started(start, "standard"))))


def test_spread_leaves_fixed_and_trained_priors():
    fixed, trained = model().set_prior_learnability(0), fit().model
    for start in (fixed, trained):
        before = prior_moments(start)
        assert not any(moved(before, prior_moments(started(start, "spread"))))


def test_spread_is_the_same_for_the_same_seed_and_keeps_inference_networks():
    first, second = model(), model()
    networks = {name: tensor for name, tensor in state(first).items() if name.startswith("layers")}
    started(first, "spread")
    assert same(state(first), state(started(second, "spread")))
    assert all(torch.equal(first.state_dict()[name], tensor) for name, tensor in networks.items())


def test_a_name_is_short_for_an_object():
    assert same(state(started(model(), "spread")), state(started(model(), bnnp.starts.Spread())))
    assert not same(state(started(model(), "spread")), state(started(model(), bnnp.starts.Spread(slope=8.0))))


@dataclass(frozen=True)
class Shifted(bnnp.starts.Start):
    """A user's own start: all means at one value."""

    mean: float = 2.0

    def set(self, prior, examples, generator) -> None:
        for layer, shape in enumerate(prior.network.weight_shapes):
            prior.assign_layer(layer, torch.full(shape, self.mean), torch.ones(shape))


def test_a_users_own_start():
    trained = started(model(), Shifted(3.0))
    assert all(bool((block.mean() == 3.0).all()) for block in trained.prior.gaussians)  # pyright: ignore


def test_a_users_own_start_is_a_part_of_what_a_checkpoint_must_share(tmp_path):
    fit(prior_start=Shifted(3.0), checkpoint=tmp_path)
    fit(prior_start=Shifted(3.0), checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"prior_start='Shifted\(mean=3.0\)', but got prior_start='Shifted\(mean=2.0"):
        fit(prior_start=Shifted(), checkpoint=tmp_path)


@pytest.mark.parametrize("name", ["spread", "empirical"])
def test_a_prior_is_started_apart_as_fit_starts_it(name):
    apart, other = model(), model()
    bnnp.start_prior(apart, small_sawtooth(), name, seed=4)
    bnnp.start_prior(other, small_sawtooth(), name, seed=5)
    assert not same(state(apart), state(other))
    assert same(state(apart), state(fit(model(), steps=1, learning_rate=0.0, prior_start=name, seed=4).model))


def test_a_prior_is_held_where_it_starts():
    start = model()
    bnnp.start_prior(start, small_sawtooth(), "empirical")
    before, networks = prior_moments(start.set_prior_learnability(0)), state(start)
    fit(start)
    assert not any(moved(before, prior_moments(start)))
    assert not torch.equal(state(start)["likelihood.raw"], networks["likelihood.raw"])  # the rest has learned
    start.set_prior_learnability(1)
    assert not any(moved(before, prior_moments(start)))
    fit(start)
    assert all(moved(before, prior_moments(start)))


@pytest.mark.parametrize("option", ["slope", "uncertainty", "whitening_floor"])
def test_bad_options_of_a_start_are_refused_by_name(option):
    for value in (0, -1.0, float("nan"), float("inf"), "steep"):
        with pytest.raises(ValueError, match=f"{option}: got {value!r}, expected a positive number, as in Spread"):
            bnnp.starts.Spread(**{option: value})  # pyright: ignore
