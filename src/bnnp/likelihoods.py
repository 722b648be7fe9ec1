"""How outputs of the network become observations."""

import abc
import copy
import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from bnnp._random import normal
from bnnp._shapes import Float, Tensor


class Likelihood(nn.Module, abc.ABC):
    """`p(y | f)`, a point at a time, where `f` are the outputs of the network.

    real_valued: whether `y` may be shifted and scaled.
    numbers_an_output: how many outputs of the network stand for one output of the model.
    """

    real_valued: bool
    numbers_an_output: int = 1

    @abc.abstractmethod
    def for_outputs(self, out_size: int) -> "Likelihood":
        """A copy of its own for a network with `out_size` outputs."""

    @abc.abstractmethod
    def y_size(self, out_size: int) -> int:
        """Number of observed columns for `out_size` network outputs."""

    @abc.abstractmethod
    def check(self, y: Float[Tensor, "*batch points y"]) -> None:
        """Raise `ValueError` where `y` holds values that this likelihood cannot have made."""

    @abc.abstractmethod
    def encode(self, y: Float[Tensor, "*batch points y"]) -> Float[Tensor, "*batch points out"]:
        """Observations as the inference networks see them."""

    @abc.abstractmethod
    def log_prob(
        self, f: Float[Tensor, "*batch points out"], y: Float[Tensor, "*batch points y"]
    ) -> Float[Tensor, "*batch points"]:
        """Log-density of each point, summed over its columns."""

    @abc.abstractmethod
    def slope(
        self, f: Float[Tensor, "*batch points out"], y: Float[Tensor, "*batch points y"]
    ) -> Float[Tensor, "*batch points out"]:
        """The derivative of `log_prob` by the network's outputs."""

    @abc.abstractmethod
    def curvature_root(self, f: Float[Tensor, "*batch points out"]) -> Float[Tensor, "*batch points out out"]:
        """An `R` for each point such that `R^T R` is minus the second derivative of `log_prob` by the outputs.

        Where that depends on `y`, its mean under the likelihood.
        """

    @abc.abstractmethod
    def mean(self, f: Float[Tensor, "*batch points out"]) -> Float[Tensor, "*batch points out"]:
        """Mean of an observation (class probabilities for `Categorical`)."""

    @abc.abstractmethod
    def variance(self, f: Float[Tensor, "*batch points out"]) -> Float[Tensor, "*batch points out"]:
        """Variance of an observation about that mean."""

    @abc.abstractmethod
    def sample(
        self, f: Float[Tensor, "*batch points out"], generator: torch.Generator
    ) -> Float[Tensor, "*batch points y"]:
        """A new observation."""

    @abc.abstractmethod
    def config(self) -> dict:
        """Constructor arguments, for saving."""


class Gaussian(Likelihood):
    """`y ~ N(f, noise^2)`.

    noise: standard deviation, one number or one an output, in the units the model works in (standardised outputs,
        where training standardises them).
    learnable: whether training adapts it.
    max_noise: optional upper bound, never reached; `noise` must lie below it.

    Example: `bnnp.Gaussian(0.05)`, `bnnp.Gaussian([0.1, 0.3], learnable=False)`, `bnnp.Gaussian(0.05, max_noise=0.3)`
    """

    real_valued = True

    def __init__(self, noise: float | Sequence[float] = 0.1, *, learnable: bool = True, max_noise: float | None = None):
        super().__init__()
        start = torch.as_tensor(noise, dtype=torch.float64).reshape(-1)
        if len(start) == 0 or not bool((torch.isfinite(start) & (start > 0)).all()):
            raise ValueError(f"noise: got {noise}, expected a positive number, or one an output")
        if max_noise is not None and float(start.max()) >= max_noise:
            raise ValueError(f"max_noise: got {max_noise}, expected more than the noise, {float(start.max()):g}")
        self.start = start.tolist()
        self.max_noise = max_noise
        self.learnable = learnable
        share = start if max_noise is None else start / (max_noise - start)
        self.raw = nn.Parameter(share.log(), requires_grad=learnable)

    @property
    def noise(self) -> Float[Tensor, "out"]:
        if self.max_noise is None:
            return self.raw.exp()
        return self.max_noise * torch.sigmoid(self.raw)

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


