"""The Bayesian neural network process (paper, section 2), and its attentive variant (section 2.6)."""

from collections.abc import Callable, Sequence

import torch

from bnnp._core.random import Seed, as_generator
from bnnp._core.shapes import Tensor
from bnnp.inference_nets.attentive import SetEncoder
from bnnp.inference_nets.pointwise import PointEncoder
from bnnp.likelihoods.base import Likelihood
from bnnp.models.amortised import MIN_PSEUDO_NOISE, AmortisedModel, Choices
from bnnp.networks.perceptron import Network

HEADS = 4


class BNNP(AmortisedModel):
    """A multilayer perceptron with a learnable prior over its weights and an amortised posterior for each data set.

    in_size, out_size: input columns and network outputs (for `Categorical`, the number of classes).
    hidden: units of the hidden layers;  activation: a name or a function of a tensor.
    prior: "factorised", "unitwise", "layerwise" or "networkwise". Starts as the standard prior: mean 0, variance
        1/(d_in + 1).
    likelihood: `bnnp.Gaussian(...)`, `bnnp.Bernoulli()` or `bnnp.Categorical(k)`.
    inference: "pointwise" sees each point of a context by itself, "attentive" (`bnnp.AttBNNP`) all of them together.
    inference_hidden: units of the inference networks; those of the network where not given.
    inference_sees_hidden: feed the previous layer's activations to the inference networks too (paper, footnote 2).
    last_layer: "predicted" conditions the last layer on the true outputs with a predicted noise, "likelihood" with the
        likelihood's own noise, "pseudo" on pseudo-observations like the other layers. The default is "predicted" for a
        Gaussian likelihood and "pseudo" for all others.
    min_pseudo_noise: lower bound of every predicted noise.

    Example:
        model = bnnp.BNNP(in_size=1, out_size=1, hidden=(64, 64), likelihood=bnnp.Gaussian(0.05), seed=0)
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden: Sequence[int] = (64, 64),
        activation: str | Callable[[Tensor], Tensor] = "relu",
        prior: str = "unitwise",
        likelihood: Likelihood | None = None,
        *,
        inference: str = "pointwise",
        inference_hidden: Sequence[int] | None = None,
        inference_sees_hidden: bool = False,
        last_layer: str | None = None,
        min_pseudo_noise: float = MIN_PSEUDO_NOISE,
        dtype: torch.dtype = torch.float32,
        seed: Seed = 0,
    ):
        generator = as_generator(seed)
        inner = tuple(hidden if inference_hidden is None else inference_hidden)
        if inference not in ("pointwise", "attentive"):
            raise ValueError(f"inference: got {inference!r}, expected pointwise or attentive")

        def make_encoder(size_in: int, size_out: int) -> PointEncoder | SetEncoder:
            if inference == "attentive":
                return SetEncoder(size_in, size_out, inner, HEADS, generator)
            return PointEncoder(size_in, size_out, inner, activation, generator)

        super().__init__(
            Network((in_size, *hidden, out_size), activation),
            Choices(prior, likelihood, inference_sees_hidden, last_layer, min_pseudo_noise),
            make_encoder,
            dtype,
        )
        self.pointwise = inference == "pointwise"
        self._config |= {
            "in_size": in_size,
            "out_size": out_size,
            "hidden": list(hidden),
            "activation": activation,
            "inference": inference,
            "inference_hidden": list(inner),
            "inference_sees_hidden": inference_sees_hidden,
        }


def AttBNNP(  # noqa: N802 (it stands for a class, as in the paper)
    in_size: int, out_size: int, hidden: Sequence[int] = (64, 64), *arguments, **choices
) -> BNNP:
    """The attentive BNNP: inference networks are transformers, so that the points of a context see each other.

    It takes the arguments of `bnnp.BNNP`. `inference_hidden` has a block of attention for each entry, all of one width
    that 4 divides. Cost grows with the square of the context, and a context cannot be given in chunks.

    Example:
        model = bnnp.AttBNNP(in_size=1, out_size=1, hidden=(64, 64), likelihood=bnnp.Gaussian(0.05), seed=0)
    """
    return BNNP(in_size, out_size, hidden, *arguments, inference="attentive", **choices)
