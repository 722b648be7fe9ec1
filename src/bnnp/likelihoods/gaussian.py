"""Real-valued outputs with one noise for all outputs, one noise per output, or a noise that varies with the inputs."""

import abc
import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from bnnp._core.checks import check_flag, is_number
from bnnp._core.random import normal
from bnnp._core.shapes import Float, Tensor
from bnnp.likelihoods.base import Likelihood
from bnnp.numerics.bends import bends_at

SMALLEST = 1e-18
"""The smallest noise whose square a model in float32 holds; its inverse is the largest."""


class GaussianNoise(Likelihood):
    """Real-valued observations with Gaussian noise: what follows from the noise, however it is known."""

    real_valued = True

    @property
    @abc.abstractmethod
    def log_noise(self) -> Float[Tensor, "*points out"]:
        """Logarithm of the standard deviation of each output, the same for all points or one per point."""

    @property
    def noise(self) -> Float[Tensor, "*points out"]:
        """Standard deviation of each output."""
        return self.log_noise.exp()

    def y_size(self, out_size: int) -> int:
        return out_size

    def check(self, y: Tensor) -> None:
        pass

    def encode(self, y: Tensor) -> Tensor:
        return y

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        log_noise = self.log_noise
        constant = log_noise.sum(-1) + 0.5 * log_noise.shape[-1] * math.log(2 * math.pi)
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


class Gaussian(GaussianNoise):
    """Real-valued observations with Gaussian noise, `y ~ N(f, noise^2)`.

    The start of a prior may find that the noise varies with the inputs. It is then a smooth function of them, whose
    coefficients training adapts; `noise` is its geometric mean over the training inputs, `noise_at` gives its values.

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

    bends: Tensor | None
    coefficients: nn.Parameter | None

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
        self.register_buffer("bends", None)
        self.register_parameter("coefficients", None)

    @property
    def log_noise(self) -> Float[Tensor, "out"]:
        return self._log_noise_of(self.raw)

    @property
    def varies(self) -> bool:
        """Whether the noise varies with the inputs."""
        return self.bends is not None

    @torch.no_grad()
    def set_noise(self, noise: Float[Tensor, "out"]) -> None:
        """Set the noise, which training may then change. It is kept below 0.99 times its upper bound."""
        bound = math.inf if self.max_noise is None else 0.99 * self.max_noise
        self.raw.copy_(self._raw_of(noise.clamp(max=bound)))

    def _raw_of(self, noise: Tensor) -> Tensor:
        """The parameter that stands for a noise."""
        return (noise if self.max_noise is None else noise / (self.max_noise - noise)).log()

    def _log_noise_of(self, raw: Tensor) -> Tensor:
        return raw if self.max_noise is None else math.log(self.max_noise) + nn.functional.logsigmoid(raw)

    @torch.no_grad()
    def vary(self, bends: Float[Tensor, "terms 4"], coefficients: Float[Tensor, "terms out"]) -> None:
        """Let the noise vary with the inputs: its logarithm changes by a sum of bends, if it has no upper bound.

        Args:
            bends: The bends, as `bnnp.numerics.bends.bends_over` gives them; none for one noise everywhere.
            coefficients: How much of each there is, for each output; training may then change it.
        """
        self.bends = self.coefficients = None
        if len(bends):
            self.bends = bends.to(self.raw)
            self.coefficients = nn.Parameter(coefficients.to(self.raw), requires_grad=self.learnable)

    def noise_at(self, x: Float[Tensor, "*batch points x"]) -> Float[Tensor, "*batch points out"]:
        """The noise of every output at every point."""
        return self.at(x).noise.expand(*x.shape[:-1], -1)

    def at(self, x: Float[Tensor, "*batch points x"]) -> GaussianNoise:
        """The likelihood of observations at given inputs, in the model's units; itself where there is one noise."""
        if self.bends is None or self.coefficients is None:
            return self
        return GaussianAt(self._log_noise_of(self.raw + bends_at(self.bends, x.to(self.bends)) @ self.coefficients))

    def make_room(self, tensors: Mapping[str, Any], prefix: str = "") -> None:
        """Get ready for the tensors of a state in which the noise varies with the inputs, or does not."""
        bends = tensors.get(f"{prefix}bends")
        if bends is None:
            self.bends = self.coefficients = None
        elif self.bends is None or len(bends) != len(self.bends):
            self.vary(bends, self.raw.new_zeros(len(bends), len(self.raw)))

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        self.make_room(state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def for_outputs(self, out_size: int) -> "Gaussian":
        own = copy.deepcopy(self)
        if len(own.raw) not in (1, out_size):
            raise ValueError(f"noise: got {len(own.raw)} values, expected 1 or one for each of {out_size} outputs")
        own.raw = nn.Parameter(own.raw.detach().expand(out_size).clone(), requires_grad=self.learnable)
        if own.bends is not None and own.coefficients is not None:
            own.vary(own.bends, own.coefficients.detach().expand(-1, out_size).clone())
        return own

    def config(self) -> dict:
        return {
            "name": "gaussian",
            "noise": self.start,  # what was learned since is a parameter
            "learnable": self.learnable,
            "max_noise": self.max_noise,
        }


class GaussianAt(GaussianNoise):
    """Observations at given points, each with its own noise.

    Args:
        log_noise: Logarithm of the standard deviation of each output at each point.
    """

    def __init__(self, log_noise: Float[Tensor, "*points out"]):
        super().__init__()
        self._log_noise = log_noise

    @property
    def log_noise(self) -> Float[Tensor, "*points out"]:
        return self._log_noise

    def for_outputs(self, out_size: int) -> "GaussianAt":
        return self

    def config(self) -> dict:
        raise ValueError("likelihood: got one that belongs to given points, expected the model's own")


def at_points(likelihood: Likelihood, x: Float[Tensor, "*batch points x"]) -> Likelihood:
    """The likelihood of observations at given inputs, in the model's units."""
    return likelihood.at(x) if isinstance(likelihood, Gaussian) else likelihood


def _positive(noise: float | Sequence[float]) -> Float[Tensor, "values"]:
    try:
        start = torch.as_tensor(noise, dtype=torch.float64).reshape(-1)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        start = torch.zeros(0)
    given = torch.as_tensor(noise).dtype if len(start) else torch.bool
    if given == torch.bool or not bool(((start >= SMALLEST) & (start <= 1 / SMALLEST)).all()):
        raise ValueError(
            f"noise: got {noise!r}, expected a positive number from {SMALLEST:g} to {1 / SMALLEST:g}, or one per output"
        )
    return start
