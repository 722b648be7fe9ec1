"""The Bayesian neural attentive machine (paper, section 2.6 and App. E)."""

from collections.abc import Sequence

import torch

from bnnp._core.random import Seed, as_generator
from bnnp.inference_nets.pointwise import PointEncoder
from bnnp.likelihoods.base import Likelihood
from bnnp.models.amortised import MIN_PSEUDO_NOISE, AmortisedModel, Choices
from bnnp.networks.transformer import AttentionNetwork


class BNAM(AmortisedModel):
    """A transformer with a learnable prior over its weights and an amortised posterior for each data set.

    in_size, out_size: input columns and network outputs.
    width: units of every layer of attention;  blocks: blocks of attention;  heads: of each block.
    mlp: hidden units of a block's perceptron; `width` where not given.
    inference_hidden: units of the inference networks; two layers of `width` where not given.
    All other arguments are those of `bnnp.BNNP`.

    Its predictions are not consistent (`consistent` is False): the inputs that one predicts at attend to each other, so
    that asking for one more changes all the others. Use it where the inputs are always the same, as for images.

    Example:
        model = bnnp.BNAM(in_size=1, out_size=1, width=32, blocks=2, likelihood=bnnp.Gaussian(0.05), seed=0)
    """

    consistent = False

    def __init__(
        self,
        in_size: int,
        out_size: int,
        width: int = 32,
        blocks: int = 1,
        heads: int = 4,
        mlp: int | None = None,
        activation: str = "relu",
        prior: str = "unitwise",
        likelihood: Likelihood | None = None,
        *,
        inference_hidden: Sequence[int] | None = None,
        last_layer: str | None = None,
        min_pseudo_noise: float = MIN_PSEUDO_NOISE,
        dtype: torch.dtype = torch.float32,
        seed: Seed = 0,
    ):
        generator = as_generator(seed)
        mlp = width if mlp is None else mlp
        inner = (width, width) if inference_hidden is None else tuple(inference_hidden)
        super().__init__(
            AttentionNetwork(in_size, out_size, width, blocks, heads, mlp, activation),
            Choices(prior, likelihood, False, last_layer, min_pseudo_noise),
            lambda size_in, size_out: PointEncoder(size_in, size_out, inner, activation, generator),
            dtype,
        )
        self._config |= {
            "in_size": in_size,
            "out_size": out_size,
            "width": width,
            "blocks": blocks,
            "heads": heads,
            "mlp": mlp,
            "activation": activation,
            "inference_hidden": list(inner),
        }
