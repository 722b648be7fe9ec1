"""The posteriors of many data sets, with the same bits whatever else is predicted beside them.

Data sets with as many known and as many wanted points go through the layers side by side (`batches.py`), where the
number of samples is given and layers and units are independent; others by themselves. What all data sets share is made
once: the draws, and the priors of all layers with their covariances.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from bnnp._core.shapes import Float, Tensor
from bnnp._core.show import Shown, span
from bnnp._core.threads import one_thread_each
from bnnp.models import enough
from bnnp.models.alone import Alone
from bnnp.models.batches import batch_size, can_batch, moments
from bnnp.models.draws import SAMPLES_AT_ONCE, Draws, in_canonical_order
from bnnp.models.posterior import WeightPosterior
from bnnp.numerics.gaussian import CAREFUL, UnitPrior, UpdateDraws
from bnnp.numerics.health import FactorisationError
from bnnp.numerics.last_layer import LastLayer, condition_last_layer
from bnnp.prediction.base import Predictive
from bnnp.prediction.mixture import MixturePredictive
from bnnp.tasks.source import as_pairs
from bnnp.tasks.task import Task, TaskBatch

if TYPE_CHECKING:
    from bnnp.models.amortised import AmortisedModel


@dataclass(frozen=True, eq=False, repr=False)
class WeightPosteriors(Shown, Sequence[WeightPosterior]):
    """The posteriors of many data sets; `model.condition_many` makes them.

    Nothing is kept but the data sets: `predict` conditions one after the other and keeps the predictions alone. All
    have the same draws, those of `model.condition` with the same seed.

    Attributes:
        model: The model.
        tasks: The data sets, checked, and their points in canonical order.
        num_samples: Weight samples per data set; as many as predictions need if None.
        seed: The seed of the draws.

    Example:
        >>> posts = model.condition_many([(x, y), ([0.0], [0.5])], num_samples=8, seed=0)
        >>> [prediction.mean.shape for prediction in posts.predict([x_new, [0.1, 0.2, 0.3]])]
        [(2, 1), (3, 1)]
        >>> posts[1].points
        1
    """

    model: AmortisedModel
    tasks: Sequence[Task]
    num_samples: int | None
    seed: int

    def __len__(self) -> int:
        return len(self.tasks)

    def __getitem__(self, index: int) -> WeightPosterior:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One posterior, as `model.condition` gives it."""
        task = self.tasks[index]
        return self.model.condition(task.x, task.y, num_samples=self.num_samples, seed=self.seed)

    def predict(self, x: Sequence[ArrayLike | Tensor]) -> list[Predictive]:
        """Predict new points of every data set.

        Args:
            x: Inputs (points, in), one array per data set.

        Returns:
            One prediction per data set: what `model.condition(...).predict(...)` gives, to rounding. It does not depend
            on the other data sets, to the last bit.

        Raises:
            ValueError: If there is not one array per data set, or the inputs do not fit the model.

        Example:
            >>> posts = model.condition_many([(x, y)], num_samples=8, seed=0)
            >>> posts.predict([x_new])[0].mean.shape
            (2, 1)
        """
        if not isinstance(x, Sequence | np.ndarray | Tensor):
            raise ValueError(f"x: got {type(x).__name__}, expected a list of arrays, one for each data set")
        if len(x) != len(self):
            raise ValueError(f"x: got {len(x)} arrays, expected {len(self)}, one for each data set")
        inputs = [self.model.columns.inputs(one) for one in x]
        if inputs:
            self.model.columns.warn_outside(torch.cat(inputs))
        conditioned = Conditioned(self.model, self.seed)
        alone = conditioned.with_samples(self.num_samples)
        sizes = [(len(task), len(new)) for task, new in zip(self.tasks, inputs, strict=True)]
        batches = conditioned.batches(sizes, self.num_samples)

        def work(batch: list[int]) -> list[Predictive]:
            some, new = [self.tasks[i] for i in batch], [inputs[i] for i in batch]
            if len(some) > 1 or conditioned.side_by_side(self.num_samples):
                return conditioned.together(some, new, self.num_samples or 0)
            return [alone(some[0], new[0])]

        found = [one for some in one_thread_each(work, batches) for one in some]
        return [found[place] for place in np.argsort([i for batch in batches for i in batch])]

    def _described(self) -> dict[str, object]:
        samples = "as many as predictions need" if self.num_samples is None else self.num_samples
        points = span(len(task) for task in self.tasks)
        return {"data sets": len(self), "points": points, "samples": samples, "model": type(self.model).__name__}


