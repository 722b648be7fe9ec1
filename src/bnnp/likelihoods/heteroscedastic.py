"""Real-valued outputs with a noise that the network predicts."""

import math

import torch

from bnnp._core.random import normal
from bnnp._core.shapes import Tensor
from bnnp.likelihoods.base import Likelihood


class HeteroscedasticGaussian(Likelihood):
    """Real-valued observations whose noise the network predicts, `y ~ N(f, (noise exp(g))^2)`.

    The network predicts a mean `f` and a log-noise `g` for every output. It is for neural processes, whose networks are
    trained to say how uncertain they are.

    Args:
        noise: Standard deviation where the network predicts `g = 0`. The predicted noise has no lower bound.

    Raises:
        ValueError: If `noise` is not positive.

    Example:
        >>> import torch
        >>> likelihood = bnnp.HeteroscedasticGaussian(1.0)
        >>> outputs = torch.tensor([[2.0, 0.0]])  # a mean of 2 and a log-noise of 0
        >>> likelihood.mean(outputs).tolist(), likelihood.variance(outputs).tolist()
        ([[2.0]], [[1.0]])
    """

    real_valued = True
    outputs_per_target = 2

    def __init__(self, noise: float = 0.5):
        super().__init__()
        if not (math.isfinite(noise) and noise > 0):
            raise ValueError(f"noise: got {noise}, expected a positive number")
        self.start = float(noise)

    def for_outputs(self, out_size: int) -> "HeteroscedasticGaussian":
        return HeteroscedasticGaussian(self.start)

    def y_size(self, out_size: int) -> int:
        return out_size // 2

    def check(self, y: Tensor) -> None:
        pass

    def encode(self, y: Tensor) -> Tensor:
        return y

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        log_noise = self.log_noise(f)
        misfit = (y - self.mean(f)) * torch.exp(-log_noise)
        return -(0.5 * misfit.square() + log_noise + 0.5 * math.log(2 * math.pi)).sum(-1)

    def slope(self, f: Tensor, y: Tensor) -> Tensor:
        precision = torch.exp(-2 * self.log_noise(f))
        off = y - self.mean(f)
        return torch.cat([off * precision, off.square() * precision - 1], dim=-1)

    def curvature_root(self, f: Tensor) -> Tensor:
        by_mean = torch.exp(-self.log_noise(f))
        return torch.diag_embed(torch.cat([by_mean, torch.full_like(by_mean, math.sqrt(2))], dim=-1))

    def mean(self, f: Tensor) -> Tensor:
        return f[..., : f.shape[-1] // 2]

    def log_noise(self, f: Tensor) -> Tensor:
        """Logarithm of the standard deviation of each output."""
        return f[..., f.shape[-1] // 2 :] + math.log(self.start)

    def variance(self, f: Tensor) -> Tensor:
        return torch.exp(2 * self.log_noise(f))

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        mean = self.mean(f)
        return mean + torch.exp(self.log_noise(f)) * normal(mean.shape, f, generator)

    def config(self) -> dict:
        return {"name": "heteroscedastic", "noise": self.start}
