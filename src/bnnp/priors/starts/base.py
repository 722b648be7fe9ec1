"""The contract of a start: a way to set a prior before training, and what it asks of a model."""

import abc
from dataclasses import dataclass

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import AnyNetwork
from bnnp.priors.base import Prior


@dataclass(frozen=True)
class Examples:
    """Tasks that a start looks at, as the model sees them (standardised).

    Attributes:
        x: Inputs of every task.
        y: Outputs of every task.
        output_scale: Standard deviation of the network's outputs; 1 where outputs are labels.
    """

    x: list[Float[Tensor, "_n x"]]
    y: list[Float[Tensor, "_n y"]]
    output_scale: Float[Tensor, "out"]

    def all_x(self) -> Float[Tensor, "points x"]:
        """The inputs of all tasks, one after the other."""
        return torch.cat(self.x)


@dataclass(frozen=True)
class Needs:
    """What a start asks of a model: a multilayer perceptron and real-valued outputs, and what is given here.

    Attributes:
        activation: The only activation that will do; None if any will.
        hidden: The least number of hidden layers. The last of them must have one unit per output.
        inputs: The only number of input columns that will do; None if any will.
    """

    activation: str | None = None
    hidden: int = 0
    inputs: int | None = None


class Start(abc.ABC):
    """A way to set a learnable prior before training. Derive from it to write your own.

    Attributes:
        tasks: How many tasks `set` is given to look at.
        needs: What it asks of a model; None if it works for every model.
        deciding: The scale of what enters the units of the last hidden layer that decide, one per output, where it is
            large: inference for these units then starts at the same scale.

    Example:
        @dataclass(frozen=True)
        class Wide(bnnp.starts.Start):
            scale: float = 2.0

            def set(self, prior, examples, generator):
                for layer, shape in enumerate(prior.network.weight_shapes):
                    prior.assign_layer(layer, torch.zeros(shape), torch.full(shape, self.scale))

        bnnp.fit(model, tasks, settings=bnnp.FitSettings(prior_start=Wide(3.0)))
    """

    tasks: int = 64
    needs: Needs | None = None
    deciding: float | None = None

    @abc.abstractmethod
    def set(self, prior: Prior, examples: Examples, generator: torch.Generator) -> None:
        """Set the prior in place, by `prior.assign_layer` and `prior.assign_unit`, which leave fixed entries alone.

        Args:
            prior: The prior to set; `prior.network` is its network.
            examples: Some tasks, as the model sees them.
            generator: The source of all randomness.
        """


def check_start(start: Start, network: AnyNetwork, *, real_valued: bool) -> None:
    """Refuse a start that the network or the likelihood is not made for.

    Raises:
        ValueError: If the model lacks what the start needs.
    """
    needs = start.needs
    if needs is None:
        return
    activation = getattr(network, "activation", None)
    if network.mixes_points or needs.activation not in (None, activation):
        wanted = "" if needs.activation is None else f" with activation {needs.activation!r}"
        raise ValueError(
            f"prior_start {start!r}: got a {type(network).__name__} with activation {activation!r}, expected a "
            f"multilayer perceptron{wanted}; build the model so, or take prior_start='spread'"
        )
    sizes = tuple(network.sizes)
    if len(sizes) - 2 < needs.hidden or (needs.hidden and sizes[-2] < sizes[-1]):
        raise ValueError(
            f"prior_start {start!r}: got sizes {sizes}, expected at least {needs.hidden} hidden "
            f"layer{'s' if needs.hidden > 1 else ''}, the last of them with one unit per output; choose a larger "
            "`hidden`, or take prior_start='spread'"
        )
    if needs.inputs not in (None, sizes[0]):
        raise ValueError(
            f"prior_start {start!r}: got {sizes[0]} input columns, expected {needs.inputs}; take prior_start='spread'"
        )
    if not real_valued:
        raise ValueError(
            f"prior_start {start!r}: got a likelihood of labels, expected one of real values; take prior_start='spread'"
        )