@dataclass(frozen=True, eq=False)
class Conditioned:
    """A model that is conditioned on one data set after the other, with what all of them share.

    Attributes:
        model: The model.
        seed: The seed of the draws.
    """

    model: AmortisedModel
    seed: int

    def side_by_side(self, num_samples: int | None) -> bool:
        """Whether data sets of one size go side by side."""
        return num_samples is not None and can_batch(self.model)

    def batches(self, sizes: Sequence[tuple[int, int]], num_samples: int | None) -> list[list[int]]:
        """The numbers of the data sets that go side by side.

        Args:
            sizes: Known and wanted points of every data set.
            num_samples: Weight samples; as many as each data set needs if None.
        """
        order = sorted(range(len(sizes)), key=lambda i: sizes[i])  # so that the draws of a size are made once
        most = batch_size(self.model, num_samples) if num_samples and self.side_by_side(num_samples) else 1
        found: list[list[int]] = []
        for i in order:
            if not found or len(found[-1]) == most or sizes[found[-1][0]] != sizes[i]:
                found.append([])
            found[-1].append(i)
        return found

    def together(self, tasks: Sequence[Task], inputs: Sequence[Tensor], samples: int) -> list[Predictive]:
        """Predictions of data sets of one size. What cannot be solved for side by side is predicted by itself."""
        if samples * self.model.numbers_per_sample(len(tasks[0])) > SAMPLES_AT_ONCE:
            return [self._at(task, new, samples) for task, new in zip(tasks, inputs, strict=True)]
        model, prepared = self.model, [self._prepared(new) for new in inputs]
        try:
            found = moments(model, self._priors, self._draws(samples, len(tasks[0])), tasks, prepared)
        except FactorisationError:
            if len(tasks) == 1:
                return [self._at(tasks[0], inputs[0], samples)]
            apart = (self.together([task], [new], samples) for task, new in zip(tasks, inputs, strict=True))
            return [one for some in apart for one in some]
        predictions: list[Predictive] = []
        for task, new, x, one in zip(tasks, inputs, prepared, found, strict=True):
            alone = Alone(model, task, x, samples, self.seed)
            whole = MixturePredictive(one.means, one.variances, one.noise, alone, model.likelihood, model.columns)
            predictions.append(whole.at(new))
        return predictions

    def with_samples(self, num_samples: int | None) -> Callable[[Task, Tensor], Predictive]:
        """A function from a data set and new inputs, in the user's units, to a prediction.

        Args:
            num_samples: Weight samples; as many as each data set needs if None.
        """
        if num_samples is None and not self.model.can_integrate:
            num_samples = enough.MOST
        if num_samples is None and self.model.network.num_layers == 1:
            num_samples = enough.FIRST
        if num_samples is None:
            return self._with_enough
        return lambda task, x_new: self._at(task, x_new, num_samples)

    def _with_enough(self, task: Task, x_new: Tensor) -> Predictive:
        """As many samples as `bnnp.models.enough` asks for."""
        x, count = self._prepared(task.x), enough.FIRST
        while True:
            generator = enough.probe_generator(self.seed)
            given = self._given(task, count)
            gap = enough.gap_at(given.predictive(enough.probes(x, x, x.shape[1], generator)), generator)
            wanted = enough.wanted_after(count, gap)
            if wanted == count:
                return given.predictive(self._prepared(x_new)).at(x_new)
            count = wanted

    def _prepared(self, x: Float[Tensor, "points x"]) -> Float[Tensor, "points x"]:
        return self.model.columns.standardise_x(x.to(self.model.device)).to(self.model.dtype)

    def _at(self, task: Task, x_new: Tensor, samples: int) -> Predictive:
        if self.model.can_integrate and samples * self.model.numbers_per_sample(len(task)) <= SAMPLES_AT_ONCE:
            return self._given(task, samples).predictive(self._prepared(x_new)).at(x_new)
        return self.model.condition(task.x, task.y, num_samples=samples, seed=self.seed).predict(x_new)

    @torch.no_grad()
    def _given(self, task: Task, samples: int) -> TaskPosterior:
        context = self.model.prepare(TaskBatch.of([task], device=self.model.device))
        draws = self._draws(samples, len(task))
        hidden = self.model.infer_hidden(context, samples, draws, careful_priors=self._priors)
        points = hidden.given.to(CAREFUL)
        layer = condition_last_layer(hidden.prior.to(CAREFUL), points.phi, points.seen)
        return TaskPosterior(self, task, samples, hidden.weights, layer)

    @cached_property
    def _priors(self) -> dict[int, UnitPrior]:
        """Of all layers, in float64, where they do not depend on the weights of earlier layers."""
        if self.model.prior.couples_layers:
            return {}
        with torch.no_grad():
            layers = range(self.model.network.num_layers)
            return {layer: self.model.prior.layer(layer, []).to(CAREFUL) for layer in layers}

    @cached_property
    def _draws(self) -> Callable[[int, int], list[UpdateDraws]]:
        """The draws of all layers, by the numbers of samples and points."""

        @lru_cache(maxsize=4)
        def of_layers(samples: int, points: int) -> list[UpdateDraws]:
            draws = Draws(self.seed, range(samples), self.model.dtype, self.model.device)
            layers = range(self.model.network.num_layers)
            return [self.model.layer_draws(draws, layer, 0, points).to(CAREFUL) for layer in layers]

        return of_layers


