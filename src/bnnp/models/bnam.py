"""The Bayesian neural attentive machine (paper, section 2.6 and App. E)."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import torch

from bnnp._core.checks import check_count, check_fields, check_kind
from bnnp._core.random import Seed, as_generator
from bnnp.inference_nets.base import Encoders
from bnnp.inference_nets.choices import chosen
from bnnp.likelihoods.base import Likelihood
from bnnp.models.amortised import AmortisedModel
from bnnp.networks.transformer import AttentionNetwork
from bnnp.priors.base import Prior


@dataclass(frozen=True)
class Transformer:
    """The size of the transformer in a `bnnp.BNAM`.

    Args:
        width: Units of every layer of attention.
        blocks: Blocks of attention.
        heads: Heads of each block; they divide the width.
        mlp: Hidden units of a block's perceptron; `width` by default.

    Raises:
        ValueError: If a number is not positive.

    Example:
        >>> bnnp.Transformer(width=32, blocks=2)
        Transformer(width=32, blocks=2, heads=4, mlp=32)
    """

    width: int = 32
    blocks: int = 1
    heads: int = 4
    mlp: int | None = None

    def __post_init__(self):
        if self.mlp is None:
            object.__setattr__(self, "mlp", self.width)
        check_fields(self)
        check_count("mlp", self.mlp, "whole number of units, as in 32")


class BNAM(AmortisedModel):
    """A transformer with a learnable prior over its weights and an amortised posterior for each data set.

    Its predictions are not consistent (`consistent` is False): the inputs of a prediction attend to each other, so one
    more input changes the predictions at all others. Use it where the inputs are always the same, as for images.

    Args:
        in_size: Input columns.
        out_size: Outputs of the network.
        transformer: The size of the network.
        activation: A name; it acts in the perceptrons of the blocks and in the inference networks.
        prior: As for `bnnp.BNNP`.
        likelihood: As for `bnnp.BNNP`.
        inference: As for `bnnp.BNNP`, or `bnnp.Attentive(...)`. Where the choice has no hidden units of its own, the
            inference networks have two layers of the width of the transformer.
        last_layer: As for `bnnp.BNNP`.
        dtype: Precision of the model.
        seed: Seed of the inference networks' starting weights.

    Raises:
        ValueError: If a size, a name or a prior does not fit.

    Example:
        >>> model = bnnp.BNAM(1, 1, bnnp.Transformer(width=8, blocks=1), likelihood=bnnp.Gaussian(0.05), seed=0)
        >>> model.consistent
        False
        >>> model.condition(x, y, num_samples=4).predict(x_new).mean.shape
        (2, 1)
    """

    consistent = False

    def __init__(
        self,
        in_size: int,
        out_size: int,
        transformer: Transformer | None = None,
        activation: str = "relu",
        prior: str | Prior = "unitwise",
        likelihood: Likelihood | None = None,
        *,
        inference: str | Encoders = "pointwise",
        last_layer: str | None = None,
        dtype: torch.dtype = torch.float32,
        seed: Seed = 0,
    ):
        transformer = Transformer() if transformer is None else transformer
        check_kind("transformer", transformer, Transformer, "its size, as bnnp.Transformer(width=32)")
        check_count("in_size", in_size, "whole number of input columns, as in 1")
        check_count("out_size", out_size, "whole number of outputs, as in 1")
        sizes = asdict(transformer)
        own = chosen(inference)
        own = own if own.hidden is not None else replace(own, hidden=(sizes["width"], sizes["width"]))
        network = AttentionNetwork(in_size, out_size, **sizes, activation=activation)
        super().__init__(network, prior, likelihood, own, last_layer, dtype, as_generator(seed))
        self._config = {"in_size": in_size, "out_size": out_size, "transformer": sizes, "activation": activation}
