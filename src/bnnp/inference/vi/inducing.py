"""Global inducing points (Ober and Aitchison 2021): the BNNP's layerwise posterior, with free parameters for the
pseudo-observations of a few invented points instead of inference networks."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from bnnp._core.random import normal
from bnnp._core.shapes import Float, Tensor
from bnnp.inference.target import Target, log_likelihood, random_rows, rows_of
from bnnp.inference.vi.base import Variational
from bnnp.likelihoods.gaussian import Gaussian
from bnnp.models.amortised import MIN_PSEUDO_NOISE
from bnnp.networks.base import run
from bnnp.numerics.gaussian import Observations, UpdateNoise, condition

LOG_NOISE_START = -1.0


class InducingPoints(nn.Module):
    """For each data set: inputs, and a pseudo-observation with its noise for every unit of every layer."""

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
    """num_inducing: invented points a data set; at most as many as the smallest data set has points.

    min_pseudo_noise: lower bound of the noise of their pseudo-observations, as in the BNNP.
    """

    num_inducing: int = 24
    min_pseudo_noise: float = MIN_PSEUDO_NOISE

    def approximation(self, target: Target, generator: torch.Generator) -> InducingPoints:
        """Inputs are some of the data's."""
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
        """Weights, each layer's given the samples of those before, and the KL to the prior."""
        weights: list[Tensor] = []
        kls: list[Tensor] = []

        def outputs(layer: int, features: Tensor) -> Tensor:
            with torch.no_grad():
                prior = target.prior.layer(layer, [])
            units, size = target.prior.unit_shape(layer)
            least = self.min_pseudo_noise
            inverse_noise = torch.sigmoid(math.log(least) - points.log_noise[layer]) / least
            seen = Observations(points.y[layer], inverse_noise)
            shape = (target.sets, samples, units)
            noise = UpdateNoise(
                normal((*shape, size), features, generator), normal((*shape, features.shape[-2]), features, generator)
            )
            update = condition(prior, features, seen, noise)
            weights.append(target.prior.from_units(layer, prior.mean + update.centred))
            kls.append(update.kl.sum(-1).expand(-1, samples))
            return features @ weights[-1]

        run(target.network.program(points.inputs.unsqueeze(1)), outputs)
        return weights, torch.stack(kls).sum(0)
