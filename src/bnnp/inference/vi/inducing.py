"""Global inducing points (Ober and Aitchison 2021): the BNNP's layerwise posterior without inference networks.

The pseudo-observations of a few inducing points are free parameters instead.
"""

from dataclasses import dataclass

import torch
from torch import nn

from bnnp._core.checks import check_fields
from bnnp._core.random import normal
from bnnp._core.shapes import Float, Tensor
from bnnp.inference.points import log_likelihood, random_rows, rows_of
from bnnp.inference.target import Target
from bnnp.inference.vi.base import Variational
from bnnp.inference_nets.base import MIN_PSEUDO_NOISE
from bnnp.inference_nets.pseudo import inverse_noise
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.layerwise import Turn, Updated, through_layers
from bnnp.numerics.gaussian import Observations, UpdateDraws, condition

LOG_NOISE_START = -1.0


class InducingPoints(nn.Module):
    """For each data set: inputs, and a pseudo-observation with its noise for every unit of every layer.

    Args:
        target: The posteriors to approximate.
        count: Inducing points per data set.
        generator: Generator of the starting values.
    """

    def __init__(self, target: Target, count: int, generator: torch.Generator):
        super().__init__()
        rows = random_rows(target.data, count, generator)
        x = rows_of(target.data.x, rows)
        self.inputs = nn.Parameter(x.clone())
        shapes = [(target.sets, 1, out, rows.shape[1]) for _, out in target.network.weight_shapes]
        self.y = nn.ParameterList(nn.Parameter(normal(shape, x, generator)) for shape in shapes)
        if isinstance(target.likelihood, Gaussian):  # the last layer's pseudo-observations are outputs
            self.y[-1] = nn.Parameter(rows_of(target.data.y, rows).mT.unsqueeze(1).clone())
        self.log_noise = nn.ParameterList(nn.Parameter(torch.full(shape, LOG_NOISE_START).to(x)) for shape in shapes)


@dataclass(frozen=True)
class GIVI(Variational):
    """Global inducing points (Ober and Aitchison 2021) for each data set, which maximise the evidence lower bound.

    Args:
        num_inducing: Inducing points per data set; at most as many as the smallest data set has points.
        min_pseudo_noise: Lower bound of the noise of their pseudo-observations, as in the BNNP.

    Example:
        >>> small, givi = bnnp.BNNP(1, 1, hidden=(2,), seed=0), bnnp.inference.GIVI(num_inducing=2)
        >>> bnnp.infer(small, x, y, method=givi, num_samples=8, steps=2).num_samples
        8
    """

    num_inducing: int = 24
    min_pseudo_noise: float = MIN_PSEUDO_NOISE

    def __post_init__(self):
        check_fields(self)

    def approximation(self, target: Target, generator: torch.Generator) -> InducingPoints:
        """Inducing points that start at random inputs of the data."""
        if target.prior.couples_outputs:
            raise ValueError(
                "method: givi needs a prior that keeps the units of a layer independent, got "
                f"{type(target.prior).__name__}; expected a factorised or unitwise one"
            )
        count = min(self.num_inducing, int(target.data.mask.sum(1).min()))
        return InducingPoints(target, count, generator)

    def bound(
        self, target: Target, points: InducingPoints, samples: int, generator: torch.Generator
    ) -> Float[Tensor, "sets samples"]:
        weights, kl = self._infer(target, points, samples, generator)
        return log_likelihood(target.network, target.likelihood, weights, target.data).sum(-1) - kl

    def draw(
        self, target: Target, points: InducingPoints, samples: int, generator: torch.Generator
    ) -> list[Float[Tensor, "sets samples _d _out"]]:
        return self._infer(target, points, samples, generator)[0]

    def _infer(
        self, target: Target, points: InducingPoints, samples: int, generator: torch.Generator
    ) -> tuple[list[Tensor], Float[Tensor, "sets samples"]]:
        """Weights, each layer given the samples of the layers before it, and the KL to the prior."""
        update = FromInducing(points, samples, generator, self.min_pseudo_noise)
        end = through_layers(target.network, target.prior, points.inputs, update)
        kls = [layer.kl.expand(-1, samples) for layer in end.done if layer.kl is not None]
        return end.weights, torch.stack(kls).sum(0)


@dataclass(frozen=True)
class FromInducing:
    """Condition a layer on the pseudo-observations of the inducing points. The prior is held constant.

    Attributes:
        points: The inducing points of every data set.
        samples: Weight samples per data set.
        generator: Generator of the normal draws.
        min_noise: Lower bound of the pseudo-noise.
    """

    points: InducingPoints
    samples: int
    generator: torch.Generator
    min_noise: float

    def __call__(self, turn: Turn) -> Updated:
        with torch.no_grad():
            prior = turn.prior
        log_noise, phi = self.points.log_noise[turn.index], turn.features
        seen = Observations(self.points.y[turn.index], inverse_noise(log_noise, self.min_noise))
        units, size = turn.of.unit_shape(turn.index)
        of_weights, of_points = (
            normal((len(phi), self.samples, units, count), phi, self.generator) for count in (size, phi.shape[-2])
        )
        update = condition(prior, phi, seen, UpdateDraws(of_weights, of_points))
        weights = turn.of.from_units(turn.index, prior.mean + update.centred)
        return Updated(weights, lambda: update.whitened, update.kl.sum(-1))
