"""The posterior over the weights for one data set, as an object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from numpy.typing import ArrayLike

from bnnp._core.columns import Columns
from bnnp._core.shapes import Float, Tensor
from bnnp.likelihoods.base import Likelihood
from bnnp.networks.base import AnyNetwork
from bnnp.numerics.gaussian import NaturalParameters
from bnnp.numerics.last_layer import LastLayer
from bnnp.prediction.base import Predictive
from bnnp.prediction.weights import WeightSamples
from bnnp.tasks.task import TaskBatch

if TYPE_CHECKING:
    from bnnp.models.amortised import AmortisedModel, InferredWeights


@dataclass(frozen=True, eq=False, repr=False)
class WeightPosterior(WeightSamples):
    """Samples of the weights given one data set.

    weights: every layer's samples (samples, d_in + 1, d_out), the last row being the bias.
    layer_kl: KL of each layer's posterior to its prior (samples,), given each sample of the earlier layers.
    layer_log_density: log-density of each layer's posterior at its sample (samples,).
        Both are in float64, whatever the precision of the model.
    seed, points: the number that the draws were made from, and how many points have been seen.
    context: the points, where they are held, for the first `update`;  last: the last layer's sums over all points.
    """

    model: AmortisedModel
    weights: list[Float[Tensor, "samples _d _out"]]
    layer_kl: list[Float[Tensor, "samples"]]
    layer_log_density: list[Float[Tensor, "samples"]]
    seed: int
    points: int
    context: TaskBatch | None = None
    last: NaturalParameters | None = None

    @staticmethod
    def joined(
        model: AmortisedModel,
        parts: Sequence[InferredWeights],
        seed: int,
        points: int,
        context: TaskBatch | None,
        last: Sequence[NaturalParameters] = (),
    ) -> WeightPosterior:
        """One posterior from samples that were drawn in parts."""

        def whole(layers: Sequence[Sequence[Tensor]]) -> list[Tensor]:
            sizes = [part.weights[0].shape[1] for part in parts]
            return [
                torch.cat([x.expand(1, size, *x.shape[2:]) for x, size in zip(layer, sizes, strict=True)], dim=1)[0]
                for layer in zip(*layers, strict=True)
            ]

        return WeightPosterior(
            model,
            whole([part.weights for part in parts]),
            whole([part.kl for part in parts]),
            whole([part.log_density for part in parts]),
            seed,
            points,
            context,
            NaturalParameters.joined(last, shared=model.network.num_layers == 1) if last else None,
        )

    def with_more(self, other: WeightPosterior) -> WeightPosterior:
        """All samples of two posteriors of the same data set, whose numbers follow each other."""
        last = None
        if self.last is not None and other.last is not None:
            last = NaturalParameters.joined([self.last, other.last], shared=self.network.num_layers == 1)

        def both(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> list[Tensor]:
            return [torch.cat(pair) for pair in zip(ours, theirs, strict=True)]

        return replace(
            self,
            weights=both(self.weights, other.weights),
            layer_kl=both(self.layer_kl, other.layer_kl),
            layer_log_density=both(self.layer_log_density, other.layer_log_density),
            last=last,
        )

    @property
    def network(self) -> AnyNetwork:
        return self.model.network

    @property
    def likelihood(self) -> Likelihood:
        return self.model.likelihood

    @property
    def columns(self) -> Columns:
        return self.model.columns

    @cached_property
    def last_layer(self) -> LastLayer:
        """The Gaussian of the last layer's weights given every sample of the hidden layers, in float64."""
        from bnnp.models import components

        return components.last_layer_of(self)

    def predict(self, x: ArrayLike | Tensor) -> Predictive:
        """Predictions at new inputs (points, in).

        Under a Gaussian likelihood they are a mixture of Gaussians, one per sample of the hidden layers, with the last
        layer integrated (`bnnp.MixturePredictive`); otherwise they are made of function samples, and so is
        `predict_by_samples` for any likelihood.

        Example: `pred = post.predict(x_new)`; then `pred.mean`, `pred.std`, `pred.quantile([0.05, 0.95])`.
        """
        if not self.model.can_integrate or (self.context is None and self.last is None):  # some files hold neither
            return self.predict_by_samples(x)
        from bnnp.models import components

        return components.mixture_at(self, self.prepared_inputs(x))

    @property
    def kl(self) -> float:
        """KL of the posterior over all weights to the prior, in nats."""
        return float(sum(kl.double().mean() for kl in self.layer_kl))

    def log_prob(self) -> Float[Tensor, "samples"]:
        """Log-density of the posterior at its own samples, `log q(W | D)`."""
        return torch.stack([density.double() for density in self.layer_log_density]).sum(0).to(self.model.dtype)

    def update(self, x: ArrayLike | Tensor, y: ArrayLike | Tensor) -> WeightPosterior:
        """The posterior after more points, without the earlier ones (paper, App. D). This one stays as it is.

        The last layer is conditioned on the new points too; the samples of all earlier layers stay. For a network
        without hidden layers that is exact. The result has a constant size, however many updates went into it.

        Example: `post = post.update(x_more, y_more)`
        """
        from bnnp.models import online

        return online.update(self, x, y)

    def save(self, path: str | Path) -> Path:
        """Write the posterior and its model to one file; `bnnp.load_posterior(path)` gives it back."""
        from bnnp.models import saving

        return saving.save_posterior(self, path)

    def forgetting_context(self) -> WeightPosterior:
        """The same posterior with sums in the place of the points that it still holds."""
        from bnnp.models import online

        if self.last is not None:
            return self
        return replace(self, context=None, last=online.sums_of_last_layer(self))

    def _described(self) -> dict[str, object]:
        return {"points": self.points, **super()._described(), "KL to the prior": f"{self.kl:.4g} nats"}
