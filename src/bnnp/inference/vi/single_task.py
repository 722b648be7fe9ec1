"""The BNNP for one data set: its inference networks are trained on that data set alone, under a given prior."""

from dataclasses import dataclass, field

import torch
from torch import nn

from bnnp._core.random import as_integer
from bnnp._core.shapes import Float, Tensor
from bnnp.inference.target import Target
from bnnp.inference.vi.base import Variational
from bnnp.inference_nets.choices import Pointwise
from bnnp.inference_nets.pointwise import PointEncoder
from bnnp.models.bnnp import BNNP
from bnnp.models.estimates import in_float64_where_needed
from bnnp.networks.perceptron import Network
from bnnp.tasks.task import SplitBatch


@dataclass(frozen=True)
class SingleTaskBNNP(Variational):
    """The BNNP for single data sets: each has its own inference networks, trained by the evidence lower bound.

    The prior and the noise stay fixed.

    Args:
        inference: The inference networks; by default they have the hidden units of the network.
        start: A trained model. Training starts from its inference networks instead of random ones (fine-tuning).

    Example:
        >>> small = bnnp.BNNP(1, 1, hidden=(2,), seed=0)
        >>> fine_tuned = bnnp.inference.SingleTaskBNNP(start=small)
        >>> bnnp.infer(small, x, y, method=fine_tuned, num_samples=8, steps=2).num_samples
        8
    """

    inference: Pointwise = field(default_factory=Pointwise)
    start: BNNP | None = None

    def approximation(self, target: Target, generator: torch.Generator) -> BNNP:
        """One model; a leading axis of its inference networks' weights separates the data sets."""
        if not isinstance(target.network, Network):
            raise ValueError(f"method: bnnp needs a plain network, got {type(target.network).__name__}")
        models = [self._model(target, as_integer(generator)) for _ in range(target.sets)]
        for encoders in zip(*(_encoders(model) for model in models), strict=True):
            encoders[0].weights = nn.ParameterList(
                nn.Parameter(torch.stack(weights).unsqueeze(1).detach())
                for weights in zip(*(encoder.weights for encoder in encoders), strict=True)
            )
        return models[0]

    def bound(
        self, target: Target, model: BNNP, samples: int, generator: torch.Generator
    ) -> Float[Tensor, "sets samples"]:
        """Estimates of the evidence lower bound; with the last layer integrated if the likelihood is Gaussian."""
        if model.can_integrate:
            batch = SplitBatch(target.data, target.data).without_targets()
            estimates = model.estimate(batch, samples, generator, integrate=True)
            bound = in_float64_where_needed(estimates, lambda found: found.context() - found.kl())
            return bound.expand(-1, samples).to(target.data.x)
        inferred = model.infer(target.data, samples, generator)
        kl = torch.stack([kl.expand(-1, samples) for kl in inferred.kl]).sum(0)
        return model.context_log_likelihood(inferred, target.data).sum(-1) - kl

    def draw(
        self, target: Target, model: BNNP, samples: int, generator: torch.Generator
    ) -> list[Float[Tensor, "sets samples _d _out"]]:
        return model.infer(target.data, samples, generator).weights

    def _model(self, target: Target, seed: int) -> BNNP:
        network = target.network
        assert isinstance(network, Network)
        model = BNNP(
            network.sizes[0],
            network.sizes[-1],
            network.sizes[1:-1],
            network.activation,
            target.prior,
            target.likelihood,
            inference=self.inference,
            last_layer=None if self.start is None else self.start.last_layer,
            dtype=target.data.x.dtype,
            seed=seed,
        )
        if self.start is not None:
            model.layers.load_state_dict(self.start.layers.state_dict())
        model.set_prior_learnability(0)
        model.likelihood.requires_grad_(False)
        return model


def _encoders(model: BNNP) -> list[PointEncoder]:
    return [module for module in model.modules() if isinstance(module, PointEncoder)]