class HeteroscedasticGaussian(Likelihood):
    """`y ~ N(f, (noise exp(g))^2)`: the network predicts a mean `f` and a log-noise `g` for every output.

    noise: standard deviation where the network says nothing, `g = 0`. There is no floor: `g` is any number.

    For neural processes, whose networks are trained to say how uncertain they are.
    """

    real_valued = True
    numbers_an_output = 2

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
        return f[..., f.shape[-1] // 2 :] + math.log(self.start)

    def variance(self, f: Tensor) -> Tensor:
        return torch.exp(2 * self.log_noise(f))

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        mean = self.mean(f)
        return mean + torch.exp(self.log_noise(f)) * normal(mean.shape, f, generator)

    def config(self) -> dict:
        return {"name": "heteroscedastic", "noise": self.start}


class Bernoulli(Likelihood):
    """Observations in [0, 1] with cross-entropy as log-density: binary outcomes, or grey values as in the paper."""

    real_valued = False

    def for_outputs(self, out_size: int) -> "Bernoulli":
        return Bernoulli()

    def y_size(self, out_size: int) -> int:
        return out_size

    def check(self, y: Tensor) -> None:
        if y.numel() and not bool(((y >= 0) & (y <= 1)).all()):
            raise ValueError(f"y: got values from {y.min():g} to {y.max():g}, expected values in [0, 1] for Bernoulli")

    def encode(self, y: Tensor) -> Tensor:
        return y

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        f, y = torch.broadcast_tensors(f, y)
        return -functional.binary_cross_entropy_with_logits(f, y, reduction="none").sum(-1)

    def slope(self, f: Tensor, y: Tensor) -> Tensor:
        return y - torch.sigmoid(f)

    def curvature_root(self, f: Tensor) -> Tensor:
        return torch.diag_embed(self.variance(f).sqrt())

    def mean(self, f: Tensor) -> Tensor:
        return torch.sigmoid(f)

    def variance(self, f: Tensor) -> Tensor:
        p = torch.sigmoid(f)
        return p * (1 - p)

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        uniform = torch.rand(f.shape, generator=generator, dtype=f.dtype, device=generator.device).to(f.device)
        return (uniform < torch.sigmoid(f)).to(f.dtype)

    def config(self) -> dict:
        return {"name": "bernoulli"}


class Categorical(Likelihood):
    """One column of class labels `0, 1, ...`; the network has one output a class."""

    real_valued = False

    def __init__(self, num_classes: int):
        super().__init__()
        if num_classes < 2:
            raise ValueError(f"num_classes: got {num_classes}, expected at least 2")
        self.num_classes = num_classes

    def for_outputs(self, out_size: int) -> "Categorical":
        if out_size != self.num_classes:
            raise ValueError(f"out_size: got {out_size}, expected {self.num_classes}, the number of classes")
        return Categorical(self.num_classes)

    def y_size(self, out_size: int) -> int:
        return 1

    def check(self, y: Tensor) -> None:
        if y.numel() and not bool(((y == y.round()) & (y >= 0) & (y < self.num_classes)).all()):
            raise ValueError(f"y: expected class labels 0, ..., {self.num_classes - 1}, got other values")

    def encode(self, y: Tensor) -> Tensor:
        return functional.one_hot(y.squeeze(-1).long(), self.num_classes).to(y.dtype)

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        labels = y.long().expand(*f.shape[:-1], 1)
        return torch.log_softmax(f, -1).gather(-1, labels).squeeze(-1)

    def slope(self, f: Tensor, y: Tensor) -> Tensor:
        return self.encode(y) - torch.softmax(f, -1)

    def curvature_root(self, f: Tensor) -> Tensor:
        root = torch.softmax(f, -1).sqrt()
        eye = torch.eye(self.num_classes, dtype=f.dtype, device=f.device)
        return (eye - root.unsqueeze(-1) * root.unsqueeze(-2)) * root.unsqueeze(-2)  # (I - s s^T) projects: |s| = 1

    def mean(self, f: Tensor) -> Tensor:
        return torch.softmax(f, -1)

    def variance(self, f: Tensor) -> Tensor:
        p = torch.softmax(f, -1)
        return p * (1 - p)

    def sample(self, f: Tensor, generator: torch.Generator) -> Tensor:
        cumulative = torch.softmax(f, -1).cumsum(-1)
        uniform = torch.rand(f.shape[:-1], generator=generator, dtype=f.dtype, device=generator.device).to(f.device)
        labels = (uniform.unsqueeze(-1) > cumulative).sum(-1, keepdim=True)
        return labels.clamp(max=self.num_classes - 1).to(f.dtype)

    def config(self) -> dict:
        return {"name": "categorical", "num_classes": self.num_classes}


LIKELIHOODS: dict[str, type[Gaussian] | type[HeteroscedasticGaussian] | type[Bernoulli] | type[Categorical]] = {
    "gaussian": Gaussian,
    "heteroscedastic": HeteroscedasticGaussian,
    "bernoulli": Bernoulli,
    "categorical": Categorical,
}


def from_config(config: dict) -> Likelihood:
    arguments = dict(config)
    return LIKELIHOODS[arguments.pop("name")](**arguments)
