"""The posterior over the weights for one data set, as an object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike

from bnnp._core.columns import Columns
from bnnp._core.lazy import later
from bnnp._core.random import Seed
from bnnp._core.shapes import Float, Tensor
from bnnp._core.tensor_files import write_tensors
from bnnp.likelihoods.base import Likelihood
from bnnp.models.base import model_header
from bnnp.models.components import LastLayerAt, last_layer_given
from bnnp.models.draws import Draws
from bnnp.models.evidence import WeightModel
from bnnp.models.inferring import InferredWeights
from bnnp.models.online import Hidden
from bnnp.models.sums import check_can_be_cut
from bnnp.models.trust import Trust
from bnnp.networks.base import AnyNetwork
from bnnp.numerics.gaussian import NaturalParameters
from bnnp.numerics.last_layer import LastLayer
from bnnp.prediction.base import Predictive
from bnnp.prediction.mixture import MixturePredictive
from bnnp.prediction.weights import WeightSamples
from bnnp.tasks.task import Task, TaskBatch

SUMS = {"precision": "precision", "shift": "shift", "noise": "draws", "square": "square"}
"""The parts of the last layer's sums: their names in a file, and in `NaturalParameters`."""


@dataclass(frozen=True, eq=False, repr=False)
class WeightPosterior(WeightSamples):
    """The posterior over the weights for one data set, as weight samples; `model.condition(x, y)` makes it.

    Attributes:
        model: The model that was conditioned.
        weights: The samples of every layer (samples, d_in + 1, d_out); the last row is the bias.
        layer_kl: KL of each layer's posterior to its prior, one value per sample of the earlier layers, in float64.
        layer_log_density: Log-density of each layer's posterior at its own samples, one value per sample, in float64.
        seed: The seed of the draws.
        points: Number of points that have been seen.
        context: The points, or None where they are not kept (after `update`, from a file or from a stream).
        last: The last layer's sums over all points, where the points are not kept.

    Example:
        >>> post = model.condition(x, y, num_samples=20, seed=0)
        >>> post.num_samples, post.points
        (20, 3)
        >>> post.predict(x_new).mean.shape
        (2, 1)
        >>> post.update([2.0], [0.9]).points
        4
    """

    model: WeightModel
    weights: list[Float[Tensor, "samples _d _out"]]
    layer_kl: list[Float[Tensor, "samples"]]
    layer_log_density: list[Float[Tensor, "samples"]]
    seed: int
    points: int
    context: TaskBatch | None = None
    last: NaturalParameters | None = None

    @staticmethod
    def joined(
        model: WeightModel,
        parts: Sequence[InferredWeights],
        seed: int,
        points: int,
        context: TaskBatch | None,
        last: Sequence[NaturalParameters] = (),
    ) -> WeightPosterior:
        """Make one posterior from samples that were drawn in parts.

        Args:
            model: The model that was conditioned.
            parts: Samples, in the order of their numbers.
            seed: The seed of the draws.
            points: Number of points in the context.
            context: The points, where they are kept.
            last: The last layer's sums of every part, where the points are not kept.
        """

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
        """Join the samples of two posteriors of the same data set; the other's samples are numbered after these."""
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

    @property
    def known(self) -> Task | None:
        """The points of the context in the user's units, or None where they are not kept."""
        if self.context is None:
            return None
        y = self.context.y[0]
        outputs = self.columns.restore_y(y) if self.likelihood.real_valued else y.double()
        return Task(self.columns.restore_x(self.context.x[0]).cpu(), outputs.cpu())

    @cached_property
    def last_layer(self) -> LastLayer:
        """The Gaussian of the last layer's weights given every sample of the hidden layers, in float64."""
        with torch.no_grad():
            return last_layer_given(self._hidden().last_turn(), self._sums())

    def predict(self, x: ArrayLike | Tensor) -> Predictive:
        """Predict at new inputs.

        Args:
            x: Inputs (points, in).

        Returns:
            Under a Gaussian likelihood, a `bnnp.MixturePredictive`: one Gaussian per sample of the hidden layers, with
            the last layer integrated. Otherwise a `bnnp.SampledPredictive`, as `predict_by_samples` gives it for any
            likelihood.

        Raises:
            ValueError: If the inputs do not fit the model.

        Example:
            >>> post.predict(x_new).mean.shape
            (2, 1)
        """
        if not self.model.can_integrate or (self.context is None and self.last is None):  # some files hold neither
            return self.predict_by_samples(x)
        return self.mixture_at(self.prepared_inputs(x)).at(self.columns.inputs(x))

    def mixture_at(self, x: Float[Tensor, "points x"]) -> MixturePredictive:
        """Predictions at prepared inputs, with the last layer integrated."""
        return LastLayerAt(self.model, self.weights, self.last_layer, x).predictive()

    @property
    def kl(self) -> float:
        """KL of the posterior over all weights to the prior, in nats."""
        return float(sum(kl.double().mean() for kl in self.layer_kl))

    def log_prob(self) -> Float[Tensor, "samples"]:
        """Log-density of the posterior at its own samples, `log q(W | D)`, one value per sample."""
        return torch.stack([density.double() for density in self.layer_log_density]).sum(0).to(self.model.dtype)

    def update(self, x: ArrayLike | Tensor, y: ArrayLike | Tensor) -> WeightPosterior:
        """Give the posterior after more points, without a need for the earlier ones (paper, App. D).

        The last layer is conditioned on the new points too; the samples of all earlier layers stay the same. For a
        network without hidden layers that is exact. The size of the result does not depend on the number of updates.

        Args:
            x: Inputs of the new points (points, in).
            y: Their outputs (points, out).

        Returns:
            A new posterior; this one is not changed.

        Raises:
            ValueError: If the points of a context see each other in this model, or the points do not fit it.

        Example:
            >>> post.update([2.0], [0.1]).points
            4
        """
        check_can_be_cut(self.model, "update")
        task = self.model.checked_task(x, y)
        new = self.model.prepare(TaskBatch.of([task], device=self.model.device))
        last = self._hidden().renewed(self._sums(), new, self.points)
        assert last.kl is not None
        assert last.log_density is not None
        return replace(
            self,
            weights=[*self.weights[:-1], last.weights[0]],
            layer_kl=[*self.layer_kl[:-1], last.kl[0].expand(self.num_samples)],
            layer_log_density=[*self.layer_log_density[:-1], last.log_density[0].expand(self.num_samples)],
            points=self.points + len(task),
            context=None,
            last=last.sums,
        )

    def check(self, x: ArrayLike | Tensor | None = None, *, seed: Seed = 0) -> Trust:
        """Say how far this posterior is to be trusted, as `bnnp.evaluation.check` explains; print it for one line.

        Args:
            x: Inputs (points, in) to predict at, if any.
            seed: Seed of all draws.

        Raises:
            ValueError: If the posterior does not have its points any more.

        Example:
            >>> post.check().draws
            1000
        """
        return later("bnnp.evaluation.trust", "check")(self, x, seed=seed)

    def refine(self, method: str = "nuts", **options: Any) -> WeightSamples:
        """Infer the posterior of the same points under the same prior by another method: slower, and not amortised.

        Args:
            method: A name from `bnnp.inference.METHODS`: a Markov chain such as "nuts" or "hmc", or a fit such as
                "bnnp", "mfvi" or "laplace".
            **options: As for `bnnp.infer`; by default there are as many samples as here.

        Returns:
            A posterior with `predict`, `functions` and `diagnostics`.

        Raises:
            ValueError: If the posterior does not have its points any more, or an option does not fit.

        Example:
            >>> post.refine("ensemble", num_samples=3, steps=5).predict(x_new).mean.shape
            (2, 1)
        """
        return later("bnnp.evaluation.trust", "refine")(self, method, **options)

    def save(self, path: str | Path) -> Path:
        """Write the posterior and its model to one file, which `bnnp.load_posterior` reads.

        The file holds no points of the context. It holds the last layer's sums, for predictions and later updates. All
        else is as for `save` of the model.

        Example:
            >>> post.save("posterior.bnnp").name
            'posterior.bnnp'
        """
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for layer, values in enumerate(zip(self.weights, self.layer_kl, self.layer_log_density, strict=True)):
            tensors |= dict(zip((f"weights.{layer}", f"kl.{layer}", f"density.{layer}"), values, strict=True))
        sums = self._sums()
        tensors |= {f"last.{name}": getattr(sums, part) for name, part in SUMS.items()}
        header = {"model": model_header(self.model), "seed": self.seed, "points": self.points}
        return write_tensors(path, "posterior", tensors, header)

    def _sums(self) -> NaturalParameters:
        """The last layer's sums over all points that have been seen."""
        if self.last is not None:
            return self.last
        if self.context is None:
            raise ValueError(
                "posterior: got one from a file of an earlier version, with neither its points nor sums over them, "
                "expected either; make it anew with `model.condition(x, y)`"
            )
        return self._hidden().sums(self.context, 0)

    def _hidden(self) -> Hidden:
        draws = Draws(self.seed, range(self.num_samples), self.model.dtype, self.model.device)
        return Hidden(self.model, [w.unsqueeze(0) for w in self.weights[:-1]], draws)

    def _described(self) -> dict[str, object]:
        return {"points": self.points, **super()._described(), "KL to the prior": f"{self.kl:.4g} nats"}
