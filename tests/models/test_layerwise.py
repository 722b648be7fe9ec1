"""The walk through the layers: what an update gets, and what is done with its result."""

import pytest
import torch

from bnnp import FactorisationError
from bnnp.models.layerwise import Given, Turn, Updated, arrive, through_layers
from bnnp.networks.base import features_of_layer
from support.models import FLOAT64, IN, MEMBERS, Member, batch_of

every_prior = pytest.mark.parametrize("prior", ["factorised", "unitwise", "layerwise", "networkwise"])


def weights_of(model, samples: int = 3) -> list[torch.Tensor]:
    return [w.unsqueeze(0) for w in model.prior.sample(samples, seed=5)]


@every_prior
def test_given_weights_make_a_forward_pass(prior):
    model = Member(prior, "gaussian", "pseudo", sees_hidden=False).build()
    x, weights = torch.randn(1, 6, IN, dtype=FLOAT64), weights_of(model)
    end = through_layers(model.network, model.prior, x, Given(weights))
    assert end.index == model.network.num_layers
    torch.testing.assert_close(end.features, model.network(weights, x.unsqueeze(1)), rtol=0, atol=0)
    for layer in range(model.network.num_layers):
        turn = arrive(model.network, model.prior, x, weights[:layer])
        expected = features_of_layer(model.network.program(x.unsqueeze(1)), weights[:layer])
        torch.testing.assert_close(turn.features, expected, rtol=0, atol=0)


@every_prior
def test_every_layer_sees_its_prior_given_the_layers_before(prior):
    model = Member(prior, "gaussian", "pseudo", sees_hidden=False).build()
    x, weights = torch.zeros(1, 0, IN, dtype=FLOAT64), weights_of(model)
    whitened: list[torch.Tensor] = []
    seen = []

    def update(turn: Turn) -> Updated:
        expected = model.prior.layer(turn.index, whitened)
        torch.testing.assert_close(turn.prior.mean, expected.mean)
        whitened.append(expected.whiten(model.prior.to_units(weights[turn.index])))
        seen.append([w is given for w, given in zip(turn.weights, weights, strict=False)])
        return Given(weights)(turn)

    through_layers(model.network, model.prior, x, update)
    assert seen == [[True] * layer for layer in range(model.network.num_layers)]


@every_prior
def test_weights_are_whitened_only_where_later_layers_depend_on_them(prior):
    model = Member(prior, "gaussian", "pseudo", sees_hidden=False).build()
    weights, calls = weights_of(model), []

    def update(turn: Turn) -> Updated:
        given = Given(weights)(turn)
        assert turn.prior is not None
        return Updated(given.weights, lambda: calls.append(turn.index) or given.whitened)

    through_layers(model.network, model.prior, torch.zeros(1, 0, IN, dtype=FLOAT64), update)
    assert calls == ([0, 1] if model.prior.couples_layers else [])


def test_points_at_the_end_can_be_left_out():
    model, x = MEMBERS[0].build(), torch.randn(2, 6, IN, dtype=FLOAT64)
    turn = arrive(model.network, model.prior, x, [w.expand(2, -1, -1, -1) for w in weights_of(model)[:1]])
    few = turn.at_first(4)
    assert torch.equal(few.features, turn.features[:, :, :4])
    assert torch.equal(few.outputs, turn.outputs[:, :, :4])
    assert few.index == turn.index


def test_an_update_that_fails_names_its_layer_and_the_task():
    model, context = MEMBERS[0].build(), batch_of(MEMBERS[0].task(3))

    def update(turn: Turn) -> Updated:
        if turn.index == 1:
            raise FactorisationError("not positive definite", 7)
        return Given(weights_of(model))(turn)

    with pytest.raises(FactorisationError, match="layer 2, task 7 of the batch: not positive definite") as error:
        through_layers(model.network, model.prior, context.x, update)
    assert error.value.task == 7
