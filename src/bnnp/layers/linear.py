"""The amortised linear layer: an inference network and the conjugate update that turns its output into weights."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from bnnp._shapes import Float, Tensor
from bnnp.gaussian import Observations
from bnnp.layers.encoder import PointEncoder

LOG_NOISE_START = -2.0
"""Where the predicted log pseudo-noise starts, about."""


class AmortisedLinear(nn.Module):
    """Predicts the pseudo-likelihood of one layer's weights from the points of a context.

    true_outputs: the layer conditions on the observed outputs and predicts their noise only (the last layer).
    min_noise: lower bound of the predicted pseudo-noise. It keeps float32 factorisations accurate.
    """

    def __init__(
        self,
        in_size: int,
        units: int,
        hidden: Sequence[int],
        activation: str | Callable[[Tensor], Tensor],
        *,
        true_outputs: bool,
        min_noise: float,
        generator: torch.Generator,
    ):
        super().__init__()
        self.true_outputs = true_outputs
        self.min_noise = min_noise
        self.units = units
        outputs = units if true_outputs else 2 * units
        self.encoder = PointEncoder(in_size, outputs, hidden, activation, generator)
        self.encoder.set_output_bias(slice(outputs - units, outputs), LOG_NOISE_START)

    def forward(
        self, inputs: Float[Tensor, "tasks samples points features"], y: Float[Tensor, "tasks points y"]
    ) -> Observations:
        outputs = self.encoder(inputs).mT
        log_noise = outputs[..., -self.units :, :]
        observed = y.mT.unsqueeze(1) if self.true_outputs else outputs[..., : self.units, :]
        # 1/(min + exp(log_noise)), written so that neither end overflows
        inverse_noise = torch.sigmoid(math.log(self.min_noise) - log_noise) / self.min_noise
        return Observations(observed, inverse_noise)
