"""Where a learnable prior starts."""

import numpy as np
import pytest
import torch

import bnnp
from bnnp.network import features_of_layer
from bnnp.priors import PRIORS
from bnnp.priors.learnable import GaussianUnits
from bnnp.priors.start import FIRST_SCALE, SLOPE, STARTS, spread


def started(prior: str, in_size: int = 1, share: float = 1.0, hidden=(6, 5)) -> tuple[bnnp.BNNP, torch.Tensor]:
    model = bnnp.BNNP(in_size, 2, hidden, prior=prior).set_prior_learnability(share)
    generator = torch.Generator().manual_seed(0)
    x = 3 + 2 * torch.rand(400, in_size, generator=generator)
    spread(model.prior, x, torch.tensor([0.5, 4.0]), generator)
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
    blocks = [block for block in model.prior.blocks if isinstance(block, GaussianUnits)]
    return torch.cat([getattr(block, name)().flatten() for block in blocks]).detach()


@pytest.mark.parametrize("prior", PRIORS)
def test_first_layer_bends_at_quantiles_of_the_inputs(prior):
    model, x = started(prior)
    slope, bias = mean_weights(model)[0]
    bends = -bias / slope
    levels = (torch.arange(6) + 0.5) / 6
    torch.testing.assert_close(bends, torch.quantile(x[:, 0], levels), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(slope.abs(), torch.full((6,), SLOPE) / x.std())
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


def test_a_switch_makes_functions_of_two_levels():
    model = bnnp.BNNP(1, 2, (30, 20), "tanh")
    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(-5, 5, 300)[:, None]
    levels = torch.tensor([1.0, 3.0])
    spread(model.prior, x, levels, generator, deciding=STARTS["switch"])
    values = np.stack([f(x.numpy()) for f in model.prior.functions(100, seed=0)])
    near = np.abs(np.abs(values) / levels.numpy() - 1) < 0.3
    assert near.mean() > 0.85
    assert 0.3 < (values > 0).mean() < 0.7  # both levels, about equally
    assert (np.abs(np.diff(np.sign(values), axis=1)).sum(1) > 0).mean() > 0.5  # and jumps between them


def test_a_floor_makes_functions_that_rest_at_the_lowest_value():
    model = bnnp.BNNP(2, 2, (30, 20), "relu")
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(300, 2, generator=generator)
    scale, lowest = torch.tensor([1.0, 3.0]), torch.tensor([-0.4, 2.0])
    spread(model.prior, x, scale, generator, deciding=STARTS["floor"], lowest=lowest)
    values = np.stack([f(x.numpy()) for f in model.prior.functions(100, seed=0)])
    above = (values - lowest.numpy()) / scale.numpy()
    assert (above < -0.1).mean() < 0.02
    assert 0.3 < (np.abs(above) < 0.1).mean() < 0.7
    assert 0.5 < above.std() < 3


@pytest.mark.parametrize(
    ("start", "model", "message"),
    [
        ("switch", bnnp.BNNP(1, 2, (6, 5), "relu"), "got a Network with activation 'relu', expected .* 'tanh'"),
        ("floor", bnnp.BNNP(1, 2, (6, 5), "tanh"), "got a Network with activation 'tanh', expected .* 'relu'"),
        ("switch", bnnp.BNNP(1, 2, (6, 1), "tanh"), r"got sizes \(1, 6, 1, 2\), expected hidden layers, with a unit"),
        ("switch", bnnp.BNNP(1, 1, (), "tanh"), "expected hidden layers"),
        ("switch", bnnp.BNAM(1, 1, 8, 1, 2, activation="tanh"), "got a AttentionNetwork"),
        ("floor", bnnp.BNNP(1, 1, (6, 5), "relu", likelihood=bnnp.Bernoulli()), "expected one of real values"),
        ("flat", bnnp.BNNP(1, 1, (6, 5)), "prior_start: got 'flat', expected one of spread, switch, floor, standard"),
    ],
    ids=["not tanh", "not relu", "narrow", "linear", "BNAM", "labels", "unknown"],
)
def test_a_start_that_does_not_suit_the_model_is_refused(start, model, message):
    tasks = bnnp.tasks.from_arrays([(np.arange(5.0), np.ones((5, model.network.sizes[-1])))])
    with pytest.raises(ValueError, match=message):
        bnnp.fit(model, tasks, steps=1, prior_start=start, progress=False)
    assert model.prior.is_standard()
    assert model.standardiser.is_identity()
