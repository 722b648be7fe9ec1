"""Where a learnable prior starts."""

import numpy as np
import pytest
import torch

import bnnp
from bnnp.networks.base import features_of_layer
from bnnp.priors import PRIORS
from bnnp.priors.learnable import GaussianUnits
from bnnp.priors.starts import STARTS, Examples, Spread
from bnnp.priors.starts.spread import FIRST_SCALE


def started(prior: str, in_size: int = 1, share: float = 1.0, hidden=(6, 5)) -> tuple[bnnp.BNNP, torch.Tensor]:
    model = bnnp.BNNP(in_size, 2, hidden, prior=prior).set_prior_learnability(share)
    generator = torch.Generator().manual_seed(0)
    x = 3 + 2 * torch.rand(400, in_size, generator=generator)
    Spread().set(model.prior, Examples([x], [], torch.tensor([0.5, 4.0])), generator)
    return model, x


def mean_weights(model: bnnp.BNNP) -> list[torch.Tensor]:
    """Every layer's mean; with no correlation between layers the whitened weights before it do not matter."""
    zeros, means = [], []
    for layer in range(model.network.num_layers):
        means.append(model.prior.from_units(layer, model.prior.layer(layer, zeros).mean)[0, 0].detach())
        zeros.append(torch.zeros(1, 1, *model.prior.unit_shape(layer)))
    return means


def entries(model: bnnp.BNNP, name: str) -> torch.Tensor:
    """The parameters of one kind of all weights, in the order of the weights."""
    blocks = [block for block in model.prior.gaussians if isinstance(block, GaussianUnits)]
    return torch.cat([getattr(block, name)().flatten() for block in blocks]).detach()


@pytest.mark.parametrize("prior", PRIORS)
def test_first_layer_bends_at_quantiles_of_the_inputs(prior):
    model, x = started(prior)
    slope, bias = mean_weights(model)[0]
    bends = -bias / slope
    levels = (torch.arange(6) + 0.5) / 6
    torch.testing.assert_close(bends, torch.quantile(x[:, 0], levels), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(slope.abs(), torch.full((6,), Spread().slope) / x.std())
    assert slope.sign().tolist() == [1, -1, 1, -1, 1, -1]


@pytest.mark.parametrize("prior", PRIORS)
def test_every_prior_starts_at_the_same_means_and_scales(prior):
    model, _ = started(prior)
    reference, _ = started("factorised")
    for mine, expected in zip(mean_weights(model), mean_weights(reference), strict=True):
        torch.testing.assert_close(mine, expected)
    torch.testing.assert_close(entries(model, "log_scale"), entries(reference, "log_scale"))
    assert float(entries(model, "log_scale")[0].exp()) == pytest.approx(FIRST_SCALE)


def test_hidden_activations_have_unit_size():
    model, x = started("unitwise", in_size=3, hidden=(20, 15, 10))
    weights = mean_weights(model)
    for layer in (1, 2):
        h = features_of_layer(model.network.program(x), weights[:layer]) @ weights[layer]
        assert float(h.std()) == pytest.approx(1, abs=1e-3)


def test_functions_have_the_scale_of_the_data():
    model, x = started("unitwise", hidden=(40, 40))
    values = model.prior.functions(500, seed=1)
    spread_of_outputs = torch.from_numpy(np.stack([f(x[:50]) for f in values])).std((0, 1))
    # 500 functions: a standard error of a standard deviation is 3 %; the scales differ by a factor of 8
    torch.testing.assert_close(spread_of_outputs.float(), torch.tensor([0.5, 4.0]), rtol=0.2, atol=0)


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_fixed_entries_stay_as_they_are(prior, share):
    model, _ = started(prior, share=share)
    count = round(share * model.network.num_weights)
    mean, scale = entries(model, "mean"), entries(model, "log_scale")
    standard = entries(bnnp.BNNP(1, 2, (6, 5), prior=prior), "log_scale")
    assert not mean[count:].any()
    assert torch.equal(scale[count:], standard[count:])
    assert mean[:count].all()


def examples(source, count: int, *more) -> Examples:
    """Tasks of one source, or of several with the same inputs as several outputs."""
    x, y = [], []
    for task in source.draw(count, torch.Generator().manual_seed(0)):
        outputs = [task.y, *(torch.from_numpy(np.asarray(other(task.x))) for other in more)]
        x.append(task.x.float())
        y.append(torch.cat(outputs, 1).float())
    return Examples(x, y, torch.cat(y).std(0))


@pytest.mark.parametrize("prior", PRIORS)
def test_one_unit_is_assigned_and_no_other(prior):
    model = bnnp.BNNP(2, 3, (4,), prior=prior).double()
    before = model.prior.sample(2000, seed=0)
    mean, root = torch.arange(5.0).double(), torch.randn(5, 5, generator=torch.Generator().manual_seed(0)).double()
    covariance = root @ root.mT + torch.eye(5)
    model.prior.assign_unit(1, 1, mean, covariance)
    after = model.prior.sample(2000, seed=0)
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1][..., [0, 2]], after[1][..., [0, 2]])
    wanted = covariance.diagonal().diag() if prior == "factorised" else covariance
    # 2000 draws: a standard error of a covariance is at most sqrt(2/2000) = 3 % of the product of scales
    size = covariance.diagonal().sqrt()
    found = after[1][..., 1]
    assert float(((found.mean(0) - mean) / size).abs().max()) < 5 / 2000**0.5
    assert float(((found.T.cov() - wanted) / size / size[:, None]).abs().max()) < 0.15


@pytest.mark.parametrize("name", STARTS)
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_no_start_moves_fixed_entries(name, share):
    activation = "silu"
    model = bnnp.BNNP(1, 1, (6, 5), activation).set_prior_learnability(share)
    before = {key: value.clone() for key, value in model.prior.state_dict().items()}
    STARTS[name].set(model.prior, examples(bnnp.tasks.sawtooth(), 20), torch.Generator().manual_seed(0))
    count = round(share * model.network.num_weights)
    standard = entries(bnnp.BNNP(1, 1, (6, 5), activation), "log_scale")
    assert not entries(model, "mean")[count:].any()
    assert torch.equal(entries(model, "log_scale")[count:], standard[count:])
    assert before.keys() == model.prior.state_dict().keys()


def test_an_unknown_start_is_refused_and_changes_nothing():
    with pytest.raises(ValueError, match="prior_start: got 'flat', expected one of empirical, spread, standard, or an"):
        bnnp.FitSettings(prior_start="flat")
