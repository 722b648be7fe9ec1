"""The neural process and the attentive neural process."""

from collections.abc import Sequence

import torch

from bnnp._core.random import Seed, as_generator
from bnnp.likelihoods.base import Likelihood
from bnnp.neural_processes.aggregate import MeanAggregation
from bnnp.neural_processes.latent_base import LatentProcess, Sizes


class NP(LatentProcess):
    """The neural process (Garnelo et al. 2018): a Gaussian latent variable from the mean of the points' codes.

    hidden: units of encoder and decoder (the paper: three layers of 256, SiLU);  latent_size: of the latent variable.
    likelihood: see `NeuralProcess`; the paper has `bnnp.Gaussian(0.1)`, and trains with `NPML(16)`, 500,000 steps at
        learning rates from 1e-4 to 1e-5. `NPVI` is the original objective.

    Example: `model = bnnp.neural_processes.NP(in_size=1, out_size=1, seed=0)`
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden: Sequence[int] = (128, 128),
        activation: str = "silu",
        likelihood: Likelihood | None = None,
        *,
        latent_size: int = 64,
        dtype: torch.dtype = torch.float32,
        seed: Seed = 0,
    ):
        sizes = Sizes(in_size, out_size, hidden, activation, latent_size)
        super().__init__(sizes, likelihood, MeanAggregation, None, dtype, as_generator(seed))


class ANP(LatentProcess):
    """The attentive neural process (Kim et al. 2019): an NP, beside which every input attends to the context's points.

    heads: of attention; they divide the last of `hidden`. All other arguments are those of `NP`. Cost of a prediction
    grows with the number of context points.

    Example: `model = bnnp.neural_processes.ANP(in_size=1, out_size=1, seed=0)`
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        hidden: Sequence[int] = (128, 128),
        activation: str = "silu",
        likelihood: Likelihood | None = None,
        *,
        latent_size: int = 64,
        heads: int = 4,
        dtype: torch.dtype = torch.float32,
        seed: Seed = 0,
    ):
        if heads < 1:
            raise ValueError(f"heads: got {heads}, expected a positive number")
        sizes = Sizes(in_size, out_size, hidden, activation, latent_size)
        super().__init__(sizes, likelihood, MeanAggregation, heads, dtype, as_generator(seed))
        self._config["heads"] = heads
