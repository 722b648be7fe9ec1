"""The contract of a prior over the weights of a network."""

import abc
from collections.abc import Sequence

import torch
from torch import nn

from bnnp._core.checks import check_samples, is_number
from bnnp._core.columns import Columns
from bnnp._core.memory import check_memory
from bnnp._core.random import Seed, as_generator, normal
from bnnp._core.shapes import Float, Tensor
from bnnp._core.show import Shown
from bnnp.networks.base import AnyNetwork
from bnnp.networks.functions import Function, View, functions_of
from bnnp.numerics.gaussian import UnitPrior, log_prior
from bnnp.priors.learnable import GaussianUnits


class Prior(Shown, nn.Module, abc.ABC):
    """A Gaussian prior over all weights of a network, given one layer after the other.

    The weights of a layer are divided into *units*, which the prior keeps independent: one unit per output of the
    layer, or the whole layer as one unit. A subclass sets `couples_outputs` and `couples_layers`, builds its parameters
    (`gaussians`) and gives the prior of each layer (`layer`).

    Args:
        network: The network whose weights the prior is over.

    Attributes:
        couples_outputs: Whether the whole layer is one unit, so that weights into different outputs are correlated.
        couples_layers: Whether the prior of a layer depends on the weights of earlier layers.
        gaussians: The parameters of the prior: the `GaussianUnits` of each layer, or those of all layers together.
        network: The network whose weights the prior is over.
        view: How functions of the network look in the user's units. A model sets it; it is no part of the prior.
        learnability: The share of the weights whose prior is trained.

    Example:
        >>> prior = bnnp.priors.Unitwise(bnnp.Network((1, 4, 1)))
        >>> isinstance(prior, bnnp.priors.Prior), prior.is_standard()
        (True, True)
        >>> [tuple(weights.shape) for weights in prior.sample(10, seed=0)]
        [(10, 2, 4), (10, 5, 1)]
    """

    couples_outputs: bool
    couples_layers = False
    gaussians: nn.ModuleList
    network: AnyNetwork

    def __init__(self, network: AnyNetwork):
        super().__init__()
        object.__setattr__(self, "network", network)  # not a part of the prior: its parameters are the model's
        self.view = View(Columns(network.sizes[0], network.sizes[-1]))
        self.learnability = 1.0

    @abc.abstractmethod
    def layer(self, index: int, earlier: Sequence[Float[Tensor, "tasks samples _units _d"]]) -> UnitPrior:
        """The prior of one layer's units.

        Args:
            index: Number of the layer, from 0.
            earlier: The whitened weights of all earlier layers; a prior that keeps layers independent ignores them.
        """

    def parts(self) -> list[GaussianUnits]:
        """The parameters of the prior, one after the other."""
        return [part for part in self.gaussians if isinstance(part, GaussianUnits)]

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the prior's parameters."""
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        """Device of the prior's parameters."""
        return next(self.parameters()).device

    def check_fits(self, network: AnyNetwork) -> None:
        """Refuse a network whose weights have other shapes than those of this prior.

        Raises:
            ValueError: If the shapes differ.
        """
        if network.weight_shapes != self.network.weight_shapes:
            raise ValueError(
                f"prior: got one over weights of shapes {self.network.weight_shapes} for a network with "
                f"{network.weight_shapes}, expected the same shapes; build the prior for this network, as in "
                f"bnnp.priors.{type(self).__name__}(network)"
            )

    # --- weights of a layer (d x out) as units, and back -----------------------------------------------------------

    def to_units(self, weights: Float[Tensor, "*batch d out"]) -> Float[Tensor, "*batch units unit_size"]:
        """The weights of a layer, divided into units."""
        columns = weights.mT
        return columns.flatten(-2).unsqueeze(-2) if self.couples_outputs else columns

    def from_units(self, layer: int, units: Float[Tensor, "*batch units unit_size"]) -> Float[Tensor, "*batch d out"]:
        """The weights of a layer, from its units."""
        d, out = self.network.weight_shapes[layer]
        return units.reshape(*units.shape[:-2], out, d).mT

    def unit_shape(self, layer: int) -> tuple[int, int]:
        """Number of units of a layer, and number of weights per unit."""
        d, out = self.network.weight_shapes[layer]
        return (1, out * d) if self.couples_outputs else (out, d)

    # --- what users do with a prior --------------------------------------------------------------------------------

    def sample(self, num_samples: int, seed: Seed = 0) -> list[Float[Tensor, "samples _d _out"]]:
        """Draw weights of the whole network.

        Args:
            num_samples: Number of draws.
            seed: Seed of the draws.

        Returns:
            The weights of every layer (samples, d_in + 1, d_out); the last row is the bias.

        Raises:
            ValueError: If `num_samples` is not positive.

        Example:
            >>> model.prior.sample(10, seed=0)[0].shape
            torch.Size([10, 2, 8])
        """
        check_samples(num_samples)
        self.check_room(num_samples)
        generator = as_generator(seed)
        whitened: list[Tensor] = []
        weights = []
        with torch.no_grad():
            for index in range(self.network.num_layers):
                prior = self.layer(index, whitened)
                whitened.append(normal((1, num_samples, *self.unit_shape(index)), prior.factor, generator))
                weights.append(self.from_units(index, prior.weights(whitened[-1]))[0])
        return weights

    def check_room(self, num_samples: int) -> None:
        """Refuse a number of samples whose weights do not fit into memory.

        Raises:
            ValueError: If they do not.
        """
        numbers = num_samples * self.network.num_weights
        check_memory(f"num_samples={num_samples}", numbers, "draw fewer samples", self.dtype.itemsize)

    def log_prob(self, weights: Sequence[Float[Tensor, "*batch _d _out"]]) -> Float[Tensor, "*batch"]:
        """Log-density of weights, one value per sample.

        Args:
            weights: The weights of every layer, as `sample` gives them.

        Raises:
            ValueError: If the weights have other shapes than those of the network.

        Example:
            >>> model.prior.log_prob(model.prior.sample(10, seed=0)).shape
            torch.Size([10])
        """
        if not isinstance(weights, Sequence) or not all(isinstance(w, Tensor) for w in weights):
            raise ValueError(f"weights: got {type(weights).__name__}, expected a list of tensors, as from `sample`")
        shapes = [tuple(w.shape[-2:]) for w in weights]
        if shapes != self.network.weight_shapes:
            raise ValueError(f"weights: got layers of shape {shapes}, expected {self.network.weight_shapes}")
        batch = weights[0].shape[:-2]
        flat = [w.reshape(1, -1, *w.shape[-2:]) for w in weights]
        whitened: list[Tensor] = []
        total = flat[0].new_zeros(1, flat[0].shape[1])
        for index, w in enumerate(flat):
            prior = self.layer(index, whitened)
            whitened.append(prior.whiten(self.to_units(w)))
            total = total + log_prior(whitened[-1], prior).sum(-1)
        return total.reshape(batch)

    def functions(self, num_samples: int, seed: Seed = 0) -> list[Function]:
        """Draw functions from the prior.

        Args:
            num_samples: Number of functions.
            seed: Seed of the draws.

        Returns:
            Functions from inputs (points, in) to outputs (points, out), in the user's units.

        Example:
            >>> model.prior.functions(3, seed=0)[0](x_new).shape
            (2, 1)
        """
        return functions_of(self.network, self.sample(num_samples, seed), self.view)

    # --- learnable share -------------------------------------------------------------------------------------------

    def set_learnability(self, share: float) -> None:
        """Make the prior of the first `round(share |W|)` weights trainable, from the first layer on (paper, App. F).

        The parameters of all other weights keep the values that they have now.

        Args:
            share: Between 0, all fixed, and 1, all learnable.

        Raises:
            ValueError: If `share` is not between 0 and 1.
        """
        if not (is_number(share) and 0 <= share <= 1):
            raise ValueError(f"share: got {share!r}, expected a number between 0 (all fixed) and 1 (all learnable)")
        self.learnability = float(share)
        masks = self._learnable_masks(round(share * self.network.num_weights))
        for part, mask in zip(self.parts(), masks, strict=True):
            part.set_learnable(mask)

    def _learnable_masks(self, count: int) -> list[Tensor]:
        masks, start = [], 0
        for part in self.parts():
            shape = part.mean.value.shape
            masks.append((torch.arange(start, start + shape.numel()) < count).reshape(shape))
            start += shape.numel()
        return masks

    def assign_layer(self, layer: int, mean: Float[Tensor, "d out"], scale: Float[Tensor, "d out"]) -> None:
        """Set the means and (conditional) standard deviations of a layer's weights, where they are learnable.

        Args:
            layer: Number of the layer, from 0.
            mean: Means of its weights.
            scale: Their standard deviations.
        """
        start = sum(d * out for d, out in self.network.weight_shapes[:layer])
        parts = self.parts()
        for part in parts:
            part.drop_basis()
        for parameters, values in (([p.mean for p in parts], mean), ([p.log_scale for p in parts], scale.log())):
            flat = torch.cat([parameter.value.detach().flatten() for parameter in parameters])
            flat[start : start + values.numel()] = values.T.flatten().to(flat)
            for parameter, own in zip(parameters, flat.split([p.value.numel() for p in parameters]), strict=True):
                parameter.assign(own.reshape(parameter.value.shape))

    def assign_unit(self, layer: int, output: int, mean: Float[Tensor, "d"], covariance: Float[Tensor, "d d"]) -> None:
        """Set the Gaussian of the weights into one output of a layer, where they are learnable.

        Args:
            layer: Number of the layer, from 0.
            output: Number of the output, from 0.
            mean: Means of the weights.
            covariance: Their covariance, of which a factorised prior takes the variances alone.
        """
        d, _ = self.network.weight_shapes[layer]
        place = sum(rows * columns for rows, columns in self.network.weight_shapes[:layer]) + output * d
        for part in self.parts():
            if place < part.mean.value.numel():
                part.assign_weights(place, mean, covariance)
                return
            place -= part.mean.value.numel()

    def is_standard(self) -> bool:
        """Whether the prior is still the standard one that it starts as."""
        return all(part.is_standard() for part in self.parts())

    def _described(self) -> dict[str, object]:
        sizes, weights = " - ".join(str(size) for size in self.network.sizes), self.network.num_weights
        state = {"learnable share": self.learnability, "standard": self.is_standard()}
        return {"network": sizes, "weights": weights, **state}


def standard_variance(network: AnyNetwork, layer: int, dtype: torch.dtype, outputs: int = 1) -> Float[Tensor, "size"]:
    """The standard prior's variance `1/(d_in + 1)` for the weights into `outputs` units of a layer, biases included."""
    d, _ = network.weight_shapes[layer]
    return torch.full((outputs * d,), 1 / d, dtype=dtype)
