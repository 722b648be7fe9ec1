"""The inference networks that users choose from, and their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from bnnp._core.shapes import Tensor
from bnnp.inference_nets.attentive import SetEncoder
from bnnp.inference_nets.base import Encoders
from bnnp.inference_nets.pointwise import PointEncoder


@dataclass(frozen=True)
class Pointwise(Encoders):
    """Inference networks that see each point of a context by itself (paper, section 2.2).

    Args:
        hidden: Hidden units of every inference network. By default those of the model's own network.
        sees_hidden: Feed the activations of the previous layer to the inference networks too (paper, footnote 2).
        min_pseudo_noise: Lower bound of every predicted noise.

    Raises:
        ValueError: If a choice is not as described.

    Example:
        >>> model = bnnp.BNNP(1, 1, hidden=(8, 8), inference=bnnp.Pointwise(hidden=(4,)))
        >>> model.inference.hidden
        (4,)
    """

    pointwise: ClassVar[bool] = True

    def encoder(
        self, in_size: int, out_size: int, activation: str | Callable[[Tensor], Tensor], generator: torch.Generator
    ) -> PointEncoder:
        return PointEncoder(in_size, out_size, self.hidden or (), activation, generator)


@dataclass(frozen=True)
class Attentive(Encoders):
    """Inference networks in which the points of a context attend to each other (paper, section 2.6).

    Args:
        hidden: The width of each block of attention, one entry per block. All widths are equal, and `heads` divides
            them. By default the hidden units of the model's own network.
        sees_hidden: Feed the activations of the previous layer to the inference networks too (paper, footnote 2).
        min_pseudo_noise: Lower bound of every predicted noise.
        heads: Heads of attention.

    Raises:
        ValueError: If a choice is not as described.

    Example:
        >>> model = bnnp.AttBNNP(1, 1, hidden=(8, 8), inference=bnnp.Attentive(hidden=(8,), heads=2))
        >>> model.inference.heads
        2
    """

    heads: int = 4
    pointwise: ClassVar[bool] = False

    def encoder(
        self, in_size: int, out_size: int, activation: str | Callable[[Tensor], Tensor], generator: torch.Generator
    ) -> SetEncoder:
        return SetEncoder(in_size, out_size, self.hidden or (), self.heads, generator)


ENCODERS: dict[str, type[Pointwise] | type[Attentive]] = {"pointwise": Pointwise, "attentive": Attentive}


def chosen(inference: str | Encoders) -> Encoders:
    """Give the choice that a name stands for; an object is returned as it is.

    Raises:
        ValueError: If there is no choice of that name.
    """
    if isinstance(inference, Encoders):
        return inference
    if inference not in ENCODERS:
        raise ValueError(
            f"inference: got {inference!r}, expected {' or '.join(ENCODERS)}, or an object such as bnnp.Pointwise()"
        )
    return ENCODERS[inference]()


def to_config(inference: Encoders) -> dict[str, Any] | Encoders:
    """A choice as plain values; a class of the user's own is returned as it is."""
    for name, kind in ENCODERS.items():
        if type(inference) is kind:
            return {"name": name, **inference.config()}
    return inference


def from_config(config: Mapping[str, Any]) -> Encoders:
    """The choice that `to_config` gave as plain values."""
    arguments = dict(config)
    return ENCODERS[arguments.pop("name")](**arguments)
