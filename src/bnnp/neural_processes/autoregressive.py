"""Joint predictions of a conditional neural process, one target after the other (Bruinsma et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from numpy.typing import ArrayLike

from bnnp._core.random import child
from bnnp._core.shapes import Float, Int, Tensor
from bnnp._core.threads import in_parallel
from bnnp.neural_processes.posterior import ProcessPosterior, SampledFunction
from bnnp.prediction.sampled import DrawnInTurn, SampledPredictive
from bnnp.prediction.weights import NUMBERS_AT_ONCE
from bnnp.tasks.task import TaskBatch

if TYPE_CHECKING:
    from bnnp.neural_processes.conditional import ConditionalProcess

_ORDER, _DRAWS, _FUNCTION = 0, 1, 2


@dataclass(frozen=True, eq=False, repr=False)
class AutoregressivePosterior(ProcessPosterior):
    """Targets are drawn one after the other, each given the context and the targets drawn before it.

    The seed decides their order. `predict(x).samples` are coherent functions: the model's mean given the context and
    all draws. `observations` are the draws themselves, and `log_prob` averages the conditionals that they were drawn
    from. The joint density of observed targets is the product of their conditionals in the same order, given the true
    values before. A function from `functions()` draws anew at every call: its values are consistent within a call, and
    the same for the same inputs.

    Cost: the network reads context and draws again for every target and every sample. For n targets and c context
    points a TNP takes n (c + n)^2 operations of attention per sample: ask for fewer samples than from a latent process.
    """

    def predictive(self, x: Float[Tensor, "points x"]) -> SampledPredictive:
        model: ConditionalProcess = self.model
        order = torch.randperm(len(x), generator=child(self.seed, _ORDER)).to(x.device)
        back = order.argsort()
        context, size = self._context(), self._at_once(len(x))

        def draw(first: int) -> tuple[Tensor, Tensor, Tensor]:
            count = min(size, self.num_samples - first)
            return _draw(model, context, x[order], count, child(self.seed, _DRAWS, first))

        parts = in_parallel(draw, range(0, self.num_samples, size))
        outputs, observations, functions = (torch.cat(part)[:, back] for part in zip(*parts, strict=True))

        def log_prob(y: ArrayLike | Tensor) -> float:
            return self._log_prob(x, predictive.observed(y), order)

        drawn = DrawnInTurn(functions, observations, log_prob)
        predictive = SampledPredictive(outputs, model.likelihood, model.columns, drawn)
        return predictive

    def functions(self) -> list[SampledFunction]:
        seeds = [int(child(self.seed, _FUNCTION, k).initial_seed()) for k in range(self.num_samples)]
        return [SampledFunction(replace(self, num_samples=1, seed=seed)) for seed in seeds]

    @torch.no_grad()
    def _log_prob(
        self, x: Float[Tensor, "points x"], y: Float[Tensor, "points y"], order: Int[Tensor, "points"]
    ) -> float:
        """Sum of the log conditionals, computed as one batch of contexts that grow by one point each."""
        model: ConditionalProcess = self.model
        context, x, y = self._context(), x[order], y[order]
        known = context.x.shape[1]
        everything = _after(context, x, y.to(model.dtype))
        rank = torch.arange(known + len(x), device=x.device) - known

        def conditionals(first: int) -> Tensor:
            rows = torch.arange(first, min(first + size, len(x)), device=x.device)
            seen = _repeated(everything, len(rows), rank < rows.unsqueeze(1))
            outputs = model.decode(model.represent(seen), x[rows].unsqueeze(1))
            return model.likelihood.log_prob(outputs.double(), y[rows, None, None]).flatten()

        size = self._at_once(len(x))
        terms = in_parallel(conditionals, range(0, len(x), size))
        slope = model.columns.log_slope(y).sum() if model.likelihood.real_valued else 0.0
        return float(sum(term.sum() for term in terms) + slope)

    def _context(self) -> TaskBatch:
        return self.model.prepared(self.task)

    def _at_once(self, points: int) -> int:
        """Number of contexts in a batch that keeps memory bounded."""
        tokens = len(self.task) + points
        return max(1, NUMBERS_AT_ONCE // (max(1, tokens) * self.model.numbers_per_point(tokens)))


@torch.no_grad()
def _draw(
    model: ConditionalProcess,
    context: TaskBatch,
    x: Float[Tensor, "points x"],
    num_samples: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs that each target was drawn from, the draws, and the means given all draws."""
    known, likelihood = context.x.shape[1], model.likelihood
    y = context.y.new_zeros(len(x), context.y.shape[-1])
    everything = _repeated(_after(context, x, y), num_samples)
    outputs = x.new_empty(num_samples, len(x), model.numbers)
    for target in range(len(x)):
        seen, here = _first(everything, known + target), slice(known + target, known + target + 1)
        f = model.decode(model.represent(seen), everything.x[:, here])[:, 0]
        outputs[:, target : target + 1] = f
        everything.y[:, here] = likelihood.sample(f, generator)
    functions = likelihood.mean(model.decode(model.represent(everything), everything.x[:, known:])[:, 0])
    return outputs, everything.y[:, known:], functions


def _after(context: TaskBatch, x: Float[Tensor, "points x"], y: Float[Tensor, "points y"]) -> TaskBatch:
    """The context with targets after it."""
    both = torch.cat([context.x, x[None]], 1), torch.cat([context.y, y[None]], 1)
    return TaskBatch(*both, context.mask.new_ones(both[0].shape[:2]))


def _repeated(batch: TaskBatch, count: int, mask: Tensor | None = None) -> TaskBatch:
    x, y = (values.repeat(count, 1, 1) for values in (batch.x, batch.y))
    return TaskBatch(x, y, batch.mask.expand(count, -1) if mask is None else mask)


def _first(batch: TaskBatch, points: int) -> TaskBatch:
    return TaskBatch(batch.x[:, :points], batch.y[:, :points], batch.mask[:, :points])
