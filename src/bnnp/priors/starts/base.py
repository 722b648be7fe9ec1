"""The contract of a start: a way to set a prior before training."""

import abc
from dataclasses import dataclass

import torch

from bnnp._core.shapes import Float, Tensor
from bnnp._core.show import Shown, listed, span
from bnnp.priors.base import Prior


@dataclass(frozen=True, eq=False, repr=False)
class Examples(Shown):
    """The tasks that a start looks at, as the model sees them (standardised).

    Attributes:
        x: Inputs of every task.
        y: Outputs of every task.
        output_scale: Standard deviation of the network's outputs; 1 where outputs are labels.
        noise: The noise of each output, if the likelihood has one that is not learned.
        noise_may_vary: Whether the likelihood can have a noise that varies with the inputs.

    Example:
        >>> import torch
        >>> two = bnnp.starts.Examples([torch.zeros(3, 1), torch.ones(5, 1)], [torch.zeros(3, 1)] * 2, torch.ones(1))
        >>> two.all_x().shape
        torch.Size([8, 1])
    """

    x: list[Float[Tensor, "_n x"]]
    y: list[Float[Tensor, "_n y"]]
    output_scale: Float[Tensor, "out"]
    noise: Float[Tensor, "out"] | None = None
    noise_may_vary: bool = False

    def all_x(self) -> Float[Tensor, "points x"]:
        """The inputs of all tasks, one after the other."""
        return torch.cat(self.x)

    def _described(self) -> dict[str, object]:
        return {"tasks": len(self.x), "points": span(len(x) for x in self.x), "inputs": self.x[0].shape[1]}


@dataclass(frozen=True, eq=False, repr=False)
class SmoothNoise(Shown):
    """A noise that may vary with the inputs, as a start finds it.

    Attributes:
        noise: The noise of each output; if it varies, its geometric mean over the inputs of the tasks.
        bends: The bends that its logarithm is a sum of (`bnnp.numerics.bends`); none if it does not vary.
        coefficients: How much of each bend there is, for each output.

    Example:
        >>> import torch
        >>> one = bnnp.starts.SmoothNoise(torch.tensor([0.1]), torch.zeros(0, 4), torch.zeros(0, 1))
        >>> one.noise.shape
        torch.Size([1])
    """

    noise: Float[Tensor, "out"]
    bends: Float[Tensor, "terms 4"]
    coefficients: Float[Tensor, "terms out"]

    def _described(self) -> dict[str, object]:
        noise = listed([f"{value:.4g}" for value in self.noise.tolist()])
        return {"noise": noise, "varies with the inputs": len(self.bends) > 0}


class Start(abc.ABC):
    """A way to set a learnable prior before training. Derive from it to write your own.

    Give an object of the class to `bnnp.start_prior`, or to `bnnp.fit` as `bnnp.FitSettings(prior_start=...)`.

    Attributes:
        tasks: The number of tasks that `set` looks at.
        silences_inference: Whether the prior predicts well by its last layer alone, so that the inference networks of
            the hidden layers should say nothing before they have learned something.

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
    silences_inference: bool = False

    @abc.abstractmethod
    def set(
        self, prior: Prior, examples: Examples, generator: torch.Generator
    ) -> Float[Tensor, "out"] | SmoothNoise | None:
        """Set the prior in place, by `prior.assign_layer` and `prior.assign_unit`, which leave fixed entries alone.

        Args:
            prior: The prior to set; `prior.network` is its network.
            examples: Some tasks, as the model sees them.
            generator: The generator of all random numbers.

        Returns:
            The noise that goes with this prior, which a Gaussian likelihood whose noise is learned takes as its own:
            one number per output, or one that varies with the inputs; None to leave the noise as it is.
        """
