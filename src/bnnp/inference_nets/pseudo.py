"""The amortised linear layer: an inference network and the conjugate update that turns its output into weights."""

import math

import torch
from torch import nn

from bnnp._core.shapes import Bool, Float, Tensor
from bnnp.inference_nets.base import Encoder
from bnnp.numerics.gaussian import Observations

LOG_NOISE_START = -2.0
"""About where the predicted log pseudo-noise starts."""
LOG_NOISE_OF_SILENCE = 3.0
"""The same where networks that have learned nothing should say next to nothing."""


class AmortisedLinear(nn.Module):
    """Predicts the pseudo-likelihood of one layer's weights from the points of a context.

    Args:
        encoder: An inference network with `outputs(units, true_outputs)` outputs per point.
        units: Outputs of the layer.
        true_outputs: Whether the layer conditions on the observed outputs and predicts their noise only (the last one).
        min_noise: Lower bound of the predicted pseudo-noise. It keeps float32 factorisations accurate.
    """

    def __init__(self, encoder: Encoder, units: int, *, true_outputs: bool, min_noise: float):
        super().__init__()
        self.true_outputs = true_outputs
        self.min_noise = min_noise
        self.units = units
        self.encoder = encoder
        self.start_noise(LOG_NOISE_START)

    def start_noise(self, log_noise: float) -> None:
        """Set about where the predicted log pseudo-noise starts."""
        outputs = self.outputs(self.units, self.true_outputs)
        self.encoder.set_output_bias(slice(outputs - self.units, outputs), log_noise)

    @staticmethod
    def outputs(units: int, true_outputs: bool) -> int:
        """Numbers per point that the inference network gives: a noise per unit and, without true outputs, a value."""
        return units if true_outputs else 2 * units

    def forward(
        self,
        inputs: Float[Tensor, "tasks samples points features"],
        y: Float[Tensor, "tasks points y"],
        mask: Bool[Tensor, "tasks points"],
    ) -> Observations:
        return self.observations(self.encoder(inputs, mask), y)

    def observations(
        self, outputs: Float[Tensor, "tasks samples points outputs"], y: Float[Tensor, "tasks points y"]
    ) -> Observations:
        """The pseudo-observations that follow from the outputs of the inference network.

        Args:
            outputs: Outputs of the inference network.
            y: Observed outputs, which the last layer may be conditioned on.
        """
        observed, log_noise = (y.unsqueeze(1), outputs) if self.true_outputs else outputs.split(self.units, dim=-1)
        return Observations(observed.mT, inverse_noise(log_noise, self.min_noise).mT)


def inverse_noise(log_noise: Float[Tensor, "*shape"], least: float) -> Float[Tensor, "*shape"]:
    """`1/(least + exp(log_noise))`, written so that neither end overflows."""
    return torch.sigmoid(math.log(least) - log_noise) / least
