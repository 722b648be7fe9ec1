"""The models that doors learn from tables, if the user chooses nothing."""

from collections.abc import Sequence

import torch

from bnnp.likelihoods.base import Likelihood
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.bnnp import BNNP

ACTIVATIONS = ("silu", "relu", "tanh")
"""What is tried: units for smooth functions, for functions with kinks, and for functions with levels or a floor."""


def default_models(
    in_size: int, out_size: int, hidden: Sequence[int], likelihood: Likelihood, *, seed: int
) -> list[BNNP]:
    """One model per activation that is tried, in float64; `learn` takes the best one.

    Args:
        in_size: Number of inputs.
        out_size: Number of outputs of the network.
        hidden: Units of the hidden layers.
        likelihood: The likelihood of an observation.
        seed: Seed of the inference networks' starting weights.
    """
    last = "likelihood" if isinstance(likelihood, Gaussian) else None
    choices = {"likelihood": likelihood, "last_layer": last, "dtype": torch.float64, "seed": seed}
    return [BNNP(in_size, out_size, hidden, activation, **choices) for activation in ACTIVATIONS]
