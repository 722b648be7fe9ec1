"""Choices of a model: records, objects of the user's own, and names that stand for them."""

import inspect
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

import bnnp
from bnnp.inference_nets import Encoder, Encoders, SetEncoder
from bnnp.priors import PRIORS, Unitwise
from support.training import fit, same, state

X = np.linspace(-1, 1, 6)[:, None]
Y = np.sin(3 * X)


class Affine(Encoder):
    """An inference network of one linear layer."""

    def __init__(self, in_size: int, out_size: int, generator: torch.Generator):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(in_size, out_size, generator=generator))
        self.bias = torch.nn.Parameter(torch.zeros(out_size))

    def forward(self, inputs, mask=None):
        return inputs @ self.weight + self.bias

    def set_output_bias(self, columns, value):
        self.bias.data[columns] = value


@dataclass(frozen=True)
class AffineEncoders(Encoders):
    pointwise: ClassVar[bool] = True

    def encoder(self, in_size, out_size, activation, generator):
        return Affine(in_size, out_size, generator)


class OwnPrior(Unitwise):
    """A prior that the library does not know by name."""


class OwnGaussian(bnnp.Gaussian):
    """A likelihood that the library does not know by name."""


CONSTRUCTORS = [bnnp.BNNP, bnnp.AttBNNP, bnnp.BNAM, *bnnp.neural_processes.PEERS.values(), bnnp.neural_processes.ARTNP]


@pytest.mark.parametrize("model", CONSTRUCTORS)
def test_constructors_have_at_most_eight_parameters_beyond_the_sizes(model):
    parameters = inspect.signature(model).parameters
    assert list(parameters)[:2] == ["in_size", "out_size"]
    assert len(parameters) <= 2 + 8
    assert not any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values())


def test_the_models_of_the_design_are_built_as_it_says():
    model = bnnp.BNNP(
        in_size=1,
        out_size=1,
        hidden=(64, 64),
        activation="relu",
        prior="unitwise",
        likelihood=bnnp.Gaussian(0.05),
        seed=0,
    )
    assert model.network.sizes == (1, 64, 64, 1)
    assert model.inference == bnnp.Pointwise(hidden=(64, 64))


@pytest.mark.parametrize(
    ("short", "long"),
    [
        (lambda: bnnp.BNNP(1, 1, (4,), inference="pointwise"), lambda: bnnp.BNNP(1, 1, (4,))),
        (lambda: bnnp.BNNP(1, 1, (4,)), lambda: bnnp.BNNP(1, 1, (4,), inference=bnnp.Pointwise())),
        (lambda: bnnp.AttBNNP(1, 1, (4,), inference="attentive"), lambda: bnnp.AttBNNP(1, 1, (4,))),
        (lambda: bnnp.AttBNNP(1, 1, (4,)), lambda: bnnp.AttBNNP(1, 1, (4,), inference=bnnp.Attentive((4,), heads=4))),
        (lambda: bnnp.BNAM(1, 1), lambda: bnnp.BNAM(1, 1, bnnp.Transformer(32, 1, 4, 32), inference="pointwise")),
        (
            lambda: bnnp.BNNP(1, 1, (4,), prior="factorised"),
            lambda: bnnp.BNNP(1, 1, (4,), prior=PRIORS["factorised"](bnnp.Network((1, 4, 1)))),
        ),
    ],
)
def test_names_are_shorthands_of_objects(short, long):
    assert short().config() == long().config()
    assert same(state(short()), state(long()))


def test_the_number_of_heads_of_an_attbnnp_is_an_argument():
    first, second = (bnnp.AttBNNP(1, 1, (8,), inference=bnnp.Attentive(heads=heads)) for heads in (2, 8))
    encoders = [module for m in (first, second) for module in m.modules() if isinstance(module, SetEncoder)]
    assert [encoder.heads for encoder in encoders] == [2, 2, 8, 8]
    one, other = (m.condition(X, Y, num_samples=4).predict(X).mean for m in (first, second))
    assert not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: bnnp.BNNP(1, 1, inference="attentive"), r"got Attentive, expected Pointwise .* use bnnp\.AttBNNP"),
        (lambda: bnnp.AttBNNP(1, 1, inference="pointwise"), r"got Pointwise, expected Attentive .* use bnnp\.BNNP"),
        (lambda: bnnp.BNAM(1, 1, inference="deep"), "inference: got 'deep', expected pointwise or attentive"),
        (lambda: bnnp.Pointwise(min_pseudo_noise=0.0), "min_pseudo_noise: got 0.0, expected a positive number"),
        (
            lambda: bnnp.AttBNNP(1, 1, (8,), inference=bnnp.Attentive(heads=3)),
            r"inference: got hidden \(8,\), expected equal sizes that 3 heads",
        ),
    ],
)
def test_choices_that_do_not_fit_are_refused_with_the_cure(build, message):
    with pytest.raises(ValueError, match=message):
        build()


