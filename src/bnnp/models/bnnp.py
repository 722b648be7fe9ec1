"""The Bayesian neural network process (paper, section 2), and its attentive variant (section 2.6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import ClassVar

import torch

from bnnp._core.checks import check_count, check_sizes
from bnnp._core.random import Seed, as_generator
from bnnp._core.shapes import Tensor
from bnnp.inference_nets.base import Encoders
from bnnp.inference_nets.choices import ENCODERS, Attentive, Pointwise, chosen
from bnnp.likelihoods.base import Likelihood
from bnnp.models.amortised import AmortisedModel
from bnnp.networks.perceptron import Network
from bnnp.priors.base import Prior


class BNNP(AmortisedModel):
    """A multilayer perceptron with a learnable prior over its weights and an amortised posterior for each data set.

    Args:
        in_size: Input columns.
        out_size: Outputs of the network (for `Categorical`, the number of classes).
        hidden: Units of the hidden layers.
        activation: A name or a function of a tensor.
        prior: "factorised", "unitwise", "layerwise" or "networkwise", which start as the standard prior of mean 0 and
            variance 1/(d_in + 1); or a prior that was built for the same network, of which the model takes a copy.
        likelihood: `bnnp.Gaussian(...)`, the default, `bnnp.Bernoulli()`, `bnnp.Categorical(k)`, or one of your own.
        inference: The inference networks: "pointwise", the default, `bnnp.Pointwise(...)`, or a subclass of
            `bnnp.inference_nets.Encoders` of your own.
        last_layer: "predicted" conditions the last layer on the true outputs with a predicted noise, "likelihood" with
            the likelihood's own noise, "pseudo" on pseudo-observations like the other layers. The default is
            "predicted" for a Gaussian likelihood and "pseudo" for all others.
        dtype: Precision of the model.
        seed: Seed of the inference networks' starting weights.

    Raises:
        ValueError: If a size, a name or a prior does not fit.

    Example:
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(16, 16), likelihood=bnnp.Gaussian(0.05), seed=0)
        >>> model.network.sizes
        (1, 16, 16, 1)
        >>> post = model.condition(x, y, num_samples=8, seed=0)
        >>> post.predict(x_new).mean.shape
        (2, 1)
    """

    encoders: ClassVar[type[Encoders]] = Pointwise

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden: Sequence[int] = (64, 64),
        activation: str | Callable[[Tensor], Tensor] = "relu",
        prior: str | Prior = "unitwise",
        likelihood: Likelihood | None = None,
        *,
        inference: str | Encoders | None = None,
        last_layer: str | None = None,
        dtype: torch.dtype = torch.float32,
        seed: Seed = 0,
    ):
        own = _own_kind(inference, type(self))
        hidden = check_sizes("hidden", hidden)
        own = own if own.hidden is not None else replace(own, hidden=hidden)
        check_count("in_size", in_size, "whole number of input columns, as in 1")
        check_count("out_size", out_size, "whole number of outputs, as in 1")
        network = Network((in_size, *hidden, out_size), activation)
        super().__init__(network, prior, likelihood, own, last_layer, dtype, as_generator(seed))
        self._config = {"in_size": in_size, "out_size": out_size, "hidden": list(hidden), "activation": activation}


class AttBNNP(BNNP):
    """The attentive BNNP: its inference networks are transformers, so that the points of a context see each other.

    The cost grows with the square of the number of points in the context, and a context cannot be given in chunks. It
    takes the arguments of `bnnp.BNNP`, of which one has other values.

    Args:
        inference: The inference networks: "attentive", the default, `bnnp.Attentive(...)`, or a subclass of
            `bnnp.inference_nets.Encoders` of your own.

    Raises:
        ValueError: If a size, a name or a prior does not fit.

    Example:
        >>> model = bnnp.AttBNNP(1, 1, hidden=(8, 8), inference=bnnp.Attentive(hidden=(8,), heads=2), seed=0)
        >>> model.condition(x, y, num_samples=4).predict(x_new).std.shape
        (2, 1)
    """

    encoders: ClassVar[type[Encoders]] = Attentive


def _own_kind(inference: str | Encoders | None, model: type[BNNP]) -> Encoders:
    """The choice of inference networks, if the model is the one that has them."""
    choice = model.encoders() if inference is None else chosen(inference)
    if isinstance(choice, tuple(ENCODERS.values())) and not isinstance(choice, model.encoders):
        other = "AttBNNP" if isinstance(choice, Attentive) else "BNNP"
        raise ValueError(
            f"inference: got {type(choice).__name__}, expected {model.encoders.__name__} for a {model.__name__}; use "
            f"bnnp.{other}, or inference networks of your own"
        )
    return choice
