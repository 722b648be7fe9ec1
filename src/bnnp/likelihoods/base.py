"""The contract of a likelihood: how outputs of the network become observations."""

import abc

import torch
from torch import nn

from bnnp._core.checks import check_kind
from bnnp._core.shapes import Float, Tensor


class Likelihood(nn.Module, abc.ABC):
    """`p(y | f)` for each point, where `f` are the outputs of the network.

    Attributes:
        real_valued: Whether `y` may be shifted and scaled.
        outputs_per_target: How many outputs of the network stand for one output of the model.
    """

    real_valued: bool
    outputs_per_target: int = 1

    @abc.abstractmethod
    def for_outputs(self, out_size: int) -> "Likelihood":
        """A new likelihood like this one, for a network with `out_size` outputs."""

    @abc.abstractmethod
    def y_size(self, out_size: int) -> int:
        """Number of observed columns for `out_size` network outputs."""

    @abc.abstractmethod
    def check(self, y: Float[Tensor, "*batch points y"]) -> None:
        """Raise `ValueError` if `y` holds values that are impossible under this likelihood."""

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
        """The derivative of `log_prob` with respect to the network's outputs."""

    @abc.abstractmethod
    def curvature_root(self, f: Float[Tensor, "*batch points out"]) -> Float[Tensor, "*batch points out out"]:
        """An `R` for each point such that `R^T R` is minus the second derivative of `log_prob` by the outputs.

        Where that derivative depends on `y`, its mean under the likelihood is taken.
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
        """Draw new observations."""

    @abc.abstractmethod
    def config(self) -> dict:
        """Constructor arguments, for saving."""


def checked_likelihood(likelihood: Likelihood) -> Likelihood:
    """What a user gave as a likelihood, or a `ValueError` if it is none."""
    check_kind("likelihood", likelihood, Likelihood, "an object such as bnnp.Gaussian(0.1)")
    return likelihood
