"""The contracts of an inference network, and of the choice of inference networks for a model."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import nn

from bnnp._core.checks import check_fields, check_sizes
from bnnp._core.shapes import Bool, Float, Tensor

MIN_PSEUDO_NOISE = 1e-3
"""The default lower bound of predicted pseudo-noise."""


class Encoder(nn.Module, abc.ABC):
    """An inference network: it makes some numbers for every point of a context."""

    @abc.abstractmethod
    def forward(
        self, inputs: Float[Tensor, "*batch points features"], mask: Bool[Tensor, "tasks points"] | None = None
    ) -> Float[Tensor, "*batch points out"]:
        """Make the numbers for every point.

        Args:
            inputs: What the network sees of every point.
            mask: Which points are present; all if None.
        """

    @abc.abstractmethod
    def set_output_bias(self, columns: slice, value: float) -> None:
        """Set the output bias of some of the numbers.

        Args:
            columns: Which of the numbers.
            value: Their bias.
        """


@dataclass(frozen=True)
class Encoders(abc.ABC):
    """Which inference networks a model has: `bnnp.Pointwise`, `bnnp.Attentive`, or a subclass of your own.

    Attributes:
        hidden: Hidden units of every inference network. By default those of the model's own network.
        sees_hidden: Feed the activations of the previous layer to the inference networks too (paper, footnote 2).
        min_pseudo_noise: Lower bound of every predicted noise. It keeps float32 factorisations accurate.
        pointwise: Whether every point of a context is seen by itself. Contexts can then be given in chunks.
    """

    hidden: Sequence[int] | None = None
    sees_hidden: bool = False
    min_pseudo_noise: float = MIN_PSEUDO_NOISE
    pointwise: ClassVar[bool]

    def __post_init__(self):
        check_fields(self)
        if self.hidden is not None:
            object.__setattr__(self, "hidden", check_sizes("hidden", self.hidden))

    @abc.abstractmethod
    def encoder(
        self, in_size: int, out_size: int, activation: str | Callable[[Tensor], Tensor], generator: torch.Generator
    ) -> Encoder:
        """Make a new inference network for one layer of the model.

        Args:
            in_size: Numbers that it sees of a point.
            out_size: Numbers that it makes for a point.
            activation: The activation of the model's own network.
            generator: The generator of its starting weights.
        """

    def config(self) -> dict[str, Any]:
        """The attributes as plain values, for files."""
        found = asdict(self)
        return {**found, "hidden": None if self.hidden is None else list(self.hidden)}
