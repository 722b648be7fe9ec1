"""The contract of a prior over the weights of a network."""

import abc
from collections.abc import Sequence

import torch
from torch import nn

from bnnp._core.columns import Columns
from bnnp._core.random import Seed, as_generator, normal
from bnnp._core.shapes import Float, Tensor
from bnnp._core.show import Shown
from bnnp.networks.base import AnyNetwork
from bnnp.networks.functions import Function, View, functions_of
from bnnp.numerics.gaussian import UnitPrior, log_prior
from bnnp.priors.learnable import GaussianUnits


class Prior(Shown, nn.Module, abc.ABC):
    """A Gaussian prior over all weights of a network, given one layer after the other.

    Weights come in *units* that the prior keeps independent: the outputs of a layer, or the whole layer as one unit.
    A leaf says how (`couples_outputs`, and `couples_layers` where a layer depends on those before it), builds its
    parameters (`blocks`) and gives each layer's conditional (`layer`).
    `view` is how the user sees functions of the network: a model lends the prior its own. It is no part of the prior.
    """

    couples_outputs: bool
    couples_layers = False
    blocks: nn.ModuleList
    network: AnyNetwork

    def __init__(self, network: AnyNetwork):
        super().__init__()
        object.__setattr__(self, "network", network)  # not a part of the prior: its parameters are the model's
        self.view = View(Columns(network.sizes[0], network.sizes[-1]))
        self.learnability = 1.0

    @abc.abstractmethod
    def layer(self, index: int, earlier: Sequence[Float[Tensor, "tasks samples _units _d"]]) -> UnitPrior:
        """The prior of a layer's units given the whitened weights of all earlier layers."""

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def check_fits(self, network: AnyNetwork) -> None:
        """Refuse a network whose weights have other shapes than those that this prior is over."""
        if network.weight_shapes != self.network.weight_shapes:
            raise ValueError(
                f"prior: got one over weights of shapes {self.network.weight_shapes} for a network with "
                f"{network.weight_shapes}, expected the same shapes; build the prior for this network, as in "
                f"bnnp.priors.{type(self).__name__}(network)"
            )

    # --- weights of a layer (d x out) as units, and back -----------------------------------------------------------

    def to_units(self, weights: Float[Tensor, "*batch d out"]) -> Float[Tensor, "*batch units unit_size"]:
        columns = weights.mT
        return columns.flatten(-2).unsqueeze(-2) if self.couples_outputs else columns

    def from_units(self, layer: int, units: Float[Tensor, "*batch units unit_size"]) -> Float[Tensor, "*batch d out"]:
        d, out = self.network.weight_shapes[layer]
        return units.reshape(*units.shape[:-2], out, d).mT

    def unit_shape(self, layer: int) -> tuple[int, int]:
        d, out = self.network.weight_shapes[layer]
        return (1, out * d) if self.couples_outputs else (out, d)

    # --- what users do with a prior --------------------------------------------------------------------------------

    def sample(self, num_samples: int, seed: Seed = 0) -> list[Float[Tensor, "samples _d _out"]]:
        """Weights of every layer, `num_samples` draws.

        Example: `weights = model.prior.sample(10, seed=0)`; then `weights[0].shape == (10, in_size + 1, hidden[0])`.
        """
        if num_samples < 1:
            raise ValueError(f"num_samples: got {num_samples}, expected a positive number")
        generator = as_generator(seed)
        whitened: list[Tensor] = []
        weights = []
        with torch.no_grad():
            for index in range(self.network.num_layers):
                prior = self.layer(index, whitened)
                whitened.append(normal((1, num_samples, *self.unit_shape(index)), prior.factor, generator))
                weights.append(self.from_units(index, prior.weights(whitened[-1]))[0])
        return weights

    def log_prob(self, weights: Sequence[Float[Tensor, "*batch _d _out"]]) -> Float[Tensor, "*batch"]:
        """Log-density of weights, one value a sample."""
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
        """Functions drawn from the prior, each a callable from inputs (n, in) to outputs (n, out)."""
        return functions_of(self.network, self.sample(num_samples, seed), self.view)

    # --- learnable share -------------------------------------------------------------------------------------------

    def set_learnability(self, share: float) -> None:
        """Make the prior of the first `round(share |W|)` weights trainable, from the first layer on (paper, App. F).

        The parameters of all other weights keep the values they have now.
        """
        if not 0 <= share <= 1:
            raise ValueError(f"share: got {share}, expected a number between 0 (all fixed) and 1 (all learnable)")
        self.learnability = float(share)
        masks = self._learnable_masks(round(share * self.network.num_weights))
        for block, mask in zip(self.blocks, masks, strict=True):
            assert isinstance(block, GaussianUnits)
            block.set_learnable(mask)

    def _learnable_masks(self, count: int) -> list[Tensor]:
        masks, start = [], 0
        for block in self.blocks:
            assert isinstance(block, GaussianUnits)
            shape = block.mean.value.shape
            masks.append((torch.arange(start, start + shape.numel()) < count).reshape(shape))
            start += shape.numel()
        return masks

    def assign_layer(self, layer: int, mean: Float[Tensor, "d out"], scale: Float[Tensor, "d out"]) -> None:
        """Set the means and (conditional) standard deviations of a layer's weights, where they are learnable."""
        start = sum(d * out for d, out in self.network.weight_shapes[:layer])
        blocks = [block for block in self.blocks if isinstance(block, GaussianUnits)]
        for parameters, values in (([b.mean for b in blocks], mean), ([b.log_scale for b in blocks], scale.log())):
            flat = torch.cat([parameter.value.detach().flatten() for parameter in parameters])
            flat[start : start + values.numel()] = values.T.flatten().to(flat)
            for parameter, part in zip(parameters, flat.split([p.value.numel() for p in parameters]), strict=True):
                parameter.assign(part.reshape(parameter.value.shape))

    def assign_unit(self, layer: int, output: int, mean: Float[Tensor, "d"], covariance: Float[Tensor, "d d"]) -> None:
        """Set the Gaussian of the weights into one output of a layer, where they are learnable.

        A factorised prior takes the variances alone.
        """
        d, _ = self.network.weight_shapes[layer]
        place = sum(rows * columns for rows, columns in self.network.weight_shapes[:layer]) + output * d
        for block in self.blocks:
            assert isinstance(block, GaussianUnits)
            if place < block.mean.value.numel():
                block.assign_weights(place, mean, covariance)
                return
            place -= block.mean.value.numel()

    def is_standard(self) -> bool:
        """Whether the prior still is the standard one it starts as."""
        return all(block.is_standard() for block in self.blocks if isinstance(block, GaussianUnits))

    def _described(self) -> dict[str, object]:
        sizes, weights = " - ".join(str(size) for size in self.network.sizes), self.network.num_weights
        state = {"learnable share": self.learnability, "standard": self.is_standard()}
        return {"network": sizes, "weights": weights, **state}


def standard_variance(network: AnyNetwork, layer: int, dtype: torch.dtype, outputs: int = 1) -> Float[Tensor, "size"]:
    """The standard prior's variance `1/(d_in + 1)` for the weights into `outputs` units of a layer, biases included."""
    d, _ = network.weight_shapes[layer]
    return torch.full((outputs * d,), 1 / d, dtype=dtype)
