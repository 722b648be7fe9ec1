"""Real-valued outputs with one noise for all outputs, or one noise per output."""

import copy
import math
from collections.abc import Sequence

import torch
from torch import nn

from bnnp._core.checks import check_flag, is_number
from bnnp._core.random import normal
from bnnp._core.shapes import Float, Tensor
from bnnp.likelihoods.base import Likelihood


class Gaussian(Likelihood):
    """Real-valued observations with Gaussian noise, `y ~ N(f, noise^2)`.

    Args:
        noise: Standard deviation: one number, or one number per output. It is in the units that the model works in,
            which are standardised outputs where training standardises them.
        learnable: Whether training adapts the noise.
        max_noise: Upper bound of the noise, which is never reached. `noise` must lie below it.

    Raises:
        ValueError: If `noise` is not positive, or not below `max_noise`.

    Example:
        >>> bnnp.Gaussian([0.1, 0.3], learnable=False).noise.shape
        torch.Size([2])
        >>> bnnp.Gaussian(0.5, max_noise=1.0).noise.item()
        0.5
        >>> model = bnnp.BNNP(in_size=1, out_size=1, hidden=(8,), likelihood=bnnp.Gaussian(0.05))
    """

    real_valued = True

    def __init__(self, noise: float | Sequence[float] = 0.1, *, learnable: bool = True, max_noise: float | None = None):
        super().__init__()
        check_flag("learnable", learnable)
        start = _positive(noise)
        if max_noise is not None and not (is_number(max_noise) and float(start.max()) < max_noise):
            raise ValueError(f"max_noise: got {max_noise}, expected more than the noise, {float(start.max()):g}")
        self.start = start.tolist()
        self.max_noise = max_noise
        self.learnable = learnable
        self.raw = nn.Parameter(self._raw_of(start), requires_grad=learnable)

    @property
    def noise(self) -> Float[Tensor, "out"]:
        """Standard deviation of each output."""
        if self.max_noise is None:
            return self.raw.exp()
        return self.max_noise * torch.sigmoid(self.raw)

    @torch.no_grad()
    def set_noise(self, noise: Float[Tensor, "out"]) -> None:
        """Set the noise, which training may then change. It is kept below 0.99 times its upper bound."""
        bound = math.inf if self.max_noise is None else 0.99 * self.max_noise
        self.raw.copy_(self._raw_of(noise.clamp(max=bound)))

    def _raw_of(self, noise: Tensor) -> Tensor:
        """The parameter that stands for a noise."""
        return (noise if self.max_noise is None else noise / (self.max_noise - noise)).log()

    def noise_at(self, x: Float[Tensor, "*batch points x"]) -> Float[Tensor, "*batch points out"]:
        """The noise of every output at every point."""
        return self.noise.expand(*x.shape[:-1], -1)

    def for_outputs(self, out_size: int) -> "Gaussian":
        own = copy.deepcopy(self)
        if len(own.raw) not in (1, out_size):
            raise ValueError(f"noise: got {len(own.raw)} values, expected 1 or one for each of {out_size} outputs")
        own.raw = nn.Parameter(own.raw.detach().expand(out_size).clone(), requires_grad=self.learnable)
        return own

    def y_size(self, out_size: int) -> int:
        return out_size

    def check(self, y: Tensor) -> None:
        pass

    def encode(self, y: Tensor) -> Tensor:
        return y

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        log_noise = self.raw if self.max_noise is None else self.noise.log()
        constant = log_noise.sum() + 0.5 * len(log_noise) * math.log(2 * math.pi)
        return -0.5 * ((y - f) * torch.exp(-log_noise)).square().sum(-1) - constant

    def slope(self, f: Tensor, y: Tensor) -> Tensor:
        return (y - f) / self.noise.square()

    def curvature_root(self, f: Tensor) -> Tensor:
        return torch.diag_embed((1 / self.noise).expand(f.shape))

    def mean(self, f: Tensor) -> Tensor:
        return f

    def variance(self, f: Tensor) -> Tensor:
        return self.noise.square().expand(f.shape)

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        return f + self.noise * normal(f.shape, f, generator)

    def config(self) -> dict:
        return {
            "name": "gaussian",
            "noise": self.start,  # what was learned since is a parameter
            "learnable": self.learnable,
            "max_noise": self.max_noise,
        }


def _positive(noise: float | Sequence[float]) -> Float[Tensor, "values"]:
    try:
        start = torch.as_tensor(noise, dtype=torch.float64).reshape(-1)
    except (TypeError, ValueError, RuntimeError):
        start = torch.zeros(0)
    if isinstance(noise, bool) or len(start) == 0 or not bool((torch.isfinite(start) & (start > 0)).all()):
        raise ValueError(f"noise: got {noise!r}, expected a positive number, or one per output")
    return start