@dataclass(frozen=True, eq=False)
class TaskPosterior:
    """A data set's posterior: samples of the hidden layers, and the last layer given each of them.

    Attributes:
        by: What made it.
        task: The data set.
        samples: Weight samples.
        hidden: The weights of the hidden layers.
        last: The last layer.
    """

    by: Conditioned
    task: Task
    samples: int
    hidden: list[Float[Tensor, "one _samples _d _out"]]
    last: LastLayer

    @torch.no_grad()
    def predictive(self, x: Float[Tensor, "points x"]) -> MixturePredictive:
        """The prediction at prepared inputs. It does not hold the samples."""
        model, out = self.by.model, self.by.model.network.sizes[-1]
        target = TaskBatch.of([Task(x, x.new_zeros(len(x), out))], model.dtype, model.device)
        points = model.observed(model.last_features(self.hidden, target), target).to(CAREFUL)
        found = (self.last.means(points.phi), self.last.variances(points.phi, points.seen.inverse_noise))
        means, variances = (values[0].flatten(1).unflatten(1, (out, -1)).mT.contiguous() for values in found)
        alone = Alone(model, self.task, x, self.samples, self.by.seed)
        noise = model.noise_at(x).to(CAREFUL)
        return MixturePredictive(means, variances, noise, alone, model.likelihood, model.columns)


def checked_tasks(model: AmortisedModel, tasks: Sequence[tuple[Any, Any] | Task]) -> list[Task]:
    """Users' data sets that fit a model, their points in canonical order.

    Raises:
        ValueError: If one does not fit; the message has its number.
    """
    found, pairs = [], as_pairs(tasks, "tasks") if not isinstance(tasks, Sequence) or len(tasks) else []
    for i, (x, y) in enumerate(pairs):
        try:
            found.append(in_canonical_order(model.checked_task(x, y)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"tasks: data set {i} of {len(pairs)}: {error}") from None
    return found