# --- objects of the user's own ---------------------------------------------------------------------------------------


def prior_state(model: bnnp.BNNP) -> dict[str, torch.Tensor]:
    return {name: value for name, value in state(model).items() if name.startswith("prior.")}


def test_a_prior_is_taken_as_a_copy_and_then_belongs_to_the_model():
    trained = fit(bnnp.BNNP(1, 1, (4,), likelihood=bnnp.Gaussian(0.1)), steps=2).model
    model = bnnp.BNNP(1, 1, (4,), prior=trained.prior, likelihood=trained.likelihood)
    before = prior_state(trained)
    assert same(prior_state(model), before)
    assert model.prior.network is model.network
    fit(model, steps=2)
    assert same(prior_state(trained), before)
    assert not same(prior_state(model), before)
    assert trained.prior.view.columns is trained.columns


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_prior_has_the_precision_of_its_model(dtype):
    model = bnnp.BNNP(1, 1, (4,), prior=Unitwise(bnnp.Network((1, 4, 1)), torch.float32), dtype=dtype)
    assert model.prior.dtype == dtype
    assert model.condition(X, Y, num_samples=3).weights[0].dtype == dtype


def test_a_prior_of_another_network_is_refused():
    prior = Unitwise(bnnp.Network((1, 5, 1)))
    with pytest.raises(ValueError, match=r"prior: got one over .*\(2, 5\).* with .*\(2, 4\).*, expected the same"):
        bnnp.BNNP(1, 1, (4,), prior=prior)
    with pytest.raises(ValueError, match="prior: got one over weights of shapes"):
        bnnp.BNAM(1, 1, bnnp.Transformer(4), prior=prior)


def test_a_transformers_prior_uses_the_models_own_layer_norms():
    start = bnnp.BNAM(1, 1, bnnp.Transformer(4))
    model = bnnp.BNAM(1, 1, bnnp.Transformer(4), prior=start.prior)
    assert model.prior.network is model.network
    names = [name for name, _ in model.named_parameters()]
    assert names == [name for name, _ in start.named_parameters()]


OWN = {
    "inference": lambda: bnnp.BNNP(1, 1, (4,), inference=AffineEncoders()),
    "prior": lambda: bnnp.BNNP(1, 1, (4,), prior=OwnPrior(bnnp.Network((1, 4, 1)))),
    "likelihood": lambda: bnnp.BNNP(1, 1, (4,), likelihood=OwnGaussian(0.1)),
}


@pytest.mark.parametrize("name", OWN)
def test_models_with_a_users_own_parts_are_trained_conditioned_and_inferred(name):
    start, model = state(OWN[name]()), fit(OWN[name](), steps=2).model
    assert not same(start, state(model))
    post = model.condition(X, Y, num_samples=3, chunk_size=2)
    whole = model.condition(X, Y, num_samples=3)
    np.testing.assert_allclose(post.predict(X).mean, whole.predict(X).mean, rtol=1e-4, atol=1e-4)
    assert np.isfinite(post.update(X, Y).predict(X).mean).all()
    for method in ("bnnp", "mfvi"):
        assert np.isfinite(bnnp.infer(model, X, Y, method=method, steps=2, num_samples=3).predict(X).mean).all()


@pytest.mark.parametrize("name", OWN)
def test_parts_of_ones_own_cannot_be_saved(name, tmp_path):
    with pytest.raises(ValueError, match=f"{name}: a model whose {name} is an object of your own cannot be saved"):
        OWN[name]().save(tmp_path / "m.bnnp")
    assert list(tmp_path.iterdir()) == []


# --- variants that are classes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "kinds"),
    [
        (lambda: bnnp.AttBNNP(1, 1, (4,), seed=2), (bnnp.AttBNNP, bnnp.BNNP)),
        (
            lambda: bnnp.neural_processes.ARTNP(1, 1, (4,), heads=2, seed=2),
            (bnnp.neural_processes.ARTNP, bnnp.neural_processes.TNP),
        ),
    ],
)
def test_files_keep_the_class_of_every_variant(build, kinds, tmp_path):
    model = build()
    again = bnnp.load(model.save(tmp_path / "m.bnnp"))
    for one in (model, again):
        assert type(one) is kinds[0]
        assert isinstance(one, kinds[1])
    assert same(state(model), state(again))
    posts = [one.condition(X, Y, num_samples=3).predict(X).samples for one in (model, again)]
    np.testing.assert_array_equal(*posts)
