"""The contract of a start: a way to set a prior before training, and what it needs of a model."""

import abc
from dataclasses import dataclass

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp.networks.base import AnyNetwork
from bnnp.priors.base import Prior


@dataclass(frozen=True)
class Examples:
    """The tasks that a start looks at, as the model sees them (standardised).

    Attributes:
        x: Inputs of every task.
        y: Outputs of every task.
        output_scale: Standard deviation of the network's outputs; 1 where outputs are labels.

    Example:
        >>> import torch
        >>> two = bnnp.starts.Examples([torch.zeros(3, 1), torch.ones(5, 1)], [torch.zeros(3, 1)] * 2, torch.ones(1))
        >>> two.all_x().shape
        torch.Size([8, 1])
    """

    x: list[Float[Tensor, "_n x"]]
    y: list[Float[Tensor, "_n y"]]
    output_scale: Float[Tensor, "out"]

    def all_x(self) -> Float[Tensor, "points x"]:
        """The inputs of all tasks, one after the other."""
        return torch.cat(self.x)


@dataclass(frozen=True)
class Needs:
    """What a start needs of a model, beside a multilayer perceptron and real-valued outputs.

    Attributes:
        activation: The activation that the network must have; None if any will do.
        hidden: The least number of hidden layers. The last of them must have one unit per output.
        inputs: The number of input columns that the network must have; None if any will do.

    Example:
        >>> bnnp.starts.Needs(activation="tanh", hidden=1)
        Needs(activation='tanh', hidden=1, inputs=None)
    """

    activation: str | None = None
    hidden: int = 0
    inputs: int | None = None


class Start(abc.ABC):
    """A way to set a learnable prior before training. Derive from it to write your own.

    Give an object of the class to `bnnp.start_prior`, or to `bnnp.fit` as `bnnp.FitSettings(prior_start=...)`.

    Attributes:
        tasks: The number of tasks that `set` looks at.
        needs: What the start needs of a model; None if it works for every model.
        deciding: The scale of the inputs of the deciding units of the last hidden layer, one unit per output, where
            there are such units and the scale is large. Inference for these units then starts at the same scale.

    Example:
        >>> import torch
        >>> class Wide(bnnp.starts.Start):
        ...     def set(self, prior, examples, generator):
        ...         for layer, shape in enumerate(prior.network.weight_shapes):
        ...             prior.assign_layer(layer, torch.zeros(shape), torch.full(shape, 2.0))
        >>> small = bnnp.BNNP(1, 1, hidden=(4,), prior="factorised")
        >>> bnnp.start_prior(small, tasks, Wide())
        >>> bool((small.prior.layer(0, []).factor.round(decimals=3) == 2).all())
        True
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
            generator: The generator of all random numbers.
        """


def check_start(start: Start, network: AnyNetwork, *, real_valued: bool) -> None:
    """Refuse a start that does not suit the network or the likelihood.

    Args:
        start: The start.
        network: The network of the model.
        real_valued: Whether the outputs are real values rather than labels.

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
