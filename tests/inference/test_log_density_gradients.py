"""Gradients that were derived by hand, against autograd's."""

import pytest
import torch

import bnnp
from bnnp.inference.gradient import by_autograd
from bnnp.inference.target import Target
from bnnp.networks.base import ACTIVATIONS
from support.gradients import LIKELIHOODS, sets
from support.models import with_random_prior

FLOAT64 = torch.float64


def target(prior: str, likelihood: str, activation, whitened: bool) -> Target:
    model = with_random_prior(
        bnnp.BNNP(3, 2, (5, 4), activation, prior=prior, likelihood=LIKELIHOODS[likelihood], dtype=FLOAT64)
    )
    return Target.of(model.prior, model.network, sets(likelihood), model.likelihood, whitened)


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("prior", list(bnnp.priors.PRIORS))
@pytest.mark.parametrize("whitened", [True, False])
def test_value_and_gradient_of_every_prior_and_likelihood(prior, likelihood, whitened):
    of = target(prior, likelihood, "tanh", whitened)
    position = of.draw_prior(3, torch.Generator().manual_seed(0))
    power = torch.tensor([0.3, 0.8], dtype=FLOAT64)
    torch.testing.assert_close(of.value_and_gradient(position), by_autograd(of.log_density, position))

    def tempered(p):
        return of.log_prior(p) + power[:, None] * of.log_likelihood(p).sum(-1)

    torch.testing.assert_close(of.value_and_gradient(position, power), by_autograd(tempered, position))


@pytest.mark.parametrize("activation", [*ACTIVATIONS, torch.sin])
def test_value_and_gradient_of_every_nonlinearity(activation):
    of = target("unitwise", "gaussian", activation, True) if isinstance(activation, str) else None
    if of is None:  # a function of the user's; models take names, networks both
        named = target("unitwise", "gaussian", "tanh", True)
        network = bnnp.Network(named.network.sizes, activation)
        of = Target(named.prior, network, named.likelihood, named.data)
    position = of.draw_prior(2, torch.Generator().manual_seed(1))
    torch.testing.assert_close(of.value_and_gradient(position), by_autograd(of.log_density, position))


def test_a_standard_prior_is_taken_as_diagonal_without_a_change():
    model = bnnp.BNNP(3, 2, (5,), "relu", likelihood=LIKELIHOODS["gaussian"], dtype=FLOAT64)
    of = Target.of(model.prior, model.network, sets("gaussian"), model.likelihood)
    assert all(prior.is_diagonal for prior in of._priors)
    position = of.draw_prior(2, torch.Generator().manual_seed(1))
    weights = of.weights(position)
    for layer, w in enumerate(weights):
        prior = model.prior.layer(layer, [])
        assert not prior.is_diagonal
        units = prior.weights(of._units(position)[layer])
        torch.testing.assert_close(model.prior.from_units(layer, units), w)


def test_without_points_the_posterior_is_the_prior():
    model = with_random_prior(bnnp.BNNP(3, 2, (5,), likelihood=LIKELIHOODS["gaussian"], dtype=FLOAT64))
    of = Target.of(model.prior, model.network, sets("gaussian", (0, 0)), model.likelihood)
    position = of.draw_prior(2, torch.Generator().manual_seed(1))
    value, gradient = of.value_and_gradient(position)
    torch.testing.assert_close(value, -0.5 * position.square().sum(-1))
    torch.testing.assert_close(gradient, -position)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_slope_and_curvature_of_every_likelihood(name):
    likelihood = LIKELIHOODS[name].for_outputs(2).to(FLOAT64)
    f = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=FLOAT64)
    y = torch.from_numpy(sets(name, (6,))[0][1])
    _, slope = by_autograd(lambda outputs: likelihood.log_prob(outputs, y).unsqueeze(-1).sum(-1), f)
    torch.testing.assert_close(likelihood.slope(f, y).detach(), slope)
    root = likelihood.curvature_root(f).detach()
    for point in range(6):
        hessian = torch.autograd.functional.hessian(
            lambda one, at=point: likelihood.log_prob(one.unsqueeze(0), y[at : at + 1]).sum(), f[point]
        )
        torch.testing.assert_close(root[point].mT @ root[point], -hessian)


def test_slope_and_curvature_where_the_network_predicts_the_noise():
    """The curvature is the variance of the slope, as for every likelihood; here it is found by drawing."""
    likelihood = bnnp.HeteroscedasticGaussian(0.4)
    f = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=FLOAT64)
    y = torch.randn(3, 2, generator=torch.Generator().manual_seed(1), dtype=FLOAT64)
    _, slope = by_autograd(lambda outputs: likelihood.log_prob(outputs, y), f)
    torch.testing.assert_close(likelihood.slope(f, y), slope)
    many = f.expand(40_000, 3, 4)
    drawn = likelihood.slope(many, likelihood.sample(many, torch.Generator().manual_seed(2)))
    root = likelihood.curvature_root(f)
    for point in range(3):
        expected = root[point].mT @ root[point]
        scale = expected.diagonal().sqrt()
        error = (torch.cov(drawn[:, point].mT) - expected) / (scale[:, None] * scale)
        assert float(error.abs().max()) < 0.15  # the fourth moment of the slope by the noise is large
